"""IREE: running compiled modules by name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.messages import format_one_line
from nnpipe.core.operation_times import OperationTimes
from nnpipe.core.processor import read_instruction_sets
from nnpipe.core.session import WARMUP_RUNS, InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.formats.sealed import SealedFile
from nnpipe.frameworks.recorded_calls import RecordedCall, compute_call_times
from nnpipe.frameworks.runtime_failures import make_runtime_failure

# A device with threads that is destroyed immediately after it has computed sometimes waits for them
# forever (IREE 3.13, once in a few hundred times).  Of 3000 devices destroyed after 5 ms, none did.
_REST_SECONDS = 0.05
FORMAT = "iree"
FUNCTION = "function"
"""Under this name a file notes which function to call."""
# What Linux lists beside these says nothing about instructions that a compiler would choose.
_INSTRUCTIONS = re.compile(
    r"avx.*|amx.*|s?sse.*|fma|f16c|bmi[12]|vaes|vpclmulqdq|gfni|asimd.*|sve.*|i8mm|bf16|fphp",
    re.ASCII,
)
_ELEMENT_TYPES = {
    "bool": "BOOL_8",
    **{f"float{bits}": f"FLOAT_{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"SINT_{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UINT_{bits}" for bits in (8, 16, 32, 64)},
}


def list_instruction_sets() -> list[str]:
    """List the instruction sets of the processor here; nothing where the system does not tell."""
    return sorted(name for name in read_instruction_sets() if _INSTRUCTIONS.fullmatch(name))


class IREESession(InferenceSession):
    """Runs a compiled module on the processor.

    Parameters
    ----------
    file
        The module; machine code from it runs.
    io
        What the session takes and gives.
    path
        The file, for messages.
    num_threads
        Threads that one inference may use: with 1 the caller's own does the
        work, with 0 IREE takes one for each physical core.

    Raises
    ------
    ArtifactError
        If IREE cannot load it; the message names the file.
    """

    def __init__(self, file: SealedFile, io: IOSpec, path: Path, num_threads: int) -> None:
        import iree.runtime as runtime

        self.io = io
        self._runtime = runtime
        self._file = file
        self._path = path
        self._num_threads = num_threads
        self._names = [
            (spec.name, _get_element_type(runtime, spec.dtype)) for spec in file.io.inputs
        ]
        places = {spec.name: place for place, spec in enumerate(file.io.outputs)}
        self._picks = [(spec, places[spec.name]) for spec in io.outputs]
        self._device = _create_device(num_threads)
        instance = runtime.VmInstance()
        try:
            module = runtime.VmModule.copy_buffer(instance, file.content)
            self._context = runtime.VmContext(
                instance, [runtime.create_hal_module(instance, self._device), module]
            )
            self._function = module.lookup_function(str(file.notes.get(FUNCTION)))
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(
                f"{path}: IREE cannot load it: {format_iree_message(error)}"
            ) from None
        if self._function is None:
            raise ArtifactError(
                f"{path}: it has no function {file.notes.get(FUNCTION)!r}; compile it anew"
            )
        self._inputs: list[Any] = []
        self._outputs: Any = None

    def _put(self, batch: Batch) -> None:
        # These are copies.
        self._inputs = [
            self._device.allocator.allocate_buffer_copy(
                memory_type=self._runtime.MemoryType.DEVICE_LOCAL,
                allowed_usage=self._runtime.BufferUsage.DEFAULT | self._runtime.BufferUsage.MAPPING,
                device=self._device,
                buffer=np.ascontiguousarray(batch[name]).reshape(batch[name].shape),
                element_type=kind,
            )
            for name, kind in self._names
        ]

    def _run(self) -> None:
        arguments = self._runtime.VmVariantList(len(self._inputs))
        for view in self._inputs:
            arguments.push_ref(view)
        self._outputs = self._runtime.VmVariantList(len(self._picks))
        try:
            self._context.invoke(self._function, arguments, self._outputs)
        except Exception as error:  # its errors share no base but Exception
            raise make_runtime_failure(
                self._path, "IREE", "run it", format_iree_message(error)
            ) from None

    def _get(self) -> dict[str, np.ndarray]:
        found = {}
        for spec, place in self._picks:
            view = self._outputs.get_as_object(place, self._runtime.HalBufferView)
            array = self._runtime.DeviceArray(
                self._device, view, implicit_host_transfer=True
            ).to_host()
            found[spec.name] = self._convert_array(array, spec)
        return found

    def _convert_array(self, array: np.ndarray, spec: TensorSpec) -> np.ndarray:
        """Copy an array, which points into memory of the device, and give back the sign that
        IREE does not keep.
        """
        want = np.dtype(spec.dtype)
        if array.dtype == want or want == np.bool_:
            return np.array(array, want, copy=True)
        if array.dtype.kind in "iu" and want.kind in "iu" and array.dtype.itemsize == want.itemsize:
            return np.array(array, copy=True).view(want)
        raise ArtifactError(
            f"{self._path}: it gives {array.dtype} for {spec.name!r}, which should be {spec.dtype}"
        )

    def stats(self) -> Mapping[str, Any]:
        """Return how many threads were asked for, and by what they are run."""
        return {"num_threads": self._num_threads, "driver": _choose_driver(self._num_threads)}

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:

        arrays = [
            np.ascontiguousarray(batch[name]).reshape(batch[name].shape) for name, _ in self._names
        ]
        function, driver = str(self._file.notes.get(FUNCTION)), _choose_driver(self._num_threads)
        return record(
            self._file.content,
            function,
            arrays,
            driver,
            self._num_threads,
            WARMUP_RUNS,
            runs,
            self._path,
        )

    def _close(self) -> None:
        self._inputs, self._outputs = [], None
        del self._function, self._context
        if self._num_threads != 1:
            time.sleep(_REST_SECONDS)
        del self._device


def _get_element_type(runtime: Any, dtype: str) -> Any:
    return getattr(runtime.HalElementType, _ELEMENT_TYPES[dtype])


def is_supported_type(dtype: str) -> bool:
    """Return whether tensors of that element type can be put and got."""
    return dtype in _ELEMENT_TYPES


def _choose_driver(num_threads: int) -> str:
    return "local-sync" if num_threads == 1 else "local-task"


def _create_device(num_threads: int) -> Any:
    """Return a new device with this number of threads."""
    from iree.runtime import _binding
    from iree.runtime.flags import parse_flags

    # The number is an option of the process, which is looked at when a driver is made.
    parse_flags(f"--task_topology_group_count={num_threads}")
    try:
        return _binding.create_hal_driver(_choose_driver(num_threads)).create_default_device()
    finally:
        parse_flags("--task_topology_group_count=0")


def format_iree_message(error: object) -> str:
    """Return IREE's message without the stack of its virtual machine."""
    text = str(error).partition("; stack")[0].partition("stack trace:")[0]
    return format_one_line(text or type(error).__name__, 400)


_SECONDS = 600.0
# a dispatch's name ends with the types of its numbers
_TYPE = re.compile(r"_((?:bf|f|i)\d+)(?:x[bfi]+\d+)*$")
_TYPES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
    "i8": "int8",
    "i32": "int32",
}
_EVENT, _DISPATCH, _WHOLE = "host_execution_event", "dispatch", "execute"


def record(
    content: bytes,
    function: str,
    inputs: Sequence[np.ndarray],
    driver: str,
    num_threads: int,
    warmup: int,
    runs: int,
    path: Path,
) -> OperationTimes:
    """Return the times of a module's dispatches; a run lasts from its first event to the first of
    the next run.

    Parameters
    ----------
    content, function
        The module and the function to call.
    inputs
        The function's arguments, in order.
    driver, num_threads
        The driver, and the threads that it may use; 0 leaves their number to IREE.
    warmup, runs
        The numbers of runs before those that count, and of those that count.
    path
        The file, for messages.

    Raises
    ------
    ArtifactError
        If IREE's tools cannot run it; the message names the file.
    """
    with create_temporary_folder() as folder:
        module, bundle = folder / "module.vmfb", folder / "times.ireeprof"
        module.write_bytes(content)
        given = []
        for place, array in enumerate(inputs):
            file = Path(folder, f"input{place}.npy")
            np.save(file, array)
            given.append(f"--input=@{file}")
        count = warmup + runs + 1  # the last run has no successor that tells its end
        threads = [] if driver == "local-sync" else [f"--task_topology_group_count={num_threads}"]
        _run_tool(
            "iree_benchmark_module",
            f"--module={module}",
            f"--device={driver}",
            *threads,
            f"--function={function}",
            *given,
            "--device_profiling_mode=host-execution",
            f"--device_profiling_output={bundle}",
            f"--benchmark_min_time={count}x",
            "--benchmark_format=json",
            path=path,
        )
        text = _run_tool(
            "iree_profile",
            "export",
            "--format=ireeperf-jsonl",
            "--output=-",
            str(bundle),
            path=path,
        )
    events = [
        event
        for line in text.splitlines()
        if (event := json.loads(line)).get("record_type") == _EVENT
    ]
    events = [event for event in events if event["op"] != _WHOLE]
    if not events or len(events) % count:
        raise ArtifactError(
            f"{path}: IREE records other dispatches in each run, so their times cannot be compared"
        )
    size = len(events) // count
    each = [events[place * size : (place + 1) * size] for place in range(warmup, count)]
    starts = np.array([run[0]["start_host_time_ns"] for run in each], np.float64)
    return compute_call_times(
        [[_call(event) for event in run] for run in each[:-1]], np.diff(starts)
    )


def _call(event: Mapping[str, Any]) -> RecordedCall:
    taken = float(event["end_host_time_ns"]) - float(event["start_host_time_ns"])
    if event["op"] != _DISPATCH:
        return RecordedCall("memory", str(event["op"]), taken)
    name = str(event["key"]).partition("_dispatch_")[2] or str(event["key"])
    first = _TYPE.search(name)
    return RecordedCall(
        str(event["key"]), name, taken, precision=_TYPES.get(first[1], "") if first else ""
    )


def _run_tool(name: str, *arguments: str, path: Path) -> str:
    command = [sys.executable, "-m", f"iree._runtime.scripts.{name}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ArtifactError(f"{path}: IREE's profiler did not finish in {_SECONDS:.0f} s") from None
    if done.returncode:
        told = format_one_line(done.stderr.decode("utf-8", "replace"), 400)
        raise ArtifactError(f"{path}: IREE's profiler cannot run it: {told}")
    return done.stdout.decode("utf-8", "replace")
