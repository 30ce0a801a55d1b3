"""Inference sessions of PyTorch functions, such as modules and exported programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.core.operation_times import Nanoseconds, OperationTimes
from nnpipe.core.session import WARMUP_RUNS, InferenceSession, measure_runs
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.frameworks.recorded_calls import RecordedCall, compute_call_times
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.torch_state import TorchState

_BFLOAT16 = "bfloat16"
_MARK = "nnpipe run"
_TYPES = {  # C++'s names
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
    "bool": "bool",
    "c10::qint8": "int8",
    "c10::quint8": "uint8",
    "c10::qint32": "int32",
}


class TorchSession(InferenceSession):
    """Runs a function of tensors in inference mode.

    Parameters
    ----------
    io
        Inputs and outputs of the function.
    call
        Takes tensors in the order of ``io.inputs`` and returns a tuple of
        tensors in the order of ``io.outputs``.
    device
        ``"cpu"`` or ``"cuda"``; the function's weights must be there already.
    num_threads
        Threads that one run may use; 0 leaves it to PyTorch.  The number applies to
        the whole process from the first ``put`` until ``close``, which restores
        the previous one.
    state
        The values that the function may change from one call to the next; ``None`` if it changes
        none.
    """

    def __init__(
        self,
        io: IOSpec,
        call: Callable[..., tuple[Any, ...]],
        device: str,
        num_threads: int,
        state: TorchState | None = None,
    ) -> None:
        import torch

        self.io = io
        self._torch = torch
        self._call = call
        self._held = state
        self._device = device
        self._num_threads = num_threads
        self._threads_before = torch.get_num_threads()
        self._inputs: tuple[Any, ...] = ()
        self._outputs: tuple[Any, ...] = ()
        # Known after the first run, which uses copies.
        self._changes_inputs: bool | None = None
        self._leans_on_inputs = False

    def _put(self, batch: Batch) -> None:
        self._inputs = tuple(to_tensor(batch[spec.name], self._device) for spec in self.io.inputs)
        self._outputs = ()
        self._set_threads()
        self._synchronise()

    def _run(self) -> None:
        self._set_threads()
        if self._changes_inputs is None:
            self._run_on_copies()
        else:
            with self._torch.inference_mode():
                self._outputs = self._call(
                    *(self._copy_inputs() if self._changes_inputs else self._inputs)
                )
                if self._leans_on_inputs:
                    self._outputs = tuple(output.clone() for output in self._outputs)
        self._synchronise()

    def _run_on_copies(self) -> None:
        """Run on copies, and find whether the function changes its inputs or returns views of them.

        Inputs belong to the caller, who may change them before the outputs are
        got; in both cases, every run has to copy.
        """
        inputs = self._copy_inputs()
        versions = [tensor._version for tensor in inputs]
        with self._torch.inference_mode():
            self._outputs = self._call(*inputs)
        self._changes_inputs = [tensor._version for tensor in inputs] != versions
        memory = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        if self._held is not None:
            # they may be the state itself
            self._outputs = tuple(output.clone() for output in self._outputs)
            self.keeps_state = self._held.find(self._call_again)
        self._leans_on_inputs = any(
            output.untyped_storage().data_ptr() in memory for output in self._outputs
        )

    def _call_again(self) -> None:
        with self._torch.inference_mode():
            self._call(*self._copy_inputs())

    def _reset(self) -> None:
        if self._held is not None:
            self._held.restore()

    def _copy_inputs(self) -> tuple[Any, ...]:
        return tuple(tensor.clone() for tensor in self._inputs)

    def _get(self) -> dict[str, np.ndarray]:
        arrays = map(to_array, self._outputs)
        return {
            spec.name: array.copy() for spec, array in zip(self.io.outputs, arrays, strict=True)
        }

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:
        with TorchSession(
            self.io, self._call, self._device, self._num_threads, self._held
        ) as session:
            session.put(batch)
            measure_runs(session, WARMUP_RUNS)
            # Recording the arguments takes time, so it has a run of its own.
            (typed,), _ = _record_operators(session, 1, types=True)
            recorded, walls = _record_operators(session, runs)
        names = [call.name for call in typed]
        if all([call.name for call in calls] == names for calls in recorded):
            recorded = [
                [
                    replace(call, precision=each.precision)
                    for call, each in zip(calls, typed, strict=True)
                ]
                for calls in recorded
            ]
        return compute_call_times(recorded, walls)

    def _close(self) -> None:
        if self._num_threads:
            self._torch.set_num_threads(self._threads_before)
        if self.keeps_state:
            self._reset()
        self._inputs = self._outputs = ()
        del self._call, self._held

    def _set_threads(self) -> None:
        # Another session may have changed the number; setting an equal number would slow the next
        # run down.
        if self._num_threads and self._torch.get_num_threads() != self._num_threads:
            self._torch.set_num_threads(self._num_threads)

    def _synchronise(self) -> None:
        if self._device != "cpu":
            self._torch.cuda.synchronize()


def _record_operators(
    session: TorchSession, runs: int, types: bool = False
) -> tuple[list[list[RecordedCall]], Nanoseconds]:
    """Return the operators of each run, with the types of their numbers if wanted, and the wall
    times, ``(runs,)``.
    """
    from torch.profiler import ProfilerActivity, profile, record_function

    walls = []
    with (
        suppress_output(),
        profile(
            activities=[ProfilerActivity.CPU], record_shapes=types, acc_events=True
        ) as profiler,
    ):
        for _ in range(runs):
            with record_function(_MARK):
                walls.append(measure_runs(session, 1))
    marks = [event for event in profiler.events() if event.name == _MARK]
    marks.sort(key=lambda event: event.time_range.start)
    calls = [
        [
            RecordedCall(
                event.name,
                event.name,
                1000.0 * event.time_range.elapsed_us(),
                precision=_find_type(event),
            )
            for event in _iter_operators(mark)
        ]
        for mark in marks
    ]
    return calls, np.concatenate(walls)


def _find_type(event: Any) -> str:
    """Return the type of an operator's first tensor; empty if it has none, or its arguments were
    not recorded.
    """
    found = (_TYPES[each] for each in getattr(event, "input_dtypes", None) or () if each in _TYPES)
    return next(found, "")


def _iter_operators(event: Any) -> Iterator[Any]:
    """Yield the outermost operators inside an event, in order."""
    for inner in sorted(event.cpu_children, key=lambda each: each.time_range.start):
        if "::" in inner.name or not inner.cpu_children:
            yield inner
        else:
            yield from _iter_operators(inner)


def to_tensor(array: np.ndarray, device: str) -> Any:
    """Return an array as a tensor, without a copy if possible."""
    import torch

    array = np.asarray(array)  # arithmetic on 0-dimensional arrays gives scalars
    if not array.flags.c_contiguous or not array.flags.writeable:
        # PyTorch has no read-only tensors, and would warn.
        array = array.copy(order="C")
    if array.dtype.name == _BFLOAT16:  # from the package ml_dtypes; PyTorch does not accept it
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    return tensor if device == "cpu" else tensor.to(device)


def to_array(tensor: Any) -> np.ndarray:
    """Return a tensor as an array, without a copy if possible."""
    import torch

    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            raise MissingDependency(
                "bfloat16 outputs need ml_dtypes, which is not installed: pip install ml_dtypes"
            ) from None
        return np.asarray(tensor.contiguous().view(torch.int16).numpy().view(bfloat16))
    return np.asarray(tensor.numpy())


@contextmanager
def set_torch_threads(number: int) -> Iterator[None]:
    """Set the number of PyTorch's threads inside the block; 0 leaves it unchanged."""
    import torch

    before = torch.get_num_threads()
    if number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_device(device: str) -> None:
    """Raise :class:`ConfigError` unless PyTorch can compute on this device."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        build = (
            ""
            if torch.version.cuda
            else f", and PyTorch {torch.__version__} here is built without CUDA"
        )
        raise ConfigError(f"PyTorch finds no usable NVIDIA GPU{build}; use --device cpu")
