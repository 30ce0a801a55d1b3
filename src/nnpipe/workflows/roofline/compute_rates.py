"""The greatest rates of arithmetic that installed libraries reach, by type of number."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.discoverable import is_installed

_SIDES = (512, 1024)
"""Products of square matrices; smaller ones measure the call, larger ones the memory."""


@dataclass(frozen=True)
class Product:
    """A product of matrices by a library.

    Parameters
    ----------
    precision
        The type of its numbers.
    how
        Its name in results.
    operations
        The operations of one call.
    call
        Computes it once.
    """

    precision: str
    how: str
    operations: float
    call: Callable[[], object]


def products(threads: int, needs: set[str]) -> Iterator[Product]:
    """Yield the products that can be computed here; ``needs`` are the types of numbers that are asked for.

    ONNX Runtime multiplies bytes as fast as the processor can only if the first matrix has no signs (u8s8), as its
    quantised models have.
    """
    random = np.random.default_rng(0)
    for side in _SIDES:
        work = 2.0 * side**3
        first = random.random((side, side), np.float32)
        if "float32" in needs:
            if threads == 1 or not is_installed("threadpoolctl"):
                yield Product("float32", f"numpy {side} x {side}", work, _numpy(first, threads))
            if is_installed("onnxruntime") and is_installed("onnx"):
                yield Product("float32", f"onnxruntime MatMul {side} x {side}", work, _onnx("MatMul", first, threads))
        if "int8" in needs and is_installed("onnxruntime") and is_installed("onnx"):
            bytes_ = random.integers(0, 128, (side, side)).astype(np.uint8)
            yield Product("int8", f"onnxruntime MatMulInteger u8s8 {side} x {side}", work,
                          _onnx("MatMulInteger", bytes_, threads))  # fmt: skip
        for precision in sorted(needs & {"float32", "bfloat16"}):
            if is_installed("torch"):
                yield Product(precision, f"torch {precision} {side} x {side}", work, _torch(first, precision, threads))


def greatest_rate(product: Product, seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the operations a second of the fastest call within some time; at least three calls are made."""
    product.call()
    best, end, calls = 0.0, clock() + seconds, 0
    while calls < 3 or clock() < end:
        start = clock()
        product.call()
        best = max(best, product.operations / max(clock() - start, 1e-9))
        calls += 1
    return best


def _numpy(first: np.ndarray, threads: int) -> Callable[[], object]:
    out = np.empty_like(first)

    def call() -> None:
        with _blas_threads(threads):
            np.matmul(first, first, out=out)

    return call


@contextlib.contextmanager
def _blas_threads(threads: int) -> Iterator[None]:
    if not is_installed("threadpoolctl"):
        yield
        return
    import threadpoolctl

    with threadpoolctl.threadpool_limits(threads):
        yield


def _onnx(kind: str, first: np.ndarray, threads: int) -> Callable[[], object]:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    side = len(first)
    whole = kind == "MatMulInteger"
    given, weights, result = (
        (TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32) if whole else (TensorProto.FLOAT,) * 3
    )
    second = first.astype(np.int8) if whole else first
    graph = helper.make_graph(
        [helper.make_node(kind, ["a", "b"], ["y"])], "product",
        [helper.make_tensor_value_info("a", given, (side, side))],
        [helper.make_tensor_value_info("y", result, (side, side))],
        [helper.make_tensor("b", weights, second.shape, second.tobytes(), raw=True)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = min(model.ir_version, 9)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"a": first})


def _torch(first: np.ndarray, precision: str, threads: int) -> Callable[[], object]:
    import torch

    torch.set_num_threads(threads)
    matrix = torch.from_numpy(first).to(getattr(torch, precision))
    out = torch.empty_like(matrix)

    def call() -> Any:
        with torch.no_grad():
            return torch.matmul(matrix, matrix, out=out)

    return call
