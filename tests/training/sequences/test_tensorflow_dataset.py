from __future__ import annotations

import numpy as np
import pytest
from installed import ImportedWhenUsed

from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.other_libraries import TensorFlowSequence, to_tf_dataset

tf = ImportedWhenUsed("tensorflow")


def dataset():
    values = np.arange(10, dtype=np.float32)
    return tf.data.Dataset.from_tensor_slices((values, np.array([str(v) for v in values]))).batch(4)


def test_a_data_sets_batches_are_counted():
    sequence = TensorFlowSequence(dataset())
    batches = list(sequence)
    assert len(sequence) == 3
    assert [batch["sample_id"].tolist() for batch in batches] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    assert batches[2]["target"] == ["8.0", "9.0"]
    batches[0]["input"][:] = 0  # ours to write


def test_a_state_continues():
    sequence = TensorFlowSequence(dataset())
    next(iter(sequence))
    other = TensorFlowSequence(dataset())
    other.load_state_dict(sequence.state_dict())
    assert [batch["sample_id"].tolist() for batch in other] == [[4, 5, 6, 7], [8, 9]]


def test_ids_of_its_own_are_kept():
    given = tf.data.Dataset.from_tensor_slices({"input": [1.0, 2.0], "sample_id": [7, 5]}).batch(2)
    (batch,) = TensorFlowSequence(given)
    assert batch["sample_id"].tolist() == [7, 5]
    assert batch["sample_id"].dtype == np.int64


def test_parts_without_a_name_are_refused():
    with pytest.raises(ConfigError, match="names"):
        next(iter(TensorFlowSequence(dataset(), names=("input",))))


def test_a_length_that_tensorflow_does_not_know_is_not_guessed():
    with pytest.raises(TypeError):
        len(TensorFlowSequence(dataset().filter(lambda a, b: True)))


def test_a_sequence_becomes_a_data_set():
    sequence = ArraySequence(
        {"input": np.ones((10, 3), np.float32), "text": list("abcdefghij")}, batch=4
    )
    list(sequence)
    made = to_tf_dataset(sequence)
    assert int(made.cardinality()) == 3
    for _ in range(2):
        batches = list(made.as_numpy_iterator())
        assert [batch["sample_id"].tolist() for batch in batches] == [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
            [8, 9],
        ]
        assert batches[2]["input"].shape == (2, 3)
        assert batches[2]["text"].tolist() == [b"i", b"j"]
