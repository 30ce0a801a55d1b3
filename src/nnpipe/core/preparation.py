"""How samples are preprocessed in a run, and what determined it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nnpipe.core.meaning import Meaning

Source = Literal["wrapper", "description", "options", "unknown"]


@dataclass(frozen=True)
class Preparation:
    """How samples are prepared for a model, and what determined it.

    Parameters
    ----------
    source
        What determined it: the wrapper, the description beside the model file, the user's options, or nothing.
    by
        The name of the class or file that determined it.
    meaning
        The preprocessing; ``None`` if code prepares samples, or if samples are used unchanged since nothing is known.
    overridden
        The differences of the user's options from the description, by option: the description's value and the user's.

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
        """Whether it is known how samples are prepared."""
        return self.source != "unknown"

    def to_json(self) -> dict[str, Any]:
        """Return the preparation in the JSON form of result files."""
        return {
            "source": self.source,
            "by": self.by,
            "meaning": None if self.meaning is None else self.meaning.to_json(),
            "overridden": {name: list(pair) for name, pair in self.overridden.items()},
        }


def differing(said: Meaning, used: Meaning) -> dict[str, tuple[Any, Any]]:
    """Return the steps in which two meanings of the same inputs differ, with the values of both."""
    steps = (
        "transform",
        "scale",
        "mean",
        "deviation",
        "channel_order",
        "colours",
        "layout",
        "resize",
        "size",
        "shortest_edge",
        "fit",
        "fill",
        "quantised",
    )
    found: dict[str, tuple[Any, Any]] = {}
    for each in said.inputs:
        other = used.input(each.name)
        for step in steps if other is not None else ():
            pair = getattr(each, step), getattr(other, step)
            if pair[0] != pair[1]:
                found.setdefault(step, pair)
    return found
