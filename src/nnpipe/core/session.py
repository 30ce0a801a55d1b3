"""The interface of sessions: a loaded model that can be run, in this process or elsewhere."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.closing import Closing
from nnpipe.core.errors import ConfigError, NNPipeError, NotSupported
from nnpipe.core.operation_times import Nanoseconds, OperationTimes
from nnpipe.core.tensors import Batch, IOSpec


class InferenceSession(Closing):
    """A model that is loaded and ready to run: in a framework, a runtime, or on a target.

    Callers use ``put``, ``run``, ``get`` and ``infer`` in a ``with`` block; these
    check specifications and the order of calls.  Authors write ``_put``, ``_run``,
    ``_get`` and, if something must be released, ``_close``.  An author may also write
    ``_infer`` to do all three in one step, ``_stream`` to overlap batches, or
    ``_profile`` to take the times of single operations.  A session whose model keeps
    something from one run to the next sets ``keeps_state`` and writes ``_reset``.

    Each batch starts afresh, so that its outputs do not depend on what ran before;
    :meth:`start_stream` is for batches that follow from one another.

    Only one thread may use a session at a time.  A batch given to ``put`` must not
    be changed before ``run`` has returned.  Arrays from ``get`` belong to the
    caller: the session never writes to them again.

    Attributes
    ----------
    io
        The inputs and outputs of the model; the author's constructor sets them.
    varying
        Outputs that differ from run to run although the inputs are the same, such as times.
    keeps_state
        Whether the model keeps something from one run to the next, as recurrent layers may; known
        after the first run at the latest.

    Examples
    --------
    >>> import numpy as np
    >>> from nnpipe import IOSpec, TensorSpec
    >>> class Doubling(InferenceSession):
    ...     io = IOSpec((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
    ...     def _put(self, batch):
    ...         self._x = batch["x"]
    ...     def _run(self):
    ...         self._y = 2 * self._x
    ...     def _get(self):
    ...         return {"y": self._y}
    >>> with Doubling() as session:
    ...     session.infer({"x": np.ones((1, 2), np.float32)})["y"]
    array([[2., 2.]], dtype=float32)
    """

    io: IOSpec
    varying: ClassVar[frozenset[str]] = frozenset()
    keeps_state: bool = False

    _state: str = "empty"
    _streaming: bool = False

    def put(self, batch: Batch) -> None:
        """Set the inputs of the next run.

        Raises
        ------
        SpecMismatch
            If names, shapes or element types differ from ``io.inputs``.
        """
        self._check_open()
        self.io.check_inputs(batch)
        self._state = "empty"  # if _put fails, the inputs of an earlier batch must not be used
        self._put_next(batch)
        self._state = "loaded"

    def prepare_run(self) -> None:
        """Forget what the last run has left, if the same batch is to run again; :meth:`run` does
        this itself.

        Callers that time runs of a batch call it before each, so that the time of forgetting does
        not count.
        """
        if self._state == "done":
            self._state = "loaded"
            if self.keeps_state and not self._streaming:
                self._reset()

    def run(self) -> None:
        """Compute the outputs; return only when they are complete."""
        self._check_open()
        if self._state == "empty":
            raise NNPipeError("nothing to run: put a batch first")
        self.prepare_run()
        self._run()
        self._state = "done"

    def get(self) -> dict[str, np.ndarray]:
        """Return the outputs of the last run, by name."""
        self._check_open()
        if self._state != "done":
            raise NNPipeError("no outputs yet: put a batch and run first")
        return self._get()

    def infer(self, batch: Batch) -> dict[str, np.ndarray]:
        """Put a batch, run it, and return its outputs by name."""
        self._check_open()
        self.io.check_inputs(batch)
        self._state = "empty"
        outputs = self._infer_next(batch)
        self._state = "done"
        return outputs

    def start_stream(self) -> None:
        """Start afresh, and let what the model keeps pass from each batch to the next from now on.

        Raises
        ------
        NotSupported
            If the session keeps nothing: then the outputs would be those of independent samples.
        """
        self._check_open()
        if not self.keeps_state:
            raise NotSupported(
                f"a stream needs a model that keeps something from one sample to the next, and "
                f"{type(self).__name__} "
                "keeps nothing: the model has no state, its conversion has dropped it, or it runs "
                "on a target, which starts each sample afresh"
            )
        self._streaming = True
        self._reset()

    def stream(self, batches: Iterable[Batch]) -> Iterator[dict[str, np.ndarray]]:
        """Run batches in order, overlapping them if the session can, and yield the outputs of each.

        A batch must not be changed before its outputs have been returned.  No
        other method of the session may be called in the meantime.

        Raises
        ------
        SpecMismatch
            If a batch does not fit the model's inputs.
        """
        self._check_open()
        self._state = "empty"
        yield from self._stream(map(self._check_batch, batches))
        self._state = "done"

    def get_comparison_inputs(self, batch: Batch, outputs: Batch) -> Batch:
        """Return the inputs on which another model is compared with this one; by default the same.

        Parameters
        ----------
        batch, outputs
            The inputs of a run, and its outputs.
        """
        return batch

    def get_comparison_outputs(self, outputs: Batch) -> Batch:
        """Return the outputs by which models are compared, or what follows from them; by default
        all of them.

        Times say nothing about whether two models compute the same, nor do choices after which all
        that follows is another matter.

        Parameters
        ----------
        outputs
            The outputs of a run of this model, or of another.
        """
        return outputs

    def durations(self, outputs: Batch) -> Mapping[str, int]:
        """Return parts of a run's time, such as that to the first token, in nanoseconds by name;
        none by default.

        Comparisons of candidates compare each of them by itself.

        Parameters
        ----------
        outputs
            The outputs of the run.
        """
        return {}

    def stats(self) -> Mapping[str, Any]:
        """Return values that only the session knows (a target's clock, memory arenas); none by
        default.
        """
        return {}

    def split(self, start_ns: np.ndarray, end_ns: np.ndarray) -> Mapping[str, np.ndarray]:
        """Divide the time of each run between these ``perf_counter_ns`` timestamps into parts; none
        by default.

        A session whose model runs elsewhere returns columns in nanoseconds that add up to
        ``end_ns - start_ns``: the times of this machine, the connection and the target.
        """
        return {}

    def resources(self) -> Mapping[str, np.ndarray]:
        """Return the use of resources on another machine that runs the model; nothing by default.

        The columns have equal lengths: ``time_ns``, on this machine's ``perf_counter_ns``, and the
        observed values.
        """
        return {}

    @classmethod
    def offers(cls, method: Literal["profile"]) -> bool:
        """Return whether this class implements an optional method.

        Examples
        --------
        >>> InferenceSession.offers("profile")
        False
        """
        return getattr(cls, f"_{method}") is not getattr(InferenceSession, f"_{method}")

    def profile(self, batch: Batch, runs: int = 30) -> OperationTimes:
        """Run a batch repeatedly and return the time of each operation that the runtime carries
        out.

        Operations are recorded in a session of their own, which is opened for this and closed
        afterwards: this session never records, so its own times stay what they are.  It runs the
        batch as often, half of it before and half of it after, which shows what the recording
        costs.

        Parameters
        ----------
        batch
            The inputs.
        runs
            The number of runs, 2 or more.

        Raises
        ------
        NotSupported
            If the runtime gives no times of operations.
        SpecMismatch
            If the batch does not fit the model's inputs.
        """
        check_call(InferenceSession.profile, locals())
        self._check_open()
        if not self.offers("profile"):
            raise NotSupported(f"{type(self).__name__} gives no times of operations")
        if runs < 2:
            raise ConfigError("runs should be 2 or more")
        self.put(batch)
        measure_runs(self, WARMUP_RUNS)
        before = measure_runs(self, runs // 2)
        found = self._profile(batch, runs)
        self.put(batch)
        measure_runs(self, 1)
        return replace(
            found, plain_ns=np.concatenate([before, measure_runs(self, runs - runs // 2)])
        )

    def close(self) -> None:
        """Release what the session holds; closing twice does no harm."""
        if self._state != "closed":
            self._state = "closed"
            self._close()

    def _check_batch(self, batch: Batch) -> Batch:
        self._check_open()
        self.io.check_inputs(batch)
        return batch

    def _check_open(self) -> None:
        if self._state == "closed":
            raise NNPipeError("the session is closed")

    def _put_next(self, batch: Batch) -> None:
        """Start afresh unless batches are a stream, and set the inputs, which have been checked."""
        if self.keeps_state and not self._streaming:
            self._reset()
        self._put(batch)

    def _infer_next(self, batch: Batch) -> dict[str, np.ndarray]:
        """Start afresh unless batches are a stream, and put, run and get a batch that has been
        checked.
        """
        if self.keeps_state and not self._streaming:
            self._reset()
        return self._infer(batch)

    def _get_infer_function(self) -> Callable[[Batch], dict[str, np.ndarray]]:
        """Return what infers batches that have been checked; a model that keeps nothing pays for
        no question.
        """
        return self._infer_next if self.keeps_state else self._infer

    @abstractmethod
    def _put(self, batch: Batch) -> None:
        """Set the inputs; they have been checked."""

    @abstractmethod
    def _run(self) -> None:
        """Compute the outputs, and return only when they are complete.

        Only this method is timed.
        """

    @abstractmethod
    def _get(self) -> dict[str, np.ndarray]:
        """Return the outputs by name, as arrays that the caller may keep."""

    def _infer(self, batch: Batch) -> dict[str, np.ndarray]:
        """Put, run and get a batch that has been checked."""
        self._put(batch)
        self._run()
        return self._get()

    def _stream(self, batches: Iterable[Batch]) -> Iterator[dict[str, np.ndarray]]:
        """Put, run and get each of the batches, which have been checked."""
        return map(self._get_infer_function(), batches)

    def _reset(self) -> None:
        """Forget what earlier runs have left; called only where ``keeps_state`` is set, and
        outside of timed runs.
        """
        raise NotImplementedError

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:
        """Return the times of operations of this many runs of a checked batch, in a session opened
        for this alone.

        :data:`WARMUP_RUNS` runs come before; :func:`measure_runs` takes the wall times.
        """
        raise NotImplementedError

    def _close(self) -> None:
        """Release the resources of the constructor."""


WARMUP_RUNS = 3
"""Runs before those of a profile: the first ones allocate memory and fill caches."""


def measure_runs(session: InferenceSession, runs: int) -> Nanoseconds:
    """Run the batch that was put this often, and return the wall time of each run in
    nanoseconds, ``(runs,)``.
    """
    found = np.zeros(runs)
    for number in range(runs):
        session.prepare_run()
        start = time.perf_counter_ns()
        session.run()
        found[number] = time.perf_counter_ns() - start
    return found
