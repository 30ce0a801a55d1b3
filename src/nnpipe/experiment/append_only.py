"""Lists that only grow at their end, so that only new rows have to be written to the disk."""

from __future__ import annotations

from typing import Any


class AppendOnly(list[Any]):
    """A list of rows that are never changed after ``rows.append(row)``.

    Otherwise it is a normal list, and a state file stores it as one.  Checkpoints of
    a training store it in a file beside them, to which each appends new rows, so
    that they do not grow with the epochs.
    """

    def __copy__(self) -> AppendOnly:
        return AppendOnly(self)

    def __deepcopy__(self, memo: Any) -> AppendOnly:
        return AppendOnly(self)  # rows do not change
