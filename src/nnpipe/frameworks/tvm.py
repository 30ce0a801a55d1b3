"""Apache TVM: processors, and loading compiled libraries and running them by names of tensors."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError
from nnpipe.core.messages import format_one_line
from nnpipe.core.operation_times import OperationTimes
from nnpipe.core.session import WARMUP_RUNS, InferenceSession, measure_runs
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.frameworks.recorded_calls import RecordedCall, compute_call_times
from nnpipe.frameworks.runtime_failures import make_runtime_failure, suppress_output

FORMAT = "tvm"
SCHEDULES, TUNING = "schedules", "tuning"
"""Keys of the notes in a file that state whether its schedules were tuned, and the time and
trials of the search.
"""
UNTAKEN = ("string", "bfloat16")
"""Element types that cannot be put and got."""
_BIG_CORES = 1
_GO_ON = 0  # VMInstrumentReturnKind.NO_OP
_MACHINE = ("vm.", "runtime.")  # functions that allocate, check and reshape


def get_processor_features() -> tuple[str, str, list[str]]:
    """Return LLVM's names of this processor, its triple and its instruction sets."""
    import tvm

    name = str(tvm.get_global_func("target.llvm_get_system_cpu")())
    triple = str(tvm.get_global_func("target.llvm_get_system_triple")())
    target = tvm.target.Target({"kind": "llvm", "mcpu": name, "mtriple": triple})
    found = tvm.get_global_func("target.llvm_get_cpu_features")(target)
    return name, triple, sorted(map(str, found))


def get_native_target() -> Any:
    """Return TVM's target for this processor."""
    import tvm

    name, triple, _ = get_processor_features()
    found: dict[str, Any] = {"kind": "llvm", "mtriple": triple, "mcpu": name, "num-cores": 1}
    return tvm.target.Target(found)


def load_library(content: bytes, path: Path) -> Any:
    """Load a library, which executes its machine code, and return its virtual machine.

    Raises
    ------
    ArtifactError
        If TVM cannot load it; the message names the file.
    """
    with suppress_output(), tempfile.TemporaryDirectory() as folder:
        import tvm
        from tvm import relax

        # A private copy: changing a file while its code runs would crash the process.
        library = Path(folder, "model.so")
        library.write_bytes(content)
        try:
            return relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
        except Exception as error:  # its errors share no base but Exception
            cause = format_tvm_message(error).replace(str(library), "it")
            raise ArtifactError(f"{path}: TVM cannot load it: {cause}") from None


class TVMSession(InferenceSession):
    """Runs a compiled library.

    Parameters
    ----------
    native
        The library's virtual machine.
    io
        Inputs and outputs of the session.
    found
        The same tensors in the library's order.
    path
        The file, for messages.
    num_threads
        Threads that one inference may use, at most TVM's number, which is that of
        the physical cores; 0 leaves it to TVM.
    again
        Loads the library again.
    schedules
        Whether schedules were tuned, and for how long, if known.
    """

    def __init__(
        self,
        native: Any,
        io: IOSpec,
        found: IOSpec,
        path: Path,
        num_threads: int,
        again: Callable[[], Any],
        schedules: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        import tvm

        self.io = io
        self._native = native
        self._found = found
        self._again = again
        self._tensor = tvm.runtime.tensor
        self._path = path
        self._num_threads = num_threads
        self._schedules = schedules
        self._names = [spec.name for spec in found.inputs]
        places = {spec.name: place for place, spec in enumerate(found.outputs)}
        self._picks = [(spec.name, places[spec.name]) for spec in io.outputs]

    def _put(self, batch: Batch) -> None:
        _set_threads(self._num_threads)
        # TVM would add an axis to 0-dimensional arrays.
        arrays = (
            np.ascontiguousarray(batch[name]).reshape(batch[name].shape) for name in self._names
        )
        try:
            self._native.set_input("main", *map(self._tensor, arrays))  # these are copies
        except Exception as error:  # its errors share no base but Exception
            raise self._make_failure(error) from None

    def _run(self) -> None:
        try:
            self._native.invoke_stateful("main")
        except Exception as error:  # its errors share no base but Exception
            raise self._make_failure(error) from None

    def _get(self) -> dict[str, np.ndarray]:
        outputs = self._native.get_outputs("main")
        tensors = [outputs] if hasattr(outputs, "numpy") else list(outputs)
        return {name: tensors[place].numpy() for name, place in self._picks}

    def stats(self) -> Mapping[str, Any]:
        """Return the number of threads that TVM uses, and whether schedules were tuned."""
        import tvm

        told: dict[str, Any] = {"num_threads": int(tvm.runtime.num_threads())}
        return told | dict(self._schedules)

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:
        calls: list[tuple[str, int]] = []
        types: dict[str, str] = {}  # of the numbers that each function reads
        started = 0
        clock = time.perf_counter_ns

        def instrument(function: Any, name: str, before: bool, result: Any, *arguments: Any) -> int:
            # Every instruction here lengthens the run, but belongs to no step.
            nonlocal started
            if before:
                if name not in types:
                    types[name] = _find_type(arguments)
                started = clock()
            else:
                calls.append((name, clock() - started))
            return _GO_ON

        native = self._again()
        found, walls = [], []
        with TVMSession(
            native, self.io, self._found, self._path, self._num_threads, self._again
        ) as session:
            session.put(batch)
            native.set_instrument(instrument)
            for _ in range(WARMUP_RUNS + runs):
                calls.clear()
                walls.append(measure_runs(session, 1))
                found.append(_list_kernel_calls(calls, types))
        return compute_call_times(found[WARMUP_RUNS:], np.concatenate(walls[WARMUP_RUNS:]))

    def _close(self) -> None:
        del self._native, self._again

    def _make_failure(self, error: Exception) -> ArtifactError:
        return make_runtime_failure(self._path, "TVM", "run it", format_tvm_message(error))


def _find_type(arguments: Sequence[Any]) -> str:
    """Return the type of the first tensor among a function's arguments; empty if there is none."""
    types = (
        str(each.dtype) for each in arguments if hasattr(each, "dtype") and hasattr(each, "shape")
    )
    return next(types, "")


def _list_kernel_calls(
    calls: Sequence[tuple[str, int]], types: Mapping[str, str]
) -> list[RecordedCall]:
    """Return the calls of kernels, and those of the virtual machine itself as one."""
    inner = sum(ns for name, ns in calls if name.startswith(_MACHINE))
    rest = [RecordedCall("virtual machine", "virtual machine", inner)] if inner else []
    kernels = (each for each in calls if not each[0].startswith(_MACHINE))
    return [*(RecordedCall(name, name, ns, precision=types[name]) for name, ns in kernels), *rest]


def _set_threads(number: int) -> None:
    """Set the number of threads in the calling thread's pool, and undo TVM's binding of the
    caller to one core.
    """
    if not number:
        return
    import tvm

    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    tvm.get_global_func("runtime.config_threadpool")(_BIG_CORES, number)
    if before is not None:
        os.sched_setaffinity(0, before)


def format_tvm_message(error: object) -> str:
    """Return TVM's message without its stack traces."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [
        line for line in lines if line and not line.startswith(("File ", "Traceback", "[", "^"))
    ]
    return format_one_line(" ".join(told or lines) or type(error).__name__, 400)
