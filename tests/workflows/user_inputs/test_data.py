"""Data as users have them in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.workflows.user_inputs.data import arrays_of

X = np.random.default_rng(1).normal(size=(10, 3)).astype(np.float32)
Y = np.arange(10) % 4


def check(data: Any, name: str = "input") -> None:
    found = arrays_of(data)
    np.testing.assert_array_equal(found.inputs[name], X)
    np.testing.assert_array_equal(found.labels, Y)
    assert found.labels.dtype == np.int64
    assert len(found) == 10


def test_arrays_and_what_gives_them() -> None:
    check((X, Y))
    check((X, Y[:, None]))
    check((X, Y.astype(np.float32)))
    check((X, np.eye(4)[Y]))
    check(({"input": X}, Y))
    check([(X[:6], Y[:6]), (X[6:], Y[6:])])
    check(list(zip(X, Y, strict=True)))
    check((x, y) for x, y in zip(X, Y, strict=True))
    check([({"input": X[:6]}, Y[:6]), ({"input": X[6:]}, Y[6:])])


def test_tensors_and_loaders_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    tensors = torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y)
    check(tensors)
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    check(torch.utils.data.DataLoader(data, batch_size=4))
    check(data)


def test_data_sets_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    data = tf.data.Dataset.from_tensor_slices((X, Y))
    check(data)
    check(data.batch(4))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (5, "data should be"),
        ("data.npz", "data should be"),
        ({"x": X}, "data should be"),
        ((X, Y[:9]), "9 labels and 10 samples of 'input'"),
        ((X, Y - 1), "labels should be class numbers from 0"),
        ((X, Y / 3), "labels should be class numbers from 0"),
        ((X, X), "labels should be one class number a sample"),
        ([X, Y, Y], "pairs of inputs and labels; it gave ndarray of shape"),
        ([], "data gave no samples"),
        ([(X, Y), (X[:, :2], Y)], "differ in shape"),
        ([({"a": X}, Y), ({"b": X}, Y)], "data gave b after a"),
        (([object()] * 10, Y), "arrays of numbers"),
        (({"a b": X}, Y), "need names"),
    ],
)
def test_anything_else_is_refused_in_one_line(data: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        arrays_of(data)
    assert "\n" not in str(caught.value)
