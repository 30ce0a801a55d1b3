"""Packed constants are unpacked to the last bit, whatever their number, type and values."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.compilers._onnx_packing import (
    DOMAIN,
    PackedConstants,
    estimate_packed_bytes,
    find_lossless_packing,
    split_bits,
)

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def unpacked(packed: PackedConstants, names: list[str]) -> list[np.ndarray]:
    from onnx import helper

    outputs = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph(packed.nodes, "g", [], outputs, packed.constants)
    imports = [helper.make_opsetid("", 13), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(
        graph, opset_imports=imports, functions=list(packed.functions(13)), ir_version=8
    )
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {}
    )


@pytest.mark.parametrize("kind", [np.int8, np.float32, np.int32])
def test_what_comes_out_went_in(kind: type) -> None:
    random = np.random.default_rng(0)
    packed, expected = PackedConstants(), {}
    for count in (1, 8, 65, 67):  # fill no byte, one, and some with a rest
        for values in (2, 3, 16, 33, 128):
            for sparse in (False, True):
                book = np.arange(values + sparse).astype(kind) - values // 2 * (not sparse)
                places = random.integers(0, len(book), (count, 3))
                places[0] = 1
                name = f"c{len(expected)}"
                packed.add(name, places, book, sparse)
                expected[name] = book[places]
    values = random.normal(size=(5, 7)).astype(kind)
    values[values < 0] = 0
    packed.add_listed("listed", values)
    expected["listed"] = values
    for found, wanted in zip(unpacked(packed, list(expected)), expected.values(), strict=True):
        assert found.dtype == kind
        np.testing.assert_array_equal(found, wanted)


def test_parts_have_as_many_bits_as_the_number() -> None:
    assert [sum(split_bits(bits)) for bits in range(1, 9)] == list(range(1, 9))


def test_zeros_are_left_out_where_that_is_smaller() -> None:
    values = np.random.default_rng(0).integers(1, 17, (100, 100)).astype(np.int8)
    dense = find_lossless_packing(values)
    assert dense is not None
    assert not dense[2]
    values[np.random.default_rng(1).random(values.shape) < 0.8] = 0
    places, book, sparse = find_lossless_packing(values) or pytest.fail("was not packed")
    assert sparse
    np.testing.assert_array_equal(book[places], values)
    assert estimate_packed_bytes(places, len(book), True) < 10_000 * (1 + 0.25 * 4) / 8 + 200


def test_many_values_are_not_packed() -> None:
    assert (
        find_lossless_packing(np.random.default_rng(0).normal(size=1000).astype(np.float32)) is None
    )
