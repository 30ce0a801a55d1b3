from __future__ import annotations

import base64
import json
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnpipe.core.errors import ArtifactError
from nnpipe.measuring.result_json import LIMIT, pack, unpack

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
GOOD = pack(np.arange(100, dtype=np.int64))


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype = np.dtype(draw(st.sampled_from(DTYPES))).newbyteorder(draw(st.sampled_from("<>")))
    array = draw(
        hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9))
    )
    return array.T if draw(st.booleans()) else array


@given(arrays())
def test_what_is_packed_comes_back_to_the_last_bit(array: np.ndarray) -> None:
    again = unpack(json.loads(json.dumps(pack(array))))
    assert again.dtype == array.dtype.newbyteorder("=")
    assert again.shape == array.shape
    # bytes, because nan equals nothing
    assert again.tobytes() == array.astype(again.dtype).tobytes()


@given(
    hnp.arrays(
        np.int64, st.integers(0, 50), elements=st.sampled_from([-(2**63), 2**63 - 1, 0, -1, 1])
    )
)
def test_differences_beyond_the_range_come_back_too(array: np.ndarray) -> None:
    np.testing.assert_array_equal(unpack(pack(array)), array)


def test_an_unpacked_array_is_the_callers_to_change() -> None:
    for array in (np.zeros(3), np.arange(3000), np.zeros((0, 2), np.uint8), np.ones(2, bool)):
        unpack(pack(array))[...] = 1


def test_times_are_stored_as_differences_and_noise_is_not() -> None:
    random = np.random.default_rng(0)
    assert pack(np.cumsum(random.integers(900, 1100, 1000)))["delta"] is True
    assert pack(random.integers(0, 2**62, 1000))["delta"] is False


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([1j]), np.array([None]), np.array([1], "M8[ns]")]
)
def test_other_elements_are_refused(array: np.ndarray) -> None:
    with pytest.raises(TypeError, match="not stored"):
        pack(array)


def test_what_is_too_large_to_read_is_not_written() -> None:
    with pytest.raises(ArtifactError, match="too large"):
        pack(np.broadcast_to(np.int8(0), (LIMIT + 1,)))


def _data(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "int128"},
        {"dtype": "object"},
        {"dtype": "<i8"},
        {"dtype": 7},
        {"dtype": ["int64"]},
        {"shape": [99]},
        {"shape": [101]},
        {"shape": [-100]},
        {"shape": [10, -10]},
        {"shape": [100.0]},
        {"shape": [True]},
        {"shape": "100"},
        {"shape": {"0": 100}},
        {"shape": None},
        {"shape": [0, 2**70]},
        {"shape": [10**4000] * 1000},
        {"shape": [1] * 33},
        {"shape": [2**20, 2**20]},
        {"delta": 1},
        {"delta": None},
        {"dtype": "float64", "delta": True},
        {"dtype": "int8", "delta": True},
        {"data": ""},
        {"data": None},
        {"data": 5},
        {"data": "é"},
        {"data": "not base64!"},
        {"data": _data(b"")},
        {"data": GOOD["data"][:-8]},
        {"data": _data(bytes(799))},
        {"data": _data(bytes(801))},
        {"data": base64.b64encode(zlib.compress(bytes(800)) + b"more").decode()},
        {"dtype": "bool", "shape": [2], "delta": False, "data": _data(b"\x00\x02")},
    ],
)
def test_a_damaged_object_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match="damaged") as caught:
        unpack(GOOD | change)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", list(GOOD))
def test_a_missing_part_is_named(name: str) -> None:
    with pytest.raises(ArtifactError, match=name):
        unpack({key: value for key, value in GOOD.items() if key != name})


def test_a_limit_of_the_readers_own_is_kept() -> None:
    assert len(unpack(GOOD, limit=800)) == 100
    with pytest.raises(ArtifactError, match="800 bytes are too many"):
        unpack(GOOD, limit=799)


def test_a_bomb_is_not_unfolded() -> None:
    bomb = GOOD | {"data": _data(bytes(200_000_000))}
    tracemalloc.start()
    try:
        with pytest.raises(ArtifactError, match="stated length"):
            unpack(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
