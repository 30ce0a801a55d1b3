"""Lists that only ever grow at their end, so that whoever keeps them on the disk writes what is new and no more."""

from __future__ import annotations

from typing import Any


class AppendOnly(list[Any]):
    """A list of rows, of which none changes once it is in: ``rows.append(row)``.

    It is a list in all else, and a state file holds it as one.  Checkpoints of a
    training keep it in a file beside them, to which each adds what is new: so
    they do not grow with the epochs.
    """

    def __copy__(self) -> AppendOnly:
        return AppendOnly(self)

    def __deepcopy__(self, memo: Any) -> AppendOnly:
        return AppendOnly(self)  # rows do not change
