"""How samples are preprocessed in a run, and who decided it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nnpipe.core.meaning import Meaning

Source = Literal["wrapper", "description", "options", "unknown"]


@dataclass(frozen=True)
class Preparation:
    """How samples are prepared for a model, and who says that it should be so.

    Parameters
    ----------
    source
        The wrapper itself, the description beside the model file, the user's options, or nobody.
    by
        Who that is: a class, or a file.
    meaning
        What is carried out; ``None`` where code does it, or where samples go in as they are because nothing is known.
    overridden
        What the description says and the user's options do not, by option: the one and the other.

    Examples
    --------
    >>> Preparation("unknown").known
    False
    >>> Preparation("description", "model.onnx.json").known
    True
    """

    source: Source
    by: str = ""
    meaning: Meaning | None = None
    overridden: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether anybody says how samples are prepared."""
        return self.source != "unknown"

    def to_json(self) -> dict[str, Any]:
        """Return it as result files hold it."""
        return {
            "source": self.source,
            "by": self.by,
            "meaning": None if self.meaning is None else self.meaning.to_json(),
            "overridden": {name: list(pair) for name, pair in self.overridden.items()},
        }


def differing(said: Meaning, used: Meaning) -> dict[str, tuple[Any, Any]]:
    """Return the steps in which two meanings of the same inputs differ: what the one says, and the other."""
    steps = ("scale", "mean", "deviation", "channel_order", "colours", "layout", "resize", "size", "quantised")
    found: dict[str, tuple[Any, Any]] = {}
    for each in said.inputs:
        other = used.input(each.name)
        for step in steps if other is not None else ():
            pair = getattr(each, step), getattr(other, step)
            if pair[0] != pair[1]:
                found.setdefault(step, pair)
    return found
