"""Files as scripts read and write them, alike in both frameworks; what is none is told in one
line.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from nnpipe.codegen.weights import encode_safetensors

NEEDS = {"pytorch": "torch", "keras": "keras"}


@pytest.fixture(params=NEEDS)
def parts(request, helpers):
    """The functions of one framework that read files."""
    pytest.importorskip(NEEDS[request.param], reason=f"{NEEDS[request.param]} is not installed")
    return helpers(
        request.param, "read_array_data", "read_table_data", "read_arrays", "read_weights"
    )


@pytest.mark.parametrize("kind", ["?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
def test_arrays_of_every_kind_and_order_are_read(parts, kind, tmp_path):
    path, random = tmp_path / "rows.npz", np.random.default_rng(0)
    rows = random.integers(0, 2, (4, 3, 2)).astype(kind)
    np.savez_compressed(path, rows=rows, turned=rows.T, none=rows[:0], one=rows[0, 0, 0])
    wanted = {"rows": rows, "turned": rows.T, "none": rows[:0], "one": rows[0, 0, 0]}
    for name, found in parts["read_arrays"](path, tuple(wanted)).items():
        np.testing.assert_array_equal(np.asarray(found), wanted[name])
        assert np.asarray(found).dtype == kind


def test_what_is_not_asked_for_need_not_be_numbers(parts, tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(
        path, x=np.eye(4), y=np.arange(4), names=np.array(["a", "b"]), any=np.array([{}, None])
    )
    data = parts["read_array_data"](path, ("x",), "y", None, 1.0, 0.5, 0)
    for inputs, targets in data.values():
        np.testing.assert_array_equal(np.asarray(inputs[0]), np.eye(4)[np.asarray(targets)])


CONTENTS = {
    "empty": b"",
    "text": b"no file\n",
    "array": b"\x93NUMPY\x01\x00",
    "cut": b"PK\x03\x04junk",
    "none": None,
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("reader", ["arrays", "weights"])
def test_what_is_no_such_file_is_told_in_one_line(parts, reader, content, tmp_path):
    path = tmp_path / "rows.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        parts["read_arrays"](path, ("x",)) if reader == "arrays" else parts["read_weights"](path)
    assert str(ended.value).startswith(f"{path}: ")
    assert "\n" not in str(ended.value)


def test_an_array_that_is_missing_is_told_with_those_that_are_there(parts, tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.eye(2), kind=np.arange(2))
    with pytest.raises(SystemExit, match=r"no array 'y'; there are x, kind$"):
        parts["read_array_data"](tmp_path / "rows.npz", ("x",), "y", None, 1.0, 0.5, 0)


@pytest.mark.parametrize(
    ("samples", "targets", "told"),
    [
        (30, 20, "there are 20 targets for 30 samples"),
        (2, 2, "0 of 2 samples are for testing"),
        (0, 0, "0 of 0 samples are for testing"),
    ],
)
def test_samples_that_cannot_be_split_are_told_in_one_line(parts, samples, targets, told, tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.zeros((samples, 4)), y=np.zeros(targets, int))
    with pytest.raises(SystemExit, match=told):
        parts["read_array_data"](tmp_path / "rows.npz", ("x",), "y", None, 1.0, 0.2, 0)


def test_a_split_takes_each_sample_once_and_is_the_same_for_a_seed(parts, tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.arange(50.0), y=np.arange(50))
    splits = [
        parts["read_array_data"](tmp_path / "rows.npz", ("x",), "y", None, 2.0, 0.2, s)
        for s in (3, 3, 4)
    ]
    taken = [
        {name: np.asarray(part[1]).tolist() for name, part in split.items()} for split in splits
    ]
    assert taken[0] == taken[1] != taken[2]
    assert [len(taken[0][name]) for name in ("train", "test")] == [40, 10]
    assert sorted(taken[0]["train"] + taken[0]["test"]) == list(range(50))
    for inputs, targets in splits[0].values():
        np.testing.assert_array_equal(np.asarray(inputs[0]), 2 * np.asarray(targets, np.float32))


def test_arrays_of_objects_are_never_unpickled(parts, tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.array([print], dtype=object))
    with pytest.raises(SystemExit):
        parts["read_arrays"](tmp_path / "rows.npz", ("x",))


def test_weights_are_those_that_were_stored(parts, tmp_path):
    path = tmp_path / "weights.safetensors"
    stored = {
        "a/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.float32(4).reshape(()),
        "c": np.ones(0),
    }
    path.write_bytes(encode_safetensors(stored))
    for name, value in parts["read_weights"](path).items():
        np.testing.assert_array_equal(np.asarray(value), stored[name])
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with pytest.raises(SystemExit, match="is cut off"):
        parts["read_weights"](path)
    path.write_bytes(whole.replace(b'"F32"', b'"F16"'))
    with pytest.raises(SystemExit, match="has an unsupported type"):
        parts["read_weights"](path)
    path.write_bytes(struct.pack("<Q", 1 << 62) + whole[8:])
    with pytest.raises(SystemExit, match=r"not a \.safetensors file"):
        parts["read_weights"](path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n\n3,x\n", "could not convert string to float: 'x'"),
        ("a,b\n1,2\n3\n", "some rows do not have as many cells as the header"),
        ("a,c\n1,2\n", "no column 'b'"),
        ("a,b\n", "no column 'b', or no rows below the header"),
        ("", "no column 'b'"),
        (None, "No such file"),
    ],
)
def test_what_is_wrong_with_a_table_is_told_in_one_line(parts, text, told, tmp_path):
    path = tmp_path / "rows.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        parts["read_table_data"](path, "b", ",", True, None, 1.0, 0.5, 0)
    assert str(ended.value).startswith(f"{path}: ")
    assert told in str(ended.value)
