from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import NotSupported, SpecMismatch
from nnpipe.core.tensors import TensorSpec
from nnpipe.protocols.conversation.payloads import TensorLayout

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
SHAPES = st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=3).map(tuple)
SPECS = st.lists(st.tuples(SHAPES, st.sampled_from(DTYPES)), max_size=4).map(
    lambda found: tuple(TensorSpec(f"t{n}", shape, dtype) for n, (shape, dtype) in enumerate(found))
)


def random_tensors(specs: tuple[TensorSpec, ...], seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    found = {}
    for spec in specs:
        shape = [int(random.integers(0, 5)) if length is None else length for length in spec.shape]
        size = math.prod(shape)
        if spec.dtype == "bool":
            found[spec.name] = random.integers(0, 2, shape).astype(bool)
        else:
            found[spec.name] = random.integers(-100, 100, size).astype(spec.dtype).reshape(shape)
    return found


@given(SPECS, st.integers(0, 1 << 20))
def test_tensors_survive(specs: tuple[TensorSpec, ...], seed: int) -> None:
    layout = TensorLayout(specs)
    batch = random_tensors(specs, seed)
    parts = layout.pack(batch)
    payload = b"".join(map(bytes, parts))
    assert layout.size in (None, len(payload))
    ahead = bytes([seed % 251]) * (seed % 5 * 8)
    found = layout.unpack(memoryview(bytearray(ahead + payload)), len(ahead))
    assert found.keys() == batch.keys()
    for name, array in batch.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    for wrong in (payload + b"\0", payload[:-1]):
        if wrong != payload:
            with pytest.raises(SpecMismatch):
                layout.unpack(ahead + wrong, len(ahead))


@given(SPECS, st.binary(max_size=100))
def test_a_payload_from_a_stranger_is_read_or_refused(
    specs: tuple[TensorSpec, ...], payload: bytes
) -> None:
    layout = TensorLayout(specs)
    try:
        found = layout.unpack(payload)
    except SpecMismatch:
        return
    assert sum(array.nbytes for array in found.values()) <= len(payload)


def test_a_single_input_is_sent_as_it_lies_in_memory() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    (part,) = TensorLayout((TensorSpec("x", (2, 3, 4), "float32"),)).pack({"x": array})
    assert np.shares_memory(np.frombuffer(part, np.uint8), array)


def test_what_is_received_shares_the_memory_it_was_received_in() -> None:
    memory = np.zeros(48, np.uint8)
    specs = (TensorSpec("x", (5,), "int32"), TensorSpec("y", (3,), "float64"))
    found = TensorLayout(specs).unpack(memory.data)
    assert all(np.shares_memory(array, memory) for array in found.values())


def test_the_layout_is_what_its_description_says() -> None:
    specs = (
        TensorSpec("a", (None, 3), "uint8"),
        TensorSpec("b", (None,), "int16"),
        TensorSpec("c", (1,), "uint8"),
    )
    batch = {
        "a": np.array([[1, 2, 3]], np.uint8),
        "b": np.array([-2, 3], np.int16),
        "c": np.array([9], np.uint8),
    }
    payload = b"".join(map(bytes, TensorLayout(specs).pack(batch)))
    lengths = b"\1\0\0\0" + b"\2\0\0\0"
    assert payload == lengths + b"\1\2\3" + bytes(5) + b"\xfe\xff\3\0" + bytes(4) + b"\x09"


def test_any_order_in_memory_and_any_byte_order_is_taken() -> None:
    layout = TensorLayout((TensorSpec("x", (2, 3), "int32"),))
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    plain = b"".join(map(bytes, layout.pack({"x": array})))
    for other in (
        np.asfortranarray(array),
        array.astype(">i4"),
        np.repeat(array, 2, axis=1)[:, ::2],
    ):
        assert b"".join(map(bytes, layout.pack({"x": other}))) == plain


def test_strings_do_not_travel() -> None:
    with pytest.raises(NotSupported, match="'x'"):
        TensorLayout((TensorSpec("x", (1,), "string"),))


def test_bfloat16_travels_where_numpy_knows_it() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    layout = TensorLayout((TensorSpec("x", (3,), "bfloat16"),))
    array = np.array([1, 2, 3], ml_dtypes.bfloat16)
    found = layout.unpack(b"".join(map(bytes, layout.pack({"x": array}))))
    np.testing.assert_array_equal(found["x"], array)
