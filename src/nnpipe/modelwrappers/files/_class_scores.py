"""The choice of the output to evaluate of a model from a file, and its conversion to class
scores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.core.layout import Shape
from nnpipe.core.messages import list_names, suggest_name
from nnpipe.core.model_metadata import JUDGED, ModelMetadata
from nnpipe.core.quantization import dequantize_linear
from nnpipe.core.tensor_metadata import OutputMetadata
from nnpipe.core.tensors import TensorSpec, show_shape

_SLACK = 0.01  # a quantised probability may exceed the range 0 to 1 by this


def find_output(model: str, outputs: Sequence[TensorSpec], name: str) -> TensorSpec:
    """Return the output with this name.

    Raises
    ------
    ConfigError
        If there is none.
    """
    for spec in outputs:
        if spec.name == name:
            return spec
    names = [spec.name for spec in outputs]
    raise ConfigError(
        f"{model} has no output {name!r}{suggest_name(name, names)}; it has {', '.join(names)}"
    )


def select_output(
    model: str, outputs: Sequence[TensorSpec], name: str | None, meaning: ModelMetadata | None
) -> TensorSpec:
    """Return the output to evaluate: the one with ``name``, the one that the meaning states, or the
    only one.

    Parameters
    ----------
    model
        Name of the model in messages.
    outputs
        All its outputs.
    name
        Name of the output, if it was given.
    meaning
        The known meaning of the outputs.

    Raises
    ------
    ConfigError
        If there is no output of this name, or there are several and nothing states which.
    """
    if name is not None:
        return find_output(model, outputs, name)
    told = [
        spec
        for spec in outputs
        if (known := meaning and meaning.output(spec.name)) and known.kind in JUDGED
    ]
    if len(told) == 1:
        return told[0]
    if len(outputs) == 1:
        return outputs[0]
    given = ", ".join(f"{spec.name} {spec.dtype} {show_shape(spec.shape)}" for spec in outputs)
    raise ConfigError(f"{model} gives {given}: say with --result-output which of them to judge")


def check_classes(model: str, result: TensorSpec, known: OutputMetadata, classes: int) -> None:
    """Raise :class:`ConfigError` unless an output has this number of classes, apart from those
    that are skipped.
    """
    offset = known.class_offset
    shown = f"{result.name!r} is {show_shape(result.shape)}"
    if known.kind not in JUDGED:
        raise ConfigError(
            f"{model} gives {known.kind} in {result.name!r}, which tell no classes apart"
        )
    if is_label(result, known):
        return
    if sum(length != 1 for length in result.shape[1:]) > 1:
        raise ConfigError(
            f"{model} gives no score for each class ({shown}); if another output does, name it "
            f"with --result-output"
        )
    scores = count_scores(result.shape)
    if scores is None or (scores == 1 and classes == 2 and not offset):
        return
    if scores - offset != classes:
        before = f" after {offset} that --class-offset leaves out" if offset else ""
        mend = ""
        if scores == classes + 1 > 2 and not before:
            mend = "; --class-offset 1 leaves out the first, if that is a background class"
        elif scores - offset > classes:
            mend = (
                "; a data set with samples of some classes only must still name all of them in the "
                "model's order"
            )
        raise ConfigError(
            f"{model} tells {scores - offset} classes apart{before} ({shown}), the data set has "
            f"{classes}{mend}"
        )


def match_classes(model: str, own: tuple[str, ...], names: tuple[str, ...]) -> tuple[int, ...]:
    """Return which of the model's classes each class of a data set is, by its name; nothing if
    numbers are to tell.

    Parameters
    ----------
    model
        The model's name in messages.
    own, names
        The classes of the model and of the data set; either may be numbers or not known.

    Raises
    ------
    ConfigError
        If both have names, and not the same ones.
    """
    if not own or not names or own == names or _is_numbers(own) or _is_numbers(names):
        return ()
    keys, wanted = _normalize_names(own), _normalize_names(names)
    if len(set(keys)) < len(keys) or len(set(wanted)) < len(wanted):
        keys, wanted = list(own), list(names)
    places = {key: place for place, key in enumerate(keys)}
    strange = [name for name, key in zip(names, wanted, strict=True) if key not in places]
    lacking = [name for name, key in zip(own, keys, strict=True) if key not in set(wanted)]
    if strange or lacking or len(places) < len(own) or len(own) != len(names):
        said = [f"the data set has {strange[0]!r}, which it lacks"] if strange else []
        said += [f"the data set lacks {lacking[0]!r}"] if lacking else []
        raise ConfigError(
            f"{model} has the classes {list_names(own)}, the data set {list_names(names)}: "
            f"{', and '.join(said) or 'two alike'}"
            "; name all of the model's classes in its order (--class-list), or give --class-offset "
            "0 to take classes by number"
        )
    order = tuple(places[key] for key in wanted)
    return () if order == tuple(range(len(order))) else order


def _is_numbers(names: tuple[str, ...]) -> bool:
    return all(name.isascii() and name.isdecimal() for name in names)


def _normalize_names(names: Sequence[str]) -> list[str]:
    """Return names without what differs between lists of the same classes: case, joints, and
    what follows a comma.
    """
    return [
        " ".join(re.split(r"[\s_-]+", name.partition(",")[0].strip().casefold())) for name in names
    ]


def compute_scores(
    model: str, values: npt.NDArray[Any], result: TensorSpec, known: OutputMetadata, classes: int
) -> npt.NDArray[Any]:
    """Return ``(n, classes)`` scores from the judged output, in the model's order.

    A label becomes 1 for its class and 0 for the others; one number for two
    classes is the probability of the second, or its logit.

    Raises
    ------
    ConfigError
        If the output's shape or values do not allow it.
    """
    values = to_real(values, result)
    count, offset = len(values), known.class_offset
    if is_label(result, known):
        told: npt.NDArray[Any] = values.reshape(count, 1) - offset == np.arange(classes)
        if not told.any(axis=1).all():
            other = values.reshape(count)[~told.any(axis=1)][0]
            raise ConfigError(
                f"{model} gives the class {other} in {result.name!r}, and the data set has "
                f"{classes} classes from {offset}: a data set with samples of some classes only "
                f"must still name all of them"
            )
        return told.astype(np.float32)
    if values.size != count * (classes + offset) and values.size != count:
        raise ConfigError(
            f"{model} gives {result.name!r} as {show_shape(values.shape)}: no score for each of "
            f"{classes + offset} "
            "classes; if another output does, name it with --result-output"
        )
    values = values.reshape(count, -1)
    if values.shape[1] == 1 and classes == 2 and not offset:
        if known.kind == "logits":
            return np.concatenate([-values, values], axis=1)
        if values.size and not (values.min() >= -_SLACK and values.max() <= 1 + _SLACK):
            raise ConfigError(
                f"{model} gives {values.min():g} to {values.max():g} in {result.name!r}, which are "
                f"no probabilities of "
                "the second class: give --result-kind logits if they are logits"
            )
        return np.concatenate([1 - values, values], axis=1)
    return values[:, offset : offset + classes]


def to_real(values: npt.NDArray[Any], spec: TensorSpec) -> npt.NDArray[Any]:
    """Return dequantised values, and floats of less than 32 bits as float32."""
    if spec.scale is not None and values.dtype.kind in "iu":
        return dequantize_linear(values, spec.scale, spec.zero_point, spec.axis)
    return values.astype(np.float32) if spec.dtype in ("float16", "bfloat16") else values


def is_label(spec: TensorSpec, known: OutputMetadata) -> bool:
    """Return whether an output is a class label and not scores."""
    if known.kind == "label":
        return True
    return spec.dtype in ("int64", "int32") and spec.scale is None and count_scores(spec.shape) == 1


def count_scores(shape: Shape) -> int | None:
    """Return the number of scores per sample in an output; ``None`` if its shape does not state
    it.
    """
    count = 1
    for length in shape[1:]:
        if length is None:
            return None
        count *= length
    return count
