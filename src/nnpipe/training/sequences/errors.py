"""Errors of an input pipeline.

::

    TrainingError
    ├── TransformError   a function raised for a sample; ``sample_id`` says for which
    └── WorkerError      a worker process died, was stuck, or could not start
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import TrainingError


class TransformError(TrainingError):
    """A function of a map raised.

    Parameters
    ----------
    message
        The error and its place, in one line.
    sample_id
        Id of the sample for which it raised; None if the function takes whole batches.
    sample_ids
        Ids of all samples of the batch.
    trace
        The traceback of the other process as text, if it happened there.
    """

    def __init__(
        self, message: str, sample_id: int | None = None, sample_ids: tuple[int, ...] = (), trace: str = ""
    ) -> None:
        check_call(TransformError, locals())
        super().__init__(message)
        self.sample_id = sample_id
        self.sample_ids = sample_ids
        self.trace = trace

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.sample_id, self.sample_ids, self.trace)


class WorkerError(TrainingError):
    """A worker process died, exceeded its time limit, or could not start; ``sample_ids`` are those it worked on."""

    def __init__(self, message: str, sample_ids: tuple[int, ...] = ()) -> None:
        check_call(WorkerError, locals())
        super().__init__(message)
        self.sample_ids = sample_ids


def some(ids: Any) -> str:
    """Return the text that names samples in a message, only the first few of many."""
    known = np.asarray(ids).tolist()
    return ", ".join(map(str, known[:8])) + (f", ... ({len(known)} in all)" if len(known) > 8 else "")
