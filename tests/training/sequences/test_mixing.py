"""Mixup, CutMix and the targets that they make; weighted samplers; texts and sounds of different
lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.mixing import CutMix, MixUp
from nnpipe.training.sequences.padding import AudioCollation, TextCollation
from nnpipe.training.sequences.samplers import LengthSampler, RandomSampler, WeightedSampler


def pictures(count: int = 40) -> dict[str, Any]:
    label = np.arange(count) % 4
    image = np.broadcast_to(label[:, None, None, None].astype(np.float32), (count, 1, 8, 8)).copy()
    return {"input": image, "label": label}


def mixed(transform: Any, workers: int = 0, seed: int = 2) -> list[dict[str, Any]]:
    sequence = ArraySequence(pictures(), batch=8, sampler=RandomSampler(), seed=1)
    with sequence.map(transform, workers=workers, each="batch", seed=seed) as found:
        found.set_epoch(3)
        return list(found)


@pytest.mark.parametrize(
    "transform", [MixUp(classes=4, alpha=0.5), CutMix(classes=4)], ids=["mixup", "cutmix"]
)
def test_a_picture_has_of_each_class_what_its_label_says(transform: Any) -> None:
    batches = mixed(transform)
    assert len(batches) == 5
    for batch in batches:
        assert batch["label"].shape == (8, 4)
        np.testing.assert_allclose(batch["label"].sum(1), 1, rtol=1e-6)
        # Pictures have the number of their class in each pixel, so the mean is the expected class.
        np.testing.assert_allclose(
            batch["input"].mean((1, 2, 3)), batch["label"] @ np.arange(4), atol=1e-5
        )
    assert any(((batch["label"] > 0.05) & (batch["label"] < 0.95)).any() for batch in batches)


def test_what_is_mixed_follows_from_seed_and_ids() -> None:
    one, two, other = (
        mixed(MixUp(classes=4)),
        mixed(MixUp(classes=4)),
        mixed(MixUp(classes=4), seed=5),
    )
    assert all(np.array_equal(a["input"], b["input"]) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a["input"], b["input"]) for a, b in zip(one, other, strict=True))


def test_mixing_twice_mixes_shares() -> None:
    sequence = ArraySequence(pictures(), batch=8).map(CutMix(classes=4), each="batch", seed=1)
    batch = next(iter(sequence.map(MixUp(classes=4), each="batch", seed=1)))
    np.testing.assert_allclose(
        batch["input"].mean((1, 2, 3)), batch["label"] @ np.arange(4), atol=1e-5
    )


def test_what_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(Exception, match="from 0 to 2"):
        mixed(MixUp(classes=3))
    with pytest.raises(ConfigError, match="two classes"):
        MixUp(classes=1)
    batch = {
        "input": np.zeros((2, 3), np.int64),
        "label": np.zeros(2, np.int64),
        "sample_id": np.arange(2),
    }
    with pytest.raises(ConfigError, match="real numbers"):
        MixUp(classes=3)(batch, [np.random.default_rng(0)] * 2)


def test_shares_of_classes_are_targets() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from nnpipe.training.outputs.classification import ClassificationOutput

    logits, label = (
        torch.randn(6, 4, generator=torch.Generator().manual_seed(0)),
        torch.arange(6) % 4,
    )
    hard, soft = (ClassificationOutput(logits, t) for t in (label, torch.eye(4)[label]))
    torch.testing.assert_close(hard.losses, soft.losses)
    assert torch.equal(hard.metrics()["accuracy"].numerator, soft.metrics()["accuracy"].numerator)
    assert soft.true_classes.tolist() == label.tolist()
    with pytest.raises(ConfigError, match="focal"):
        ClassificationOutput(logits, torch.eye(4)[label], focal=2.0).compute_losses()


def order(sampler: Any, epoch: int = 0, **features: Any) -> np.ndarray:
    count = len(next(iter(features.values())))
    return sampler.order(features, count, np.random.default_rng(epoch))


def test_samples_are_drawn_as_often_as_their_weights_say() -> None:
    weights = np.array([0, 1, 2, 5, 0])
    counts = np.bincount(order(WeightedSampler(samples=80_000), weight=weights), minlength=5)
    assert counts / 80_000 == pytest.approx(weights / 8, abs=0.01)
    once, random = WeightedSampler(samples=2, replacement=False), np.random.default_rng(1)
    firsts = [once.order({"weight": weights}, 5, random) for _ in range(4000)]
    assert all(len(set(pair.tolist())) == 2 and not {0, 4} & set(pair.tolist()) for pair in firsts)
    share = np.bincount([pair[0] for pair in firsts], minlength=5) / 4000
    assert share == pytest.approx(weights / 8, abs=0.03)


def test_weights_that_say_nothing_are_refused() -> None:
    for weights in ([0, 0], [1, -1], [np.nan, 1]):
        with pytest.raises(ConfigError, match="weights in 'weight'"):
            order(WeightedSampler(), weight=np.array(weights))
    with pytest.raises(ConfigError, match="without replacement"):
        order(WeightedSampler(replacement=False), weight=np.array([1, 0]))
    with pytest.raises(ConfigError, match="no feature"):
        order(WeightedSampler(by="w"), weight=np.array([1, 0]))


def test_neighbours_are_of_like_length() -> None:
    lengths = np.random.default_rng(0).integers(1, 500, 1003)
    found = order(LengthSampler(batch=10, window=50), length=lengths)
    assert sorted(found.tolist()) == list(range(1003))
    spreads = [np.ptp(lengths[found[start : start + 10]]) for start in range(0, 1000, 10)]
    assert np.mean(spreads) < 20
    means = [lengths[found[start : start + 10]].mean() for start in range(0, 1000, 10)]
    assert np.abs(np.diff(means)).mean() > 50  # but batches are in random order


def test_texts_are_filled_up_with_a_mask() -> None:
    rows = [np.array([5, 6, 7]), np.array([8]), np.array([], np.int64)]
    sequence = ArraySequence({"tokens": rows, "label": np.arange(3)}, batch=3)
    (batch,) = sequence.collate(TextCollation(pad=9, multiple=2))
    assert batch["tokens"].tolist() == [[5, 6, 7, 9], [8, 9, 9, 9], [9, 9, 9, 9]]
    assert batch["tokens_mask"].sum(1).tolist() == batch["tokens_length"].tolist() == [3, 1, 0]
    (left,) = sequence.collate(TextCollation(length=2, left=True))
    assert left["tokens"].tolist() == [[5, 6], [0, 8], [0, 0]]
    assert left["label"].tolist() == [0, 1, 2]
    with pytest.raises(ConfigError, match="tokens are whole numbers"):
        list(ArraySequence({"tokens": [np.zeros(3)]}, batch=1).collate(TextCollation()))


def test_sounds_are_filled_up_at_their_end() -> None:
    sounds = [np.ones((2, 5), np.float32), np.ones((2, 9), np.float32)]
    (batch,) = ArraySequence({"audio": sounds}, batch=2).collate(AudioCollation(length=8, pad=-1))
    assert batch["audio"].shape == (2, 2, 8)
    assert batch["audio_length"].tolist() == [5, 8]
    assert batch["audio"][0, :, 5:].tolist() == [[-1] * 3] * 2
    with pytest.raises(ConfigError, match="only the last axis"):
        list(
            ArraySequence({"audio": [np.ones((1, 5)), np.ones((2, 5))]}, batch=2).collate(
                AudioCollation()
            )
        )
