"""Data as users have them in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.workflows.user_inputs.data import convert_to_arrays

X = np.random.default_rng(1).normal(size=(10, 3)).astype(np.float32)
Y = np.arange(10) % 4


def check(data: Any, name: str = "input") -> None:
    found = convert_to_arrays(data)
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


def test_labels_may_be_texts_or_numbers_to_predict() -> None:
    found = convert_to_arrays((X, np.array(["dog", "cat", "ant", "cow"])[Y]))
    assert found.class_names == ("ant", "cat", "cow", "dog")
    np.testing.assert_array_equal(found.labels, np.array([3, 1, 0, 2])[Y])
    found = convert_to_arrays((X, (X.sum(axis=1, keepdims=True))))
    assert not found.are_classes
    np.testing.assert_array_equal(found.labels, X.sum(axis=1, keepdims=True))


def test_dicts_with_labels_as_hugging_face_gives_them() -> None:
    check({"pixels": X, "labels": Y}, "pixels")
    check([{"pixels": X[:6], "labels": Y[:6]}, {"pixels": X[6:], "labels": Y[6:]}], "pixels")
    check([{"pixels": x, "label": int(y)} for x, y in zip(X, Y, strict=True)], "pixels")


def test_several_inputs_may_come_without_names() -> None:
    torch = pytest.importorskip("torch")
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    loader = torch.utils.data.DataLoader([((x, 2 * x), y) for x, y in pairs], batch_size=4)
    for data in (
        ((X, 2 * X), Y),
        [((X[:6], 2 * X[:6]), Y[:6]), ((X[6:], 2 * X[6:]), Y[6:])],
        loader,
    ):
        found = convert_to_arrays(data)
        np.testing.assert_array_equal(found.inputs["0"], X)
        np.testing.assert_array_equal(found.inputs["1"], 2 * X)
        np.testing.assert_array_equal(found.labels, Y)
    check((list(X), Y))  # a list of samples


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
        ({"x": X}, "data by name should be inputs, and labels under one of"),
        ((X, Y[:9]), "9 labels and 10 samples of 'input'"),
        ((X, Y - 1), "labels should be class numbers from 0"),
        ((X, np.where(Y, 0.5, np.nan)), "should be finite; that of sample 0 is not"),
        ((X, np.ones((10, 2))), "labels should be one class number a sample"),
        ((X, np.array(["cat", ""] * 5)), "name a class for each sample; sample 1 has none"),
        ([X, Y, Y], "pairs of inputs and labels; it gave ndarray of shape"),
        ([(X, X, Y)], r"it gave tuple; several inputs are a tuple or a dict: \(\(a, b\), labels\)"),
        (
            {"x": X, "label": Y, "labels": Y},
            "labels under one of labels, label, target, targets; it has x, label",
        ),
        ([], "data gave no samples"),
        ([(X, Y), (X[:, :2], Y)], "differ in shape"),
        ([({"a": X}, Y), ({"b": X}, Y)], "data gave b after a"),
        (([object()] * 10, Y), "arrays of numbers"),
        (({"a b": X}, Y), "need names"),
    ],
)
def test_anything_else_is_refused_in_one_line(data: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        convert_to_arrays(data)
    assert "\n" not in str(caught.value)
