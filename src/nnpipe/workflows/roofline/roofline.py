"""Measuring what this machine can do at most, and keeping it."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.analysis.roofline import Ceiling, Ceilings, MemoryLevel, find_bandwidth_drops
from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.discoverable import is_installed
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import write_text
from nnpipe.core.processor import read_instruction_sets
from nnpipe.core.runtime import Runtime
from nnpipe.measuring.host import get_machine_folder, read_host_facts
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.roofline.roofline_result import RooflineResult

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


def iter_products(threads: int, needs: set[str]) -> Iterator[Product]:
    """Yield the products that can be computed here; ``needs`` are the types of numbers that are
    asked for.

    ONNX Runtime multiplies bytes as fast as the processor can only if the first matrix has no signs
    (u8s8), as its quantised models have.
    """
    random = np.random.default_rng(0)
    for side in _SIDES:
        work = 2.0 * side**3
        first = random.random((side, side), np.float32)
        if "float32" in needs:
            if threads == 1 or not is_installed("threadpoolctl"):
                yield Product(
                    "float32", f"numpy {side} x {side}", work, _make_numpy_product(first, threads)
                )
            if is_installed("onnxruntime") and is_installed("onnx"):
                yield Product(
                    "float32",
                    f"onnxruntime MatMul {side} x {side}",
                    work,
                    _make_onnx_product("MatMul", first, threads),
                )
        if "int8" in needs and is_installed("onnxruntime") and is_installed("onnx"):
            bytes_ = random.integers(0, 128, (side, side)).astype(np.uint8)
            yield Product(
                "int8",
                f"onnxruntime MatMulInteger u8s8 {side} x {side}",
                work,
                _make_onnx_product("MatMulInteger", bytes_, threads),
            )
        for precision in sorted(needs & {"float32", "bfloat16"}):
            if is_installed("torch"):
                yield Product(
                    precision,
                    f"torch {precision} {side} x {side}",
                    work,
                    _make_torch_product(first, precision, threads),
                )


def measure_rate(
    product: Product, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the operations a second of the fastest call within some time; at least three calls
    are made.
    """
    product.call()
    best, end, calls = 0.0, clock() + seconds, 0
    while calls < 3 or clock() < end:
        start = clock()
        product.call()
        best = max(best, product.operations / max(clock() - start, 1e-9))
        calls += 1
    return best


def _make_numpy_product(first: np.ndarray, threads: int) -> Callable[[], object]:
    out = np.empty_like(first)

    def call() -> None:
        with _set_blas_threads(threads):
            np.matmul(first, first, out=out)

    return call


@contextlib.contextmanager
def _set_blas_threads(threads: int) -> Iterator[None]:
    if not is_installed("threadpoolctl"):
        yield
        return
    import threadpoolctl

    with threadpoolctl.threadpool_limits(threads):
        yield


def _make_onnx_product(kind: str, first: np.ndarray, threads: int) -> Callable[[], object]:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    side = len(first)
    whole = kind == "MatMulInteger"
    given, weights, result = (
        (TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32)
        if whole
        else (TensorProto.FLOAT,) * 3
    )
    second = first.astype(np.int8) if whole else first
    graph = helper.make_graph(
        [helper.make_node(kind, ["a", "b"], ["y"])],
        "product",
        [helper.make_tensor_value_info("a", given, (side, side))],
        [helper.make_tensor_value_info("y", result, (side, side))],
        [helper.make_tensor("b", weights, second.shape, second.tobytes(), raw=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = min(model.ir_version, 9)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"a": first})


def _make_torch_product(first: np.ndarray, precision: str, threads: int) -> Callable[[], object]:
    import torch

    torch.set_num_threads(threads)
    matrix = torch.from_numpy(first).to(getattr(torch, precision))
    out = torch.empty_like(matrix)

    def call() -> Any:
        with torch.no_grad():
            return torch.matmul(matrix, matrix, out=out)

    return call


# The bandwidth of memory by the amount of data, read without a call for each array.
#
# Data that fit into the smallest cache are read in less time than a call takes.  So one call reads
# the same data many times: the maximum along each row of a view whose rows all lie at the same
# place.

SIZES = tuple(round(2 ** (exponent / 2)) << 12 for exponent in range(2, 33))
"""Bytes, from 8 KiB to 256 MiB, by steps of the square root of two."""
_CALL_BYTES = 32 << 20


def measure_bandwidth(
    size: int, threads: int, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the bytes a second that are read from ``size`` bytes, in the fastest call within some
    time.

    Each thread has its own data, of an equal part of ``size``, and reads them at the same time as
    the others.
    """
    part = max(size // threads // 4, 64)
    rows = max(1, _CALL_BYTES // (4 * part))
    views = [
        np.lib.stride_tricks.as_strided(
            np.ones(part, np.int32), (rows, part), (0, 4), writeable=False
        )
        for _ in range(threads)
    ]
    best, end, calls = 0.0, clock() + seconds, 0
    while calls < 3 or clock() < end:
        start = clock()
        _read(views)
        best = max(best, threads * rows * part * 4 / max(clock() - start, 1e-9))
        calls += 1
    return best


def _read(views: list[np.ndarray]) -> None:
    others = [
        threading.Thread(target=np.maximum.reduce, args=(view,), kwargs={"axis": 1})
        for view in views[1:]
    ]
    for each in others:
        each.start()
    np.maximum.reduce(views[0], axis=1)
    for each in others:
        each.join()


PRECISIONS = ("float32", "bfloat16", "int8")
REPEATS = 3
_FILE_BYTES = 1 << 20
_BFLOAT16 = frozenset({"amx_bf16", "avx512_bf16", "bf16"})


def roofline(
    *, threads: int = 1, seconds: float = 0.1, folder: str | Path | None = None
) -> RooflineResult:
    """Measure the ceilings of this machine: its greatest rates of arithmetic, and the bandwidth of
    its memory.

    Arithmetic is measured by products of matrices in the libraries that are installed here (numpy,
    ONNX Runtime, PyTorch); the fastest of them is the ceiling.  Memory is read in amounts from 8
    KiB to 256 MiB, and its levels begin where the bandwidth falls.  All is measured three times, in
    a process of its own.  A ceiling whose repeats differ by more than 10 % is not known.

    Parameters
    ----------
    threads
        The threads that work.
    seconds
        The time of each product of matrices in each repeat; an amount of memory takes a fifth of
        it.
    folder
        The folder to keep the ceilings in (:func:`~nnpipe.measuring.host.get_machine_folder`); None
        to keep nothing.

    Returns
    -------
    RooflineResult
        The ceilings; ``show()`` prints them.

    Raises
    ------
    ConfigError
        If there are fewer processors than threads, or the file cannot be written.

    Examples
    --------
    >>> found = roofline(seconds=0.001)
    >>> found.ceilings.memory[-1].up_to_bytes is None  # the main memory
    True
    """
    check_call(roofline, locals())
    check_range("roofline: threads", threads, 1)
    there = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if threads > there:
        raise ConfigError(
            f"roofline: {threads} threads need as many processors, and {there} can be used here"
        )
    if not 0.001 <= seconds <= 60:
        raise ConfigError(f"roofline: {seconds} s are not between 0.001 s and a minute")
    with Worker(f"{__name__}:measure_here", shown=True) as worker:
        found = worker.attempt(
            "measuring the roofline", {"threads": threads, "seconds": seconds}, 0.0
        )
    ceilings = Ceilings.from_json(found)
    if folder is not None:
        write_text(
            get_ceilings_file(Path(folder), threads),
            json.dumps(ceilings.to_json(), indent=1) + "\n",
        )
    return RooflineResult(ceilings)


def get_ceilings_file(folder: Path, threads: int) -> Path:
    """Return the file for the ceilings of some threads in the folder of a machine."""
    return folder / f"ceilings-{threads}-thread{'s' if threads > 1 else ''}.json"


def find_kept_ceilings(runtime: Runtime) -> Ceilings | None:
    """Return the ceilings that are kept of this machine for the threads of a runtime; ``None`` if
    there are none.

    Raises
    ------
    ArtifactError
        If the file is damaged.
    """
    kept = get_ceilings_file(
        get_machine_folder(Path.home()), getattr(runtime, "num_threads", 1) or 1
    )
    return read_ceilings(kept) if kept.exists() else None


def read_ceilings(path: str | Path) -> Ceilings:
    """Read the ceilings that :func:`roofline` has kept.

    Raises
    ------
    ArtifactError
        If the file is missing, or holds something else; the message names it.

    Examples
    --------
    >>> roofline(seconds=0.001).save_json("ceilings.json")
    >>> "float32" in read_ceilings("ceilings.json").compute
    True
    """
    check_call(read_ceilings, locals())
    path = Path(path)
    try:
        if path.stat().st_size > _FILE_BYTES:
            raise ArtifactError("too large for a file of ceilings")
        return Ceilings.from_json(parse_json(path.read_text("utf-8")))
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError, ArtifactError) as error:
        raise ArtifactError(f"{path}: {error}") from None


# -- in the subprocess -----------------------------------------------------------------------------


def measure_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ceilings of a request as JSON, measured in this process."""
    threads, seconds = int(request["threads"]), float(request["seconds"])
    reasons: dict[str, str] = {}
    needs = set(PRECISIONS)
    if not read_instruction_sets() & _BFLOAT16:
        needs.discard("bfloat16")
        reasons["bfloat16"] = "the processor has no instructions for it"
    tried = list(iter_products(threads, needs))
    without = needs - {each.precision for each in tried}
    reasons |= dict.fromkeys(
        without, "no installed library multiplies in it: pip install 'nnpipe[onnx]'"
    )
    compute: dict[Product, list[float]] = {each: [] for each in tried}
    memory: list[list[float]] = []
    for _ in range(REPEATS):
        for each in tried:
            compute[each].append(measure_rate(each, seconds))
        memory.append([measure_bandwidth(size, threads, seconds / 5) for size in SIZES])
    return Ceilings(
        str(read_host_facts()["cpu"]["model"]),
        threads,
        {name: _select_fastest(name, compute) for name in PRECISIONS if name not in reasons},
        find_memory_levels(SIZES, memory),
        reasons,
        datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    ).to_json()


def find_memory_levels(
    sizes: Sequence[int], repeats: Sequence[Sequence[float]]
) -> tuple[MemoryLevel, ...]:
    """Return the levels of memory from the bandwidth at each size, in each repeat.

    Every level but the first begins with a fall, so its bandwidth is that of the greater half of
    its sizes.
    """
    usual = [sorted(column)[len(column) // 2] for column in zip(*repeats, strict=True)]
    starts = [0, *find_bandwidth_drops(sizes, usual), len(sizes)]
    found = []
    for number, (begin, end) in enumerate(pairwise(starts)):
        settled = begin if number == 0 else begin + (end - begin) // 2
        rates = tuple(max(each[settled:end]) for each in repeats)
        last = end == len(sizes)
        found.append(
            MemoryLevel(
                None if last else sizes[end - 1], Ceiling(rates, f"maximum of {sizes[end - 1]:,} B")
            )
        )
    return tuple(found)


def _select_fastest(precision: str, rates: Mapping[Product, Sequence[float]]) -> Ceiling:
    own = {product: each for product, each in rates.items() if product.precision == precision}
    best = max(own, key=lambda product: max(own[product]))
    return Ceiling(tuple(max(column) for column in zip(*own.values(), strict=True)), best.how)
