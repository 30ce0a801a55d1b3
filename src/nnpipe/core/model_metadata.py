"""How samples are prepared for a model and what its outputs mean, as data that are stored with the
model.

The description beside a model file holds a :class:`ModelMetadata`.  Wrappers declare
one instead of writing code, and :mod:`nnpipe.core.preprocessing` applies it.  So
the recorded preprocessing is the one that is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from nnpipe.core.errors import ConfigError
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata, is_name

JUDGED = ("probabilities", "logits", "scores", "label")
"""Kinds of outputs that classify."""

_MOST_TENSORS = 256  # that are read from a file
T = TypeVar("T")


@dataclass(frozen=True)
class ModelMetadata:
    """How samples are prepared for a model's inputs, and what its outputs mean.

    Parameters
    ----------
    inputs
        One meaning for each input; empty if ``code`` prepares samples.
    outputs
        The meanings of those outputs whose meaning is known.
    code
        The component whose own code prepares samples and converts outputs, as
        described by :meth:`~nnpipe.core.component.Component.describe`; used
        if declarations are not enough.
    decoder
        The :class:`~nnpipe.core.output_decoder.OutputDecoder` that turns the outputs into
        predictions, described in the same way.

    Examples
    --------
    >>> pixels = InputProcessing("image", "image", scale=255)
    >>> meaning = ModelMetadata((pixels,), (OutputMetadata("scores", "logits"),))
    >>> meaning.input("image").scale
    255.0
    >>> meaning.output("boxes") is None
    True
    """

    inputs: tuple[InputProcessing, ...] = ()
    outputs: tuple[OutputMetadata, ...] = ()
    code: Mapping[str, Any] | None = field(default=None, compare=True)
    decoder: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("code", "decoder"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), Mapping):
                raise ConfigError(
                    f"{name} of a meaning should be a component's class and arguments"
                )
        for side, kind in (("inputs", InputProcessing), ("outputs", OutputMetadata)):
            given = getattr(self, side)
            if not isinstance(given, (tuple, list)) or not all(
                isinstance(item, kind) for item in given
            ):
                raise ConfigError(f"{side} of a meaning should be a tuple of {kind.__name__}")
            items = tuple(given)
            object.__setattr__(self, side, items)
            if len({item.name for item in items}) != len(items) or len(items) > _MOST_TENSORS:
                raise ConfigError(
                    f"each of the {side} is described once, and there are at most {_MOST_TENSORS}"
                )

    def input(self, name: str) -> InputProcessing | None:
        """Return the meaning of an input, or None if it is unknown."""
        return next((each for each in self.inputs if each.name == name), None)

    def output(self, name: str) -> OutputMetadata | None:
        """Return the meaning of an output, or None if it is unknown."""
        return next((each for each in self.outputs if each.name == name), None)

    def with_observed_ranges(self, ranges: Mapping[str, tuple[float, float]]) -> ModelMetadata:
        """Return the meaning with the value ranges that a quantiser observed, by input."""
        inputs = tuple(
            replace(each, observed_range=ranges.get(each.name, each.observed_range))
            for each in self.inputs
        )
        return replace(self, inputs=inputs)

    def with_class_names(self, class_names: tuple[str, ...]) -> ModelMetadata:
        """Return the meaning with class names for those classifying outputs that have none.

        They are the names of the data that the model was trained on.  The order of classes in other
        data says nothing.
        """
        outputs = tuple(
            replace(each, class_names=class_names)
            if each.kind in JUDGED and not each.class_names
            else each
            for each in self.outputs
        )
        return replace(self, outputs=outputs)

    def to_json(self) -> dict[str, Any]:
        """Return the meaning in its JSON form."""
        found: dict[str, Any] = {
            "inputs": [each.to_json() for each in self.inputs],
            "outputs": [each.to_json() for each in self.outputs],
        }
        components = {"code": self.code, "decoder": self.decoder}
        return found | {
            name: dict(described) for name, described in components.items() if described is not None
        }

    @classmethod
    def from_json(cls, data: Any) -> ModelMetadata:
        """Make a meaning from the output of :meth:`to_json`; raise :class:`ConfigError` if it is
        malformed.
        """
        if not isinstance(data, Mapping):
            raise ConfigError("a model's meaning should be an object")
        return cls(
            _read_tensors(data, "inputs", InputProcessing.from_json),
            _read_tensors(data, "outputs", OutputMetadata.from_json),
            _read_component(data, "code"),
            _read_component(data, "decoder"),
        )


def _read_component(data: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = data.get(name)
    if found is None:
        return None
    if (
        isinstance(found, Mapping)
        and is_name(found.get("class"))
        and isinstance(found.get("arguments"), Mapping)
    ):
        return {"class": found["class"], "arguments": dict(found["arguments"])}
    raise ConfigError(
        f"the {name} of a model's meaning should be a component's class and arguments"
    )


def _read_tensors(data: Mapping[str, Any], side: str, read: Callable[[Any], T]) -> tuple[T, ...]:
    items = data.get(side, [])
    if not isinstance(items, list) or len(items) > _MOST_TENSORS:
        raise ConfigError(
            f"the {side} of a model's meaning should be a list of at most {_MOST_TENSORS}"
        )
    return tuple(map(read, items))


Source = Literal["wrapper", "description", "options", "unknown"]


@dataclass(frozen=True)
class Preparation:
    """How samples are prepared for a model, and what determined it.

    Parameters
    ----------
    source
        What determined it: the wrapper, the description beside the model file, the user's options,
        or nothing.
    by
        The name of the class or file that determined it.
    meaning
        The preprocessing; ``None`` if code prepares samples, or if samples are used unchanged since
        nothing is known.
    overridden
        The differences of the user's options from the description, by option: the description's
        value and the user's.

    Examples
    --------
    >>> Preparation("unknown").known
    False
    >>> Preparation("description", "model.onnx.json").known
    True
    """

    source: Source
    by: str = ""
    meaning: ModelMetadata | None = None
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


def find_differences(said: ModelMetadata, used: ModelMetadata) -> dict[str, tuple[Any, Any]]:
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
