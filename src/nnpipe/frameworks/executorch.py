"""ExecuTorch: loading programs and running them by names of tensors, with its shared thread
pool.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.errors import ArtifactError, ConfigError, SpecMismatch
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.core.session import WARMUP_RUNS, InferenceSession, measure_runs
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.sealed import SealedFile
from nnpipe.frameworks.recorded_calls import classify_function, parse_xnnpack_name
from nnpipe.frameworks.runtime_failures import REDUCE, make_runtime_failure, suppress_output
from nnpipe.frameworks.torch_session import to_array, to_tensor

FORMAT = "executorch"
# executorch/runtime/core/error.h
_CODES = {
    0x1: "an internal fault, as of XNNPACK for what it was not made for",
    0x2: "a call in the wrong order",
    0x10: "something that it does not support",
    0x11: "something that it does not have",
    0x12: "an argument that a kernel or XNNPACK does not take",
    0x13: "a type of numbers that a kernel does not take",
    0x14: "operators without a kernel here",
    0x20: "a part of the program that is missing",
    0x21: "memory that cannot be had",
    0x23: "a damaged program",
    0x30: "a part for another version of XNNPACK",
    0x31: "memory for XNNPACK that cannot be had",
}
MOST = "max_batch"
"""Key of the note in a file that states the greatest batch size."""
STATE = "keeps_state"
"""Key of the note in a file that states that the program keeps values from one run to the next."""


def load_method(content: bytes, path: Path, recording: bool = False) -> Any:
    """Load the method ``forward`` of a program; ``content`` must outlive it.

    If it is ``recording``, the program keeps the times of its events.

    Raises
    ------
    ArtifactError
        If ExecuTorch rejects the program; the message names the file.
    """
    with suppress_output():
        from executorch.extension.pybindings import portable_lib
        from executorch.runtime import Verification

        try:
            program = portable_lib._load_program_from_buffer(
                content,
                enable_etdump=recording,
                program_verification=Verification.InternalConsistency,
            )
            return program.load_method("forward"), program
        except Exception as error:  # its errors share no base but Exception
            raise make_runtime_failure(
                path, "ExecuTorch", "load it", error, _find_advice(error)
            ) from None


class ExecuTorchSession(InferenceSession):
    """Runs a program on ExecuTorch.

    ExecuTorch has one thread pool per process, and recreating it would break
    loaded programs: sessions that are open together must use the same number
    of threads.

    Parameters
    ----------
    file
        The program.
    io
        Inputs and outputs of the session.
    path
        The file, for messages.
    num_threads
        Threads that one inference may use; 0 leaves it to ExecuTorch.
    recording
        Whether to keep the times of operators.
    """

    _open: ClassVar[weakref.WeakSet[ExecuTorchSession]] = weakref.WeakSet()

    def __init__(
        self, file: SealedFile, io: IOSpec, path: Path, num_threads: int, recording: bool = False
    ) -> None:
        self.io = io
        self.keeps_state = bool(file.notes.get(STATE))
        self._file = file
        self._path = path
        self._content = file.content  # the program refers to its memory
        self._most = file.notes.get(MOST)
        self._names = [spec.name for spec in file.io.inputs]
        self._picks = [
            (spec.name, place)
            for spec in io.outputs
            for place, s in enumerate(file.io.outputs)
            if s.name == spec.name
        ]
        self._inputs: list[Any] = []
        self._threads = self._set_threads(num_threads)
        self._method, self._program = load_method(self._content, path, recording)
        meta = self._method.method_meta()
        self._planned = {
            name: meta.input_tensor_meta(place).sizes() for place, name in enumerate(self._names)
        }
        ExecuTorchSession._open.add(self)

    def _set_threads(self, wanted: int) -> int:
        with suppress_output():
            from executorch.extension.pybindings import portable_lib

            now: int = portable_lib._threadpool_get_thread_count()
            if not wanted or wanted == now:
                return now
            if not ExecuTorchSession._open:
                portable_lib._unsafe_reset_threadpool(wanted)
                return wanted
        raise ConfigError(
            f"a session of ExecuTorch with {now} threads is open, and all of a process share one "
            f"pool: close it before asking for {wanted}"
        )

    def _check_lengths(self, batch: Batch) -> None:
        """Check that free axes are not longer than what memory was planned for."""
        for spec in self.io.inputs:
            given = batch[spec.name].shape
            for axis, length in enumerate(spec.shape):
                if length is not None:
                    continue
                if axis == 0 and self._most is not None and given[0] > self._most:
                    raise SpecMismatch(
                        f"tensor {spec.name!r}: {given[0]} samples, but {self._path} was compiled "
                        f"for at most {self._most} in a call; compile it with --max-batch "
                        f"{given[0]}"
                    )
                if axis and given[axis] > self._planned[spec.name][axis]:
                    raise SpecMismatch(
                        f"tensor {spec.name!r}: axis {axis} has length {given[axis]}, but "
                        f"{self._path} was compiled for at most {self._planned[spec.name][axis]}; "
                        f"compile it with --max-length {given[axis]}"
                    )

    def _put(self, batch: Batch) -> None:
        self._check_lengths(batch)
        self._inputs = [to_tensor(batch[name], "cpu") for name in self._names]
        try:
            with suppress_output():
                self._method.set_inputs(self._inputs)
        except Exception as error:  # its errors share no base but Exception
            raise self._make_failure(error) from None

    def _run(self) -> None:
        try:
            self._method.execute()
        except Exception as error:  # its errors share no base but Exception
            raise self._make_failure(error) from None

    def _reset(self) -> None:
        with suppress_output():
            # with the first values of what it keeps
            self._method = self._program.load_method("forward")
            if self._inputs:
                self._method.set_inputs(self._inputs)

    def _get(self) -> dict[str, np.ndarray]:
        tensors = self._method.get_outputs(True)  # copies
        return {name: to_array(tensors[place]) for name, place in self._picks}

    def stats(self) -> Mapping[str, Any]:
        """Return the number of threads in the pool."""
        return {"num_threads": self._threads}

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:

        with ExecuTorchSession(
            self._file, self.io, self._path, self._threads, recording=True
        ) as session:
            session.put(batch)
            walls = measure_runs(session, WARMUP_RUNS + runs)[WARMUP_RUNS:]
            return OperationTimes(read_recorded_operators(session._program, runs), walls)

    def _close(self) -> None:
        ExecuTorchSession._open.discard(self)
        self._inputs = []
        del self._method, self._program, self._content, self._file

    def _make_failure(self, error: Exception) -> ArtifactError:
        return make_runtime_failure(self._path, "ExecuTorch", "run it", error, _find_advice(error))


def _find_advice(error: Exception) -> str:
    """Return what the code in ExecuTorch's message means, and what to try."""
    code = re.search(r"error:? 0x:?([0-9a-f]+)", str(error), re.IGNORECASE)
    meaning = _CODES.get(int(code[1], 16)) if code else None
    if meaning is None:
        return REDUCE
    return f"that is {meaning}; compiled with --backend portable or --precision fp32, it may run"


_RUNS, _OWN = "Execute", "native_call_"
_NANOSECONDS = 1e6  # in a millisecond, the unit of the dump


def read_recorded_operators(program: Any, runs: int) -> tuple[KernelTime, ...]:
    """Return the times of a program's operators in its last runs: those of delegates, and
    ExecuTorch's own.

    Parameters
    ----------
    program
        A program that was loaded with its dump enabled, and that has run.
    runs
        The number of runs that count; those before were to warm it up.
    """
    with suppress_output(), create_temporary_folder() as folder:
        from executorch.devtools import Inspector

        dump = str(folder / "events.etdp")
        program.write_etdump_result_to_file(dump, "")
        blocks = Inspector(etdump_path=dump).event_blocks
    events = [event for block in blocks if block.name == _RUNS for event in block.events]
    found: list[KernelTime] = []
    for event in events:
        own = event.name.startswith(_OWN)
        if (own or event.is_delegated_op) and event.perf_data is not None:
            times = np.maximum(
                np.array(event.perf_data.raw[-runs:], np.float64) * _NANOSECONDS, 0.0
            )
            found.append(_make_kernel_time(event.name, own, len(found), times))
    return tuple(found)


def _make_kernel_time(name: str, own: bool, place: int, times: np.ndarray) -> KernelTime:
    if own:
        operator = name.removeprefix(_OWN)
        return KernelTime(
            f"{operator} #{place}", operator, times, operator, computes=classify_function(operator)
        )
    kernel = name.rpartition(" #")[0] or name
    operator, computed, precision = parse_xnnpack_name(kernel)
    return KernelTime(f"{operator} #{place}", operator, times, kernel, precision, computes=computed)
