"""What a model expects of samples, and what its outputs mean: data that travel with the model.

The description beside a model file holds a :class:`Meaning`.  Wrappers declare
one in place of code, so that what is written down is what is carried out
(:mod:`nnpipe.core.preprocessing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from nnpipe.core.errors import ConfigError
from nnpipe.core.tensor_meaning import InputMeaning, OutputMeaning, is_name

JUDGED = ("probabilities", "logits", "scores", "label")
"""Kinds of outputs that tell classes apart."""

_MOST_TENSORS = 256  # that are taken from a file
T = TypeVar("T")


@dataclass(frozen=True)
class Meaning:
    """What the inputs of a model expect, and what its outputs mean.

    Parameters
    ----------
    inputs
        One for each input; none where ``code`` prepares samples.
    outputs
        Those of which it is known.
    code
        The component whose own code stands before and after the model, as
        :meth:`~nnpipe.core.component.Component.describe` gives it, where no
        declaration can.

    Examples
    --------
    >>> pixels = InputMeaning("image", "image", scale=255)
    >>> meaning = Meaning((pixels,), (OutputMeaning("scores", "logits"),))
    >>> meaning.input("image").scale
    255.0
    >>> meaning.output("boxes") is None
    True
    """

    inputs: tuple[InputMeaning, ...] = ()
    outputs: tuple[OutputMeaning, ...] = ()
    code: Mapping[str, Any] | None = field(default=None, compare=True)

    def __post_init__(self) -> None:
        if self.code is not None and not isinstance(self.code, Mapping):
            raise ConfigError("code of a meaning should be a component's class and arguments")
        for side, kind in (("inputs", InputMeaning), ("outputs", OutputMeaning)):
            given = getattr(self, side)
            if not isinstance(given, (tuple, list)) or not all(isinstance(item, kind) for item in given):
                raise ConfigError(f"{side} of a meaning should be a tuple of {kind.__name__}")
            items = tuple(given)
            object.__setattr__(self, side, items)
            if len({item.name for item in items}) != len(items) or len(items) > _MOST_TENSORS:
                raise ConfigError(f"each of the {side} is described once, and there are at most {_MOST_TENSORS}")

    def input(self, name: str) -> InputMeaning | None:
        """Return what is known of an input."""
        return next((each for each in self.inputs if each.name == name), None)

    def output(self, name: str) -> OutputMeaning | None:
        """Return what is known of an output."""
        return next((each for each in self.outputs if each.name == name), None)

    def observing(self, ranges: Mapping[str, tuple[float, float]]) -> Meaning:
        """Return it with the ranges that a quantiser saw, by input."""
        inputs = tuple(replace(each, observed_range=ranges.get(each.name, each.observed_range)) for each in self.inputs)
        return replace(self, inputs=inputs)

    def naming(self, class_names: tuple[str, ...]) -> Meaning:
        """Return it with names for the classes of outputs that tell classes apart and have no names yet."""
        outputs = tuple(
            replace(each, class_names=class_names) if each.kind in JUDGED and not each.class_names else each
            for each in self.outputs
        )
        return replace(self, outputs=outputs)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        found: dict[str, Any] = {
            "inputs": [each.to_json() for each in self.inputs],
            "outputs": [each.to_json() for each in self.outputs],
        }
        return found if self.code is None else {**found, "code": dict(self.code)}

    @classmethod
    def from_json(cls, data: Any) -> Meaning:
        """Read what :meth:`to_json` gave; raise :class:`ConfigError` for anything else."""
        if not isinstance(data, Mapping):
            raise ConfigError("a model's meaning should be an object")
        code = data.get("code")
        if code is not None and not (
            isinstance(code, Mapping) and is_name(code.get("class")) and isinstance(code.get("arguments"), Mapping)
        ):
            raise ConfigError("the component that prepares samples should have a class and arguments")
        return cls(
            _each(data, "inputs", InputMeaning.from_json), _each(data, "outputs", OutputMeaning.from_json),
            None if code is None else {"class": code["class"], "arguments": dict(code["arguments"])},
        )  # fmt: skip


def _each(data: Mapping[str, Any], side: str, read: Callable[[Any], T]) -> tuple[T, ...]:
    items = data.get(side, [])
    if not isinstance(items, list) or len(items) > _MOST_TENSORS:
        raise ConfigError(f"the {side} of a model's meaning should be a list of at most {_MOST_TENSORS}")
    return tuple(map(read, items))
