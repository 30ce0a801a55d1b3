"""Times of the operators of a TensorFlow Lite model, from the profiler in LiteRT's library.

The interpreter of the Python package has no profiler.  The library beside it has one, behind a C
interface (``litert_compiled_model.h``, ``litert_profiler.h``), and runs the same kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, NotSupported
from nnpipe.core.native_output import capture_native_output
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.core.session import WARMUP_RUNS
from nnpipe.frameworks.recorded_calls import parse_xnnpack_name

_KNOWN = "2.3."  # versions whose structures are those below
_CPU = 1
_WRITE = 1
# types of events: an operator of the interpreter, one of a delegate (XNNPACK)
_OPERATOR, _DELEGATED = 2, 8
_INVOKE = b"Invoke", 1  # the interpreter's run
_RANK_MASK = 0x7F  # the layout's first word holds the rank and a flag


class _TensorType(ctypes.Structure):
    _fields_ = [
        ("element", ctypes.c_int),
        ("rank", ctypes.c_uint),
        ("lengths", ctypes.c_int * 8),
        ("strides", ctypes.c_uint * 8),
    ]

    def shape(self) -> tuple[int, ...]:
        return tuple(self.lengths[: self.rank & _RANK_MASK])


class _Event(ctypes.Structure):
    _fields_ = [
        ("tag", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("start_us", ctypes.c_uint64),
        ("us", ctypes.c_uint64),
        ("memory", ctypes.c_int64 * 6),
        ("number", ctypes.c_uint64),
        ("more", ctypes.c_uint64),
        ("source", ctypes.c_int),
    ]


def record(
    path: Path, content: bytes | None, arrays: Mapping[int, np.ndarray], num_threads: int, runs: int
) -> OperationTimes:
    """Return the times of operators, in a model that is loaded and released here.

    The wall time of a run is that of the interpreter inside, which is what a session runs.

    Parameters
    ----------
    path, content
        The file, and what to load instead of it, if anything.
    arrays
        The inputs by the numbers of tensors in the file.
    num_threads
        Threads that one inference may use; 0 leaves it to LiteRT.
    runs
        The number of runs.

    Raises
    ------
    NotSupported
        If the library is missing, or of another version.
    ArtifactError
        If it cannot run the model; the message names the file.
    """
    library = _load_library()
    with ExitStack() as stack:
        stack.enter_context(capture_native_output())
        data = content if content is not None else path.read_bytes()
        model = _Model(library, path, data, num_threads, stack)
        model.put(arrays)
        rows = [model.run() for _ in range(WARMUP_RUNS + runs)][WARMUP_RUNS:]
    # The clock has whole microseconds, and the shortest runs take less than one.
    walls = np.array(
        [
            1000.0 * max(1, *(us for tag, kind, _, us in row if (tag, kind) == _INVOKE))
            for row in rows
        ]
    )
    steps = [[each for each in row if each[1] in (_OPERATOR, _DELEGATED)] for row in rows]
    if len({tuple(each[:3] for each in row) for row in steps}) != 1:
        raise ArtifactError(
            f"{path}: LiteRT runs other operators each time, so their times cannot be compared"
        )
    return OperationTimes(
        tuple(
            _make_kernel_time(place, *step[:3], [1000.0 * row[place][3] for row in steps])
            for place, step in enumerate(steps[0])
        ),
        walls,
    )


def _make_kernel_time(
    place: int, tag: bytes, kind: int, number: int, times: list[float]
) -> KernelTime:
    name = tag.decode("utf-8", "replace")
    operator, computed, precision = parse_xnnpack_name(name)
    # The interpreter's own operators have their number in the file.
    sources = (f"{name}_{number}",) if kind == _OPERATOR else ()
    return KernelTime(
        f"{operator} #{place}",
        operator,
        np.array(times),
        name,
        precision,
        sources,
        computes="" if sources else computed,
    )


class _Model:
    """A loaded model with its buffers; everything is released with the stack."""

    def __init__(
        self, library: ctypes.CDLL, path: Path, data: bytes, num_threads: int, stack: ExitStack
    ) -> None:
        self._library, self._path = library, path
        self._data = ctypes.create_string_buffer(data, len(data))
        environment = ctypes.c_void_p()
        self._call("LiteRtCreateEnvironment", ctypes.c_int(0), None, ctypes.byref(environment))
        stack.callback(self._destroy, "LiteRtDestroyEnvironment", environment)
        model = self._create_handle(
            "LiteRtCreateModelFromBuffer", environment, self._data, ctypes.c_size_t(len(data))
        )
        stack.callback(self._destroy, "LiteRtDestroyModel", model)
        options = self._create_options(num_threads)
        stack.callback(self._destroy, "LiteRtDestroyOptions", options)
        self._compiled = self._create_handle(
            "LiteRtCreateCompiledModel", environment, model, options
        )
        stack.callback(self._destroy, "LiteRtDestroyCompiledModel", self._compiled)
        self._environment, self._stack = environment, stack
        self._signature = self._create_handle("LiteRtGetModelSignature", model, ctypes.c_size_t(0))
        self._profiler = self._create_handle("LiteRtCompiledModelGetProfiler", self._compiled)
        self._inputs: list[ctypes.c_void_p] = []
        self._outputs: list[ctypes.c_void_p] = []

    def put(self, arrays: Mapping[int, np.ndarray]) -> None:
        """Set the inputs of the model, and allocate buffers for its outputs."""
        tensors = self._list_tensors("Input")
        for place, (number, _) in enumerate(tensors):
            rank = arrays[number].ndim
            lengths = (ctypes.c_int * rank)(*arrays[number].shape)
            self._call(
                "LiteRtCompiledModelResizeInputTensorNonStrict",
                self._compiled,
                ctypes.c_size_t(0),
                ctypes.c_size_t(place),
                lengths,
                ctypes.c_size_t(rank),
            )
        for place, (number, described) in enumerate(tensors):
            array = np.ascontiguousarray(arrays[number])
            described.lengths[: array.ndim] = array.shape
            buffer = self._create_buffer("Input", place, described)
            there = ctypes.c_void_p()
            self._call("LiteRtLockTensorBuffer", buffer, ctypes.byref(there), ctypes.c_int(_WRITE))
            ctypes.memmove(there, array.ctypes.data, array.nbytes)
            self._call("LiteRtUnlockTensorBuffer", buffer)
            self._inputs.append(buffer)
        tensors = self._list_tensors("Output")
        # A layout is what a tensor's type holds behind the type of its elements.
        layouts = (ctypes.c_uint * (17 * len(tensors)))()
        self._call(
            "LiteRtGetCompiledModelOutputTensorLayouts",
            self._compiled,
            ctypes.c_size_t(0),
            ctypes.c_size_t(len(tensors)),
            layouts,
            ctypes.c_bool(True),
        )
        for place, (_, described) in enumerate(tensors):
            rank = layouts[17 * place] & _RANK_MASK
            described.lengths[:rank] = layouts[17 * place + 1 : 17 * place + 1 + rank]
            self._outputs.append(self._create_buffer("Output", place, described))

    def run(self) -> list[tuple[bytes, int, int, int]]:
        """Run once, and return tag, type, number and microseconds of each event."""
        self._call("LiteRtResetProfiler", self._profiler)
        self._call("LiteRtStartProfiler", self._profiler)
        sides = [(ctypes.c_void_p * len(side))(*side) for side in (self._inputs, self._outputs)]
        self._call(
            "LiteRtRunCompiledModel",
            self._compiled,
            ctypes.c_size_t(0),
            ctypes.c_size_t(len(self._inputs)),
            sides[0],
            ctypes.c_size_t(len(self._outputs)),
            sides[1],
        )
        self._call("LiteRtStopProfiler", self._profiler)
        count = ctypes.c_int()
        self._call("LiteRtGetNumProfilerEvents", self._profiler, ctypes.byref(count))
        events = (_Event * max(count.value, 1))()
        self._call("LiteRtGetProfilerEvents", self._profiler, count, events)
        return [
            (each.tag or b"", each.kind, each.number, each.us) for each in events[: count.value]
        ]

    def _create_options(self, num_threads: int) -> ctypes.c_void_p:
        options = self._create_handle("LiteRtCreateOptions")
        self._call("LiteRtSetOptionsHardwareAccelerators", options, ctypes.c_int(_CPU))
        told = {"runtime_options_string": "enable_profiling = true\n"}
        if num_threads:
            told["xnnpack"] = f"num_threads = {num_threads}\n"
        system = ctypes.CDLL(None)
        system.strdup.restype, system.strdup.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        for name, text in told.items():
            # the options release it with free()
            copied = ctypes.c_void_p(system.strdup(text.encode()))
            made = self._create_handle(
                "LiteRtCreateOpaqueOptions",
                name.encode(),
                copied,
                ctypes.cast(system.free, ctypes.c_void_p),
            )
            self._call("LiteRtAddOpaqueOptions", options, made)
        return options

    def _list_tensors(self, side: str) -> list[tuple[int, _TensorType]]:
        """Return number and type of each input or output."""
        count = ctypes.c_size_t()
        self._call(f"LiteRtGetNumSignature{side}s", self._signature, ctypes.byref(count))
        found = []
        for place in range(count.value):
            tensor = self._create_handle(
                f"LiteRtGetSignature{side}TensorByIndex", self._signature, ctypes.c_size_t(place)
            )
            number, described = ctypes.c_uint32(), _TensorType()
            self._call("LiteRtGetTensorIndex", tensor, ctypes.byref(number))
            self._call("LiteRtGetRankedTensorType", tensor, ctypes.byref(described))
            found.append((number.value, described))
        return found

    def _create_buffer(self, side: str, place: int, described: _TensorType) -> ctypes.c_void_p:
        needs = self._create_handle(
            f"LiteRtGetCompiledModel{side}BufferRequirements",
            self._compiled,
            ctypes.c_size_t(0),
            ctypes.c_size_t(place),
        )
        buffer = self._create_handle(
            "LiteRtCreateManagedTensorBufferFromRequirements",
            self._environment,
            ctypes.byref(described),
            needs,
        )
        self._stack.callback(self._destroy, "LiteRtDestroyTensorBuffer", buffer)
        return buffer

    def _create_handle(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call(name, *arguments, ctypes.byref(made))
        return made

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name)
        function.restype = ctypes.c_int
        status = function(*arguments)
        if status:
            raise ArtifactError(
                f"{self._path}: LiteRT's profiler cannot run it: {name} fails with status {status}"
            )

    def _destroy(self, name: str, handle: ctypes.c_void_p) -> None:
        function = getattr(self._library, name)
        function.restype = None
        function(handle)


def _load_library() -> ctypes.CDLL:
    from importlib.metadata import PackageNotFoundError, version

    try:
        import ai_edge_litert

        found = version("ai-edge-litert")
    except (ImportError, PackageNotFoundError):
        raise NotSupported(
            "times of operations come from LiteRT's own package: pip install ai-edge-litert"
        ) from None
    if not found.startswith(_KNOWN):
        raise NotSupported(
            f"times of operations are read from ai-edge-litert {_KNOWN}*; here is {found}"
        )
    return ctypes.CDLL(str(Path(ai_edge_litert.__path__[0], "libLiteRt.so")))
