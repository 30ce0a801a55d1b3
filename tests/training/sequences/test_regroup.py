from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["batch", "rebatch", "sub_batch", "max_samples", "collate"]),
        st.integers(1, 30),
    ),
    max_size=4,
)


def chain(steps, samples, batch):
    features = {
        "input": np.arange(samples, dtype=np.float32),
        "text": list(map(str, range(samples))),
    }
    sequence = ArraySequence(features, batch=batch, sampler=RandomSampler(), seed=2)
    for name, number in steps:
        sequence = sequence.collate() if name == "collate" else getattr(sequence, name)(number)
    return sequence


def ids(sequence):
    return [batch["sample_id"].tolist() for batch in sequence]


@given(STEPS, st.integers(1, 40), st.integers(1, 12), st.data())
def test_any_chain_continues_anywhere(steps, samples, batch, data):
    sequence = chain(steps, samples, batch)
    whole = ids(sequence)
    assert [len(part) for part in whole] == sequence.sizes()
    flat = [number for part in whole for number in part]
    assert (
        flat
        == [number for part in chain([], samples, batch) for number in part["sample_id"]][
            : len(flat)
        ]
    )
    done = data.draw(st.integers(0, len(whole)))
    batches = iter(sequence)
    for _ in range(done):
        found = next(batches)
        assert (found["input"] == found["sample_id"]).all()
        assert found["text"] == list(map(str, found["sample_id"]))
    other = chain(steps, samples, batch)
    other.load_state_dict(sequence.state_dict())
    assert ids(other) == whole[done:]


def test_rebatched_crosses_batches():
    sequence = ArraySequence({"input": np.zeros(10)}, batch=4).rebatch(3)
    assert ids(sequence) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    sequence = ArraySequence({"input": np.zeros(10)}, batch=4).rebatch(3, drop_last=True)
    assert list(map(len, ids(sequence))) == sequence.sizes() == [3, 3, 3]


def test_a_state_goes_through_a_state_file(tmp_path):
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    from nnpipe.experiment.state_file import read_state, write_state

    sequence = chain([("rebatch", 3), ("sub_batch", 2)], 20, 7)
    batches = iter(sequence)
    for _ in range(4):
        next(batches)
    write_state(tmp_path / "place", sequence.state_dict(), kind="sequence")
    other = chain([("rebatch", 3), ("sub_batch", 2)], 20, 7)
    other.load_state_dict(read_state(tmp_path / "place", kind="sequence"))
    assert ids(other) == ids(chain([("rebatch", 3), ("sub_batch", 2)], 20, 7))[4:]


def ragged():
    rows = [np.full((number + 1, 2), number, np.float32) for number in range(3)]
    return ArraySequence({"input": rows, "label": [3, 4, 5], "text": ["a", "b", "c"]}, batch=3)


def test_collate_joins_what_fits_and_pads_what_does_not():
    (batch,) = ragged().collate(pad=-1)
    assert batch["input"].shape == (3, 3, 2)
    assert batch["input"][0].tolist() == [[0, 0], [-1, -1], [-1, -1]]
    assert batch["label"].tolist() == [3, 4, 5]
    assert batch["text"] == ["a", "b", "c"]


def test_collate_refuses_shapes_that_differ():
    with pytest.raises(ConfigError, match=r"'input' has shapes \(1, 2\) and \(3, 2\)"):
        list(ragged().collate())


def test_collate_applies_a_function_and_keeps_ids():
    (batch,) = ragged().collate(lambda batch: {"label": [2 * label for label in batch["label"]]})
    assert batch["label"].tolist() == [6, 8, 10]
    assert batch["sample_id"].tolist() == [0, 1, 2]


def test_collate_gives_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    (batch,) = ragged().collate(pad=0, tensors=True)
    assert batch["input"].dtype == torch.float32
    assert isinstance(batch["sample_id"], np.ndarray)


def test_batches_of_different_features_are_not_joined():
    class Odd(ArraySequence):
        def stream(self, epoch, position=None):
            for batch, after in super().stream(epoch, position):
                yield ({**batch, "more": batch["input"]} if after == 4 else batch), after

    with pytest.raises(ConfigError, match="more"):
        list(Odd({"input": np.zeros(4)}, batch=2).batch(2))
