"""Opening a Keras file of any age as a ``keras.Model``.

Keras 3 opens what it can.  What it refuses, or would compute otherwise than
the version that wrote it, is read by :mod:`nnpipe.layers.keras.read_file` and built
anew with the file's weights.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.messages import one_line
from nnpipe.formats.keras import kind_of, open_weights, structure_in
from nnpipe.frameworks.keras_files import KerasRefusal, checked_structure, load_model
from nnpipe.layers.keras.older_weights import Age
from nnpipe.layers.keras.read_file import Reading, read_keras
from nnpipe.layers.keras.to_keras import to_keras
from nnpipe.layers.keras.unknown_layers import build_with_unknown
from nnpipe.layers.keras.without_training import with_names_for_keras, without_training
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.unknown import Unknown

log = logging.getLogger("nnpipe")
_TOLD: set[Path] = set()
_HARMLESS = ("changed-meaning", "training-only")


@dataclass(frozen=True)
class OpenedModel:
    """A model, and why it was not Keras that read its file; empty if it was."""

    model: Any
    reason: str = ""


def open_keras(path: str | Path) -> Any:
    """Build the model of a ``.keras`` or ``.h5`` file, and tell once if it was not Keras that read it.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, of another kind, holds code, or
        neither Keras nor we can build its model; the message names the layer
        and the reason.
    """
    opened = opened_keras(path)
    tell(path, opened.reason)
    return opened.model


def tell(path: str | Path, reason: str) -> None:
    """Log once in a process that our own reader read a file, and why."""
    whole = Path(path).absolute()
    if reason and whole not in _TOLD:
        _TOLD.add(whole)
        log.warning("%s: %s", path, in_words(reason))


def in_words(reason: str) -> str:
    """Return who read a file, and why."""
    return f"read by nnpipe's own reader, for {reason}"


def opened_keras(path: str | Path) -> OpenedModel:
    """Return what :func:`open_keras` gives, and who read it, without telling."""
    path = Path(path)
    age, refused, reason = _age(path), None, ""
    reading = read_keras(path) if age is not None and not age.version.startswith("3.") else None
    if age is not None and reading is not None:
        reason = _otherwise_meant(age, reading)
    if not reason:
        try:
            model = load_model(path)
            reason = _otherwise_taken(model, reading) if reading is not None else ""
            if not reason:
                return OpenedModel(model)
        except KerasRefusal as error:
            reason, refused = error.cause, error
    structure = structure_in(path)
    if structure is not None:
        checked_structure(path, structure)  # layers that hold code are refused by either reader
    try:
        return OpenedModel(_built(path, reading or read_keras(path)), reason)
    except ConfigError as error:
        own = one_line(error).removeprefix(f"{path}: ")
        keras = f" ({refused.cause})" if refused is not None else ""
        raise ArtifactError(f"{path}: {own}{keras}; export the model as ONNX or .tflite where it was made") from None


def _age(path: Path) -> Age | None:
    """Return the age of an HDF5 file with a structure; ``None`` for any other, which only Keras 3 has written."""
    if kind_of(path) != "hdf5" or structure_in(path) is None:
        return None
    with open_weights(path) as file:
        try:
            return Age.of(file)
        except Exception:  # h5py raises what it likes for damaged content; whoever reads the weights tells
            return None


def _otherwise_meant(age: Age, reading: Reading) -> str:
    """Return why Keras 3 would compute something else than the version that wrote a file; empty if it would not."""
    if age.mirrors:
        return "Theano turned the windows of convolutions round"
    if age.version.startswith(("0.", "1.")):
        return f"it is of Keras {age.version}"
    changed = [problem for problem in reading.problems if problem.code == "changed-meaning"]
    return f"it is of Keras {age.version}: {changed[0].message}" if changed else ""


def _otherwise_taken(model: Any, reading: Reading) -> str:
    """Return where Keras 3 takes an input's shape for another than the file says."""
    graph = reading.graph
    if graph is None or len(graph.inputs) != len(model.inputs):
        return ""
    for ref, tensor in zip(graph.inputs, model.inputs, strict=True):
        layer = graph.layers.get(ref.layer)
        if isinstance(layer, Input) and (layer.batch, *layer.shape) != tuple(tensor.shape):
            return f"Keras 3 takes the shape {(layer.batch, *layer.shape)} of its input for {tuple(tensor.shape)}"
    return ""


def _built(path: Path, reading: Reading) -> Any:
    reading = without_training(path, reading, everything=True)
    graph = reading.graph
    problems = [problem for problem in reading.problems if problem.code not in _HARMLESS]
    damage = [p for p in problems if p.code in ("damaged", "size", "weights-only", "weights", "structure")]
    if graph is None or damage:
        raise ConfigError("; ".join(map(str, (damage or problems)[:3])))
    if any(isinstance(entry.layer, Unknown) for entry in graph.entries):
        return build_with_unknown(path, graph, problems)
    if problems:
        raise ConfigError("; ".join(map(str, problems[:3])))
    return to_keras(*with_names_for_keras(graph, reading.weights))
