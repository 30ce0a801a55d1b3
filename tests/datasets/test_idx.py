"""IDX files are read exactly, and a damaged one is named."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnpipe.core.errors import DatasetError
from nnpipe.datasets.mnist import read_idx

CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}
arrays = st.sampled_from(sorted(CODES)).flatmap(
    lambda kind: hnp.arrays(
        np.dtype(kind), hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)
    )
)
slow_folder = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def idx(array: np.ndarray) -> bytes:
    code = CODES[array.dtype.str[1:]]
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@slow_folder
@given(arrays, st.booleans())
def test_what_was_written_is_read(tmp_path, array, packed):
    path = tmp_path / ("x.gz" if packed else "x")
    path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    found = read_idx(path, array.ndim)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@slow_folder
@given(arrays, st.booleans(), st.data())
def test_a_file_that_is_cut_off_or_too_long_is_named(tmp_path, array, packed, data):
    path = tmp_path / ("x.gz" if packed else "x")
    content = idx(array)
    whole = gzip.compress(content) if packed else content
    cut = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:cut])
    with pytest.raises(DatasetError, match=f"{path} is damaged"):
        read_idx(path, array.ndim)
    path.write_bytes(gzip.compress(content + b"\0") if packed else content + b"\0")
    with pytest.raises(DatasetError, match=f"{path} is damaged: it goes on after"):
        read_idx(path, array.ndim)


@slow_folder
@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_read_or_named(tmp_path, data, packed):
    path = tmp_path / ("x.gz" if packed else "x")
    path.write_bytes(data)
    message = f"{path}"
    try:
        read_idx(path, 1)
    except DatasetError as error:
        message = str(error)
    assert str(path) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\0\0\x08\x01" + struct.pack(">I", 2**32 - 1), "its header claims 4294967295 bytes"),
        (b"\0\0\x08\x01" + struct.pack(">I", 2**30) + b"x", "it ends 1073741823 bytes too early"),
        (b"\0\0\x08\x02" + bytes(8), "it has 2 axes instead of 1"),
        (b"\0\0\x07\x01" + bytes(4), "it begins with 00 00 07 01, which is no IDX file"),
        (b"PK\x03\x04" + bytes(4), "which is no IDX file"),
        (b"", "it ends 4 bytes too early"),
    ],
)
def test_a_wrong_header_is_explained(tmp_path, content, complaint):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DatasetError, match=complaint):
        read_idx(tmp_path / "x", 1)


def test_changed_bytes_in_a_packed_file_are_noticed(tmp_path):
    packed = bytearray(gzip.compress(idx(np.arange(200, dtype=np.uint8)), 0))
    packed[100] ^= 1
    (tmp_path / "x.gz").write_bytes(packed)
    with pytest.raises(DatasetError, match="is damaged: CRC check failed"):
        read_idx(tmp_path / "x.gz", 1)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"cannot read .*absent: No such file"):
        read_idx(tmp_path / "absent", 1)
