"""The narrow waist: a loaded model, wherever it lives."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from nnpipe.core.closing import Closing
from nnpipe.core.errors import NNPipeError
from nnpipe.core.tensors import Batch, IOSpec


class InferenceSession(Closing):
    """A model that is loaded and ready to run: in a framework, a runtime, or on a target.

    Callers use ``put``, ``run``, ``get``, ``infer`` in a ``with`` block; these
    check specifications and order.  Authors write ``_put``, ``_run``, ``_get``
    and, where something must be released, ``_close``; who can do several of
    these at one go, or overlap batches, also writes ``_infer`` or ``_stream``.

    One thread uses a session at a time.  A batch given to ``put`` must not be
    changed before ``run`` has returned.  Arrays from ``get`` belong to the
    caller: the session never writes into them again.

    Attributes
    ----------
    io
        What the session takes and gives; the author's constructor sets it.

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

    _state: str = "empty"

    def put(self, batch: Batch) -> None:
        """Set the inputs of the next run.

        Raises
        ------
        SpecMismatch
            If names, shapes or element types differ from ``io.inputs``.
        """
        self._check_open()
        self.io.check_inputs(batch)
        self._state = "empty"  # should _put fail, nothing of an earlier batch is taken for this one's
        self._put(batch)
        self._state = "loaded"

    def run(self) -> None:
        """Compute the outputs; returns only when they exist."""
        self._check_open()
        if self._state == "empty":
            raise NNPipeError("nothing to run: put a batch first")
        self._state = "loaded"
        self._run()
        self._state = "done"

    def get(self) -> dict[str, np.ndarray]:
        """Return the outputs of the last run, by name."""
        self._check_open()
        if self._state != "done":
            raise NNPipeError("no outputs yet: put a batch and run first")
        return self._get()

    def infer(self, batch: Batch) -> dict[str, np.ndarray]:
        """Put, run and get."""
        self._check_open()
        self.io.check_inputs(batch)
        self._state = "empty"
        outputs = self._infer(batch)
        self._state = "done"
        return outputs

    def stream(self, batches: Iterable[Batch]) -> Iterator[dict[str, np.ndarray]]:
        """Put, run and get one batch after another, overlapping them where the session can.

        Yields the outputs of each batch, in order.  A batch must not be changed
        before its outputs are there, and nothing else may be asked of the
        session meanwhile.

        Raises
        ------
        SpecMismatch
            If a batch is not what the session takes.
        """
        self._check_open()
        self._state = "empty"
        yield from self._stream(map(self._checked, batches))
        self._state = "done"

    def stats(self) -> Mapping[str, Any]:
        """Figures that only the session knows (a target's own clock, memory arenas); none by default."""
        return {}

    def split(self, start_ns: np.ndarray, end_ns: np.ndarray) -> Mapping[str, np.ndarray]:
        """Divide up the time of runs that were made between these stamps of ``perf_counter_ns``; not by default.

        A session whose model runs elsewhere gives columns that add up to
        ``end_ns - start_ns``: what this machine, the line and the target took.
        """
        return {}

    def resources(self) -> Mapping[str, np.ndarray]:
        """Tell how the resources of another machine that runs the model were used; nothing by default.

        Columns of equal length: ``time_ns`` on this machine's ``perf_counter_ns``, and what was observed then.
        """
        return {}

    def close(self) -> None:
        """Release what the session holds; closing twice does no harm."""
        if self._state != "closed":
            self._state = "closed"
            self._close()

    def _checked(self, batch: Batch) -> Batch:
        self._check_open()
        self.io.check_inputs(batch)
        return batch

    def _check_open(self) -> None:
        if self._state == "closed":
            raise NNPipeError("the session is closed")

    @abstractmethod
    def _put(self, batch: Batch) -> None:
        """Take inputs that have been checked."""

    @abstractmethod
    def _run(self) -> None:
        """Compute; return only when the outputs exist.  This, and only this, is timed."""

    @abstractmethod
    def _get(self) -> dict[str, np.ndarray]:
        """Return the outputs by name, as arrays that the caller may keep."""

    def _infer(self, batch: Batch) -> dict[str, np.ndarray]:
        """Do all three with inputs that have been checked."""
        self._put(batch)
        self._run()
        return self._get()

    def _stream(self, batches: Iterable[Batch]) -> Iterator[dict[str, np.ndarray]]:
        """Do all three with each of the batches, which have been checked."""
        return map(self._infer, batches)

    def _close(self) -> None:
        """Release what the constructor took."""
