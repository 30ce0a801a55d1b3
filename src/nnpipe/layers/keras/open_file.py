"""The loader of Keras files of any version as a ``keras.Model``.

Keras 3 opens the files that it can.  A file that it rejects, or would compute
differently than the version that wrote it, is read by
:mod:`nnpipe.layers.keras.read_file` and rebuilt with the file's weights.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.messages import one_line
from nnpipe.formats.keras import kind_of, open_weights, structure_in
from nnpipe.frameworks.keras import import_keras
from nnpipe.frameworks.keras_files import KerasRefusal, checked_structure, load_model
from nnpipe.layers.keras.named_layers import LayerNames, NamedLayers, named_layers
from nnpipe.layers.keras.older_weights import Age
from nnpipe.layers.keras.own_layers import register_own
from nnpipe.layers.keras.read_file import Reading, read_keras
from nnpipe.layers.keras.to_config import OWN_PACKAGE
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
    """A model, and the reason why nnpipe and not Keras read its file; empty if Keras did."""

    model: Any
    reason: str = ""


def open_keras(path: str | Path, own_layers: LayerNames = ()) -> Any:
    """Return the model of a ``.keras`` or ``.h5`` file; log once if nnpipe and not Keras read it.

    Parameters
    ----------
    path
        The file.
    own_layers
        The user's own layers, which may be layers of Keras or of nnpipe: classes, or their names, as in
        :func:`~nnpipe.layers.keras.named_layers.named_layers`.  The file may then use no others.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, of another format, holds code, or
        neither Keras nor nnpipe can build its model; the message names the
        layer and the reason.
    """
    opened = opened_keras(path, own_layers)
    tell(path, opened.reason)
    return opened.model


def tell(path: str | Path, reason: str) -> None:
    """Log once per process that nnpipe's own reader read a file, and why."""
    whole = Path(path).absolute()
    if reason and whole not in _TOLD:
        _TOLD.add(whole)
        log.warning("%s: %s", path, in_words(reason))


def in_words(reason: str) -> str:
    """Return the text that states which reader read a file, and why."""
    return f"read by nnpipe's own reader: {reason}"


def opened_keras(path: str | Path, own_layers: LayerNames = ()) -> OpenedModel:
    """Return the model as :func:`open_keras` does, with the reason instead of a log message."""
    path = Path(path)
    own = named_layers(own_layers)
    structure = structure_in(path) if own else None
    if structure is None:
        return _opened(path, own)
    import_keras()
    config = checked_structure(path, structure)
    renamed = own.renamed(config)
    own.check(path, config)
    with own.in_keras(config):
        return _opened(path, own, "" if renamed == config else "it has layers of yours that nnpipe computes")


def _opened(path: Path, own: NamedLayers, reason: str = "") -> OpenedModel:
    named = tuple(own.declared.values())
    if f"{OWN_PACKAGE}>".encode() in (structure_in(path) or b""):
        register_own()
    age, refused = _age(path), None
    reading = read_keras(path, own_layers=named) if age is not None and not age.version.startswith("3.") else None
    if age is not None and reading is not None and not reason:
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
        checked_structure(path, structure)  # both readers reject layers that hold code
    try:
        return OpenedModel(_built(path, reading or read_keras(path, own_layers=named)), reason)
    except ConfigError as error:
        cause = one_line(error).removeprefix(f"{path}: ")
        keras = f" ({refused.cause})" if refused is not None else ""
        raise ArtifactError(f"{path}: {cause}{keras}; export the model as ONNX or .tflite where it was made") from None


def _age(path: Path) -> Age | None:
    """Return the writer of an HDF5 file with a structure; ``None`` for all others, which only Keras 3 writes."""
    if kind_of(path) != "hdf5" or structure_in(path) is None:
        return None
    with open_weights(path) as file:
        try:
            return Age.of(file)
        except Exception:  # h5py raises any exception for damaged content; reading the weights reports it
            return None


def _otherwise_meant(age: Age, reading: Reading) -> str:
    """Return why Keras 3 would compute different results than the writer of a file; empty if it would not."""
    if age.mirrors:
        return "Theano flipped the kernels of convolutions"
    if age.version.startswith(("0.", "1.")):
        return f"Keras {age.version} wrote it"
    changed = [problem for problem in reading.problems if problem.code == "changed-meaning"]
    return f"Keras {age.version} wrote it: {changed[0].message}" if changed else ""


def _otherwise_taken(model: Any, reading: Reading) -> str:
    """Return for which input Keras 3 assumes another shape than the file states; empty for none."""
    graph = reading.graph
    if graph is None or len(graph.inputs) != len(model.inputs):
        return ""
    for ref, tensor in zip(graph.inputs, model.inputs, strict=True):
        layer = graph.layers.get(ref.layer)
        if isinstance(layer, Input) and (layer.batch, *layer.shape) != tuple(tensor.shape):
            return f"Keras 3 reads its input shape {(layer.batch, *layer.shape)} as {tuple(tensor.shape)}"
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
