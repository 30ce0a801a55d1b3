"""The loader of Keras files of any version as a ``keras.Model``.

Keras 3 opens the files that it can.  A file that it rejects, or would compute
differently than the version that wrote it, is read by
:mod:`nnpipe.layers.keras.read_file` and rebuilt with the file's weights.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.messages import format_one_line
from nnpipe.formats.keras import get_file_kind, open_weights, read_structure
from nnpipe.frameworks.keras import import_keras
from nnpipe.frameworks.keras_files import (
    KerasRefusal,
    build_bounded,
    describe_function,
    load_model,
    parse_structure,
    register,
    set_weights_from,
)
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import LayerEntry, Ref, Use
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.graph.weights import Weights
from nnpipe.layers.keras.from_config import read_layer
from nnpipe.layers.keras.named_layers import LayerNames, NamedLayers, find_named_layers
from nnpipe.layers.keras.read_file import Reading, read_keras
from nnpipe.layers.keras.to_config import OWN_PACKAGE, network_config
from nnpipe.layers.keras.to_keras import register_own, to_keras
from nnpipe.layers.keras.weight_paths import WriterVersion
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.activations import HARD_SIGMOID_2
from nnpipe.layers.vocabulary.field_table import Raw
from nnpipe.layers.vocabulary.initialisers import INITIALISER
from nnpipe.layers.vocabulary.input import Input, Unknown
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.regularisers import CONSTRAINT, REGULARISER

_KINDS = (INITIALISER, REGULARISER, CONSTRAINT)
_TRAINING = re.compile(r"(^|[._])(initializer|regularizer|constraint)(\.|$)")
_OF_CODES = ("unknown-object", "unknown-argument", "argument")


def remove_training_parts(path: Path, reading: Reading, everything: bool = False) -> Reading:
    """Return a network with known weights without those unknown parts that matter in training only.

    Parameters
    ----------
    path
        The file that was read.
    reading
        Its content.
    everything
        Whether to leave out known parts as well, for a network that will
        never be trained.

    Returns
    -------
    Reading
        The network; unknown parts that were left out are problems with the code ``training-only``.
    """
    graph = reading.graph
    if graph is None:
        return reading
    problems = tuple(map(_as_training_only, reading.problems))
    changed = _remove_from_graph(graph, everything)
    if _list_kinds(changed) == _list_kinds(graph):
        return Reading(changed, reading.weights, problems)
    # Layers that can be read now had weights under the file's names before; now their shapes can be
    # inferred.
    again = read_keras(path, changed)
    return Reading(changed, again.weights, (*select_training_only(problems), *again.problems))


def _list_kinds(graph: NetworkGraph) -> list[Any]:
    return [
        _list_kinds(entry.layer.graph) if isinstance(entry.layer, Submodel) else type(entry.layer)
        for entry in graph.entries
    ]


def select_training_only(problems: Iterable[NetworkProblem]) -> list[NetworkProblem]:
    """Return the problems about parts that were left out and matter in training only."""
    return [problem for problem in problems if problem.code == "training-only"]


def _as_training_only(problem: NetworkProblem) -> NetworkProblem:
    if problem.code in _OF_CODES and _TRAINING.search(
        problem.path.rpartition(".config.")[2] or problem.path
    ):
        return NetworkProblem("training-only", problem.path, problem.message)
    return problem


def _remove_from_graph(graph: NetworkGraph, everything: bool) -> NetworkGraph:
    entries = tuple(
        replace(entry, layer=_remove_from_layer(entry.layer, everything)) for entry in graph.entries
    )
    return replace(graph, entries=entries)


def _remove_from_layer(layer: Layer, everything: bool) -> Layer:
    if isinstance(layer, Submodel):
        return layer.alone(graph=_remove_from_graph(layer.graph, everything))
    if isinstance(layer, Unknown):
        return _read_without_training(layer)
    changes: dict[str, Any] = {}
    for row in field_table.table(type(layer)):
        value = getattr(layer, row.name)
        if row.kind in _KINDS and (everything or isinstance(value, Raw)):
            changes[row.name] = row.default
    for field in fields(layer):
        value = getattr(layer, field.name)
        if isinstance(value, Layer) and field.name != "inputs":
            changes[field.name] = _remove_from_layer(value, everything)
    return layer.alone(**changes) if changes else layer


def _read_without_training(layer: Unknown) -> Layer:
    """Read a layer again without arguments for training; return it unchanged if they were not
    the problem.
    """
    raw = layer.raw.value
    config = raw.get("config")
    if not isinstance(config, dict):
        return layer
    rest = {key: value for key, value in config.items() if not _TRAINING.search(key)}
    if rest == config:
        return layer
    found: list[NetworkProblem] = []
    again = read_layer({**raw, "config": {**rest, "name": layer.name}}, "", found)
    return layer if isinstance(again, Unknown) else again.alone(trainable=layer.trainable)


def with_names_for_keras(
    graph: NetworkGraph, weights: Weights
) -> tuple[NetworkGraph, dict[str, np.ndarray]]:
    """Replace each ``/`` in names of layers, which Keras 3 rejects, by ``_``, in the names of
    weights as well.
    """
    found = dict(weights)
    changed = _replace_slashes(graph, "", found)
    return changed, found


def _replace_slashes(
    graph: NetworkGraph, prefix: str, weights: dict[str, np.ndarray]
) -> NetworkGraph:
    names: dict[str, str] = {}
    taken = {entry.layer.name for entry in graph.entries if "/" not in entry.layer.name}
    entries = []
    for entry in graph.entries:
        layer = entry.layer
        if isinstance(layer, Submodel):
            layer = layer.alone(
                graph=_replace_slashes(layer.graph, f"{prefix}{layer.name}/", weights)
            )
        if "/" in layer.name:
            new = layer.name.replace("/", "_")
            while new in taken:
                new += "_"
            taken.add(new)
            names[layer.name] = new
            for name in [name for name in weights if name.startswith(f"{prefix}{layer.name}/")]:
                weights[prefix + new + name.removeprefix(prefix + layer.name)] = weights.pop(name)
            layer = layer.alone(name=new)
        entries.append(LayerEntry(layer, entry.uses))
    if not names:
        return replace(graph, entries=tuple(entries))

    def update_refs(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        return tuple(replace(ref, layer=names.get(ref.layer, ref.layer)) for ref in refs)

    def update_use(use: Use) -> Use:
        return replace(use, inputs=update_refs(use.inputs))

    entries = [LayerEntry(entry.layer, tuple(map(update_use, entry.uses))) for entry in entries]
    return replace(
        graph,
        entries=tuple(entries),
        inputs=update_refs(graph.inputs),
        outputs=update_refs(graph.outputs),
    )


_TRAINING_ARGUMENT = re.compile(r"(^|_)(initializer|regularizer|constraint)$")
# Entries that Keras 2 wrote beside the arguments, and arguments without effect at these values.
_BESIDE = frozenset(
    {
        "batch_input_shape",
        "build_config",
        "query_shape",
        "key_shape",
        "value_shape",
        "implementation",
    }
)
_NEUTRAL: dict[str, Any] = {"groups": 1, "dtype": "float32"}


def build_with_unknown(path: Path, graph: NetworkGraph, problems: list[NetworkProblem]) -> Any:
    """Return the Keras model of a network with layers that the vocabulary lacks, with the weights
    of a file.

    Raises
    ------
    ConfigError
        If Keras 3 lacks a layer or an argument; the message names it.
    """
    others = [p for p in problems if p.code not in ("unknown-layer", "unknown-argument")]
    if others:
        raise ConfigError("; ".join(map(str, others[:3])))
    _, keras = import_keras()
    made = _update_graph(keras, graph)
    made, _ = with_names_for_keras(made, {})
    with open_weights(path) as file:
        age = WriterVersion.from_file(file)
        if age.mirrors or age.version.startswith(("0.", "1.")):
            raise ConfigError("; ".join(map(str, problems[:3])))
        try:
            register()
            register_own()
            model = build_bounded(path, network_config(made))
            set_weights_from(file, model)
        except ConfigError:
            raise
        except Exception as error:  # a damaged description can fail anywhere in Keras
            raise ConfigError(
                f"{_find_first_unknown(graph)}: Keras cannot build it: {format_one_line(error)}"
            ) from None
    return model


def _find_first_unknown(graph: NetworkGraph) -> str:
    return next(e.layer.name for e in graph.entries if isinstance(e.layer, Unknown))


def _update_graph(keras: Any, graph: NetworkGraph) -> NetworkGraph:
    return replace(
        graph,
        entries=tuple(LayerEntry(_update_layer(keras, e.layer), e.uses) for e in graph.entries),
    )


def _update_layer(keras: Any, layer: Layer) -> Layer:
    if isinstance(layer, Submodel):
        return layer.alone(graph=_update_graph(keras, layer.graph))
    if not isinstance(layer, Unknown):
        return layer
    return layer.alone(raw=Raw.from_value(_update_config(keras, layer.raw.value, layer.name)))


def _update_config(keras: Any, raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the configuration of a layer, or of a cell inside one, as Keras 3 writes it."""
    kind = raw.get("class_name")
    cls = getattr(keras.layers, str(kind), None)
    registered = raw.get("registered_name") or kind
    if isinstance(registered, str) and keras.saving.get_registered_object(registered) is not None:
        # somebody's own layer, which is known here
        return {"module": None, "registered_name": registered, **raw}
    ours = str(raw.get("module") or "keras").partition(".")[0] == "keras" and raw.get(
        "registered_name"
    ) in (None, kind)
    if not ours or not (inspect.isclass(cls) and issubclass(cls, keras.layers.Layer)):
        raise ConfigError(f"{name}: Keras 3 has no layer {str(kind)[:60]}, nor have we")
    config = raw.get("config")
    known = _list_arguments(cls)
    found: dict[str, Any] = {}
    for key, value in (config if isinstance(config, Mapping) else {}).items():
        if _TRAINING_ARGUMENT.search(key) or key in _BESIDE:
            continue
        if key not in known:
            if value in (None, False) or _NEUTRAL.get(key) == value:
                continue
            raise ConfigError(
                f"{name}: {kind} of Keras 3 has no argument {key[:60]} (here {str(value)[:60]})"
            )
        found[key] = _update_value(keras, value, name, key, "module" not in raw)
    if kind == "GRUCell" and "module" not in raw:
        found.setdefault("reset_after", False)
    return {"module": "keras.layers", "class_name": kind, "config": found, "registered_name": None}


def _update_value(keras: Any, value: Any, name: str, key: str, old: bool) -> Any:
    if old and value == "hard_sigmoid" and key.endswith("activation"):
        return describe_function(HARD_SIGMOID_2)
    if (
        isinstance(value, Mapping)
        and "class_name" in value
        and getattr(keras.layers, str(value["class_name"]), None)
    ):
        return _update_config(keras, value, name)
    if isinstance(value, list):
        return [_update_value(keras, item, name, key, old) for item in value]
    return value


def _list_arguments(cls: Any) -> set[str]:
    found: set[str] = set()
    for base in cls.__mro__:
        if "__init__" in vars(base) and base is not object:
            found |= set(inspect.signature(base.__init__).parameters)
    return (found | {"name", "trainable", "dtype"}) - {"self", "kwargs", "args"}


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
        The user's own layers, which may be layers of Keras or of nnpipe: classes, or their names,
        as in :func:`~nnpipe.layers.keras.named_layers.find_named_layers`.  The file may then use no
        others.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, of another format, holds code, or
        neither Keras nor nnpipe can build its model; the message names the
        layer and the reason.
    """
    opened = open_keras_with_reason(path, own_layers)
    log_reader(path, opened.reason)
    return opened.model


def log_reader(path: str | Path, reason: str) -> None:
    """Log once per process that nnpipe's own reader read a file, and why."""
    whole = Path(path).absolute()
    if reason and whole not in _TOLD:
        _TOLD.add(whole)
        log.warning("%s: %s", path, format_reason(reason))


def format_reason(reason: str) -> str:
    """Return the text that states which reader read a file, and why."""
    return f"read by nnpipe's own reader: {reason}"


def open_keras_with_reason(path: str | Path, own_layers: LayerNames = ()) -> OpenedModel:
    """Return the model as :func:`open_keras` does, with the reason instead of a log message."""
    path = Path(path)
    own = find_named_layers(own_layers)
    structure = read_structure(path) if own else None
    if structure is None:
        return _open_model(path, own)
    import_keras()
    config = parse_structure(path, structure)
    renamed = own.rename_layers(config)
    own.check(path, config)
    with own.register_in_keras(config):
        return _open_model(
            path, own, "" if renamed == config else "it has layers of yours that nnpipe computes"
        )


def _open_model(path: Path, own: NamedLayers, reason: str = "") -> OpenedModel:
    named = tuple(own.declared.values())
    if f"{OWN_PACKAGE}>".encode() in (read_structure(path) or b""):
        register_own()
    age, refused = _read_writer_version(path), None
    reading = (
        read_keras(path, own_layers=named)
        if age is not None and not age.version.startswith("3.")
        else None
    )
    if age is not None and reading is not None and not reason:
        reason = _explain_changed_meaning(age, reading)
    if not reason:
        try:
            model = load_model(path)
            reason = _explain_changed_input(model, reading) if reading is not None else ""
            if not reason:
                return OpenedModel(model)
        except KerasRefusal as error:
            reason, refused = error.cause, error
    structure = read_structure(path)
    if structure is not None:
        parse_structure(path, structure)  # both readers reject layers that hold code
    try:
        return OpenedModel(
            _build_model(path, reading or read_keras(path, own_layers=named)), reason
        )
    except ConfigError as error:
        cause = format_one_line(error).removeprefix(f"{path}: ")
        keras = f" ({refused.cause})" if refused is not None else ""
        raise ArtifactError(
            f"{path}: {cause}{keras}; export the model as ONNX or .tflite where it was made"
        ) from None


def _read_writer_version(path: Path) -> WriterVersion | None:
    """Return the writer of an HDF5 file with a structure; ``None`` for all others, which only
    Keras 3 writes.
    """
    if get_file_kind(path) != "hdf5" or read_structure(path) is None:
        return None
    with open_weights(path) as file:
        try:
            return WriterVersion.from_file(file)
        # h5py raises any exception for damaged content; reading the weights reports it
        except Exception:
            return None


def _explain_changed_meaning(age: WriterVersion, reading: Reading) -> str:
    """Return why Keras 3 would compute different results than the writer of a file; empty if it
    would not.
    """
    if age.mirrors:
        return "Theano flipped the kernels of convolutions"
    if age.version.startswith(("0.", "1.")):
        return f"Keras {age.version} wrote it"
    changed = [problem for problem in reading.problems if problem.code == "changed-meaning"]
    return f"Keras {age.version} wrote it: {changed[0].message}" if changed else ""


def _explain_changed_input(model: Any, reading: Reading) -> str:
    """Return for which input Keras 3 assumes another shape than the file states; empty for none."""
    graph = reading.graph
    if graph is None or len(graph.inputs) != len(model.inputs):
        return ""
    for ref, tensor in zip(graph.inputs, model.inputs, strict=True):
        layer = graph.layers.get(ref.layer)
        if isinstance(layer, Input) and (layer.batch, *layer.shape) != tuple(tensor.shape):
            return (
                f"Keras 3 reads its input shape {(layer.batch, *layer.shape)} as "
                f"{tuple(tensor.shape)}"
            )
    return ""


def _build_model(path: Path, reading: Reading) -> Any:
    reading = remove_training_parts(path, reading, everything=True)
    graph = reading.graph
    problems = [problem for problem in reading.problems if problem.code not in _HARMLESS]
    damage = [
        p for p in problems if p.code in ("damaged", "size", "weights-only", "weights", "structure")
    ]
    if graph is None or damage:
        raise ConfigError("; ".join(map(str, (damage or problems)[:3])))
    if any(isinstance(entry.layer, Unknown) for entry in graph.entries):
        return build_with_unknown(path, graph, problems)
    if problems:
        raise ConfigError("; ".join(map(str, problems[:3])))
    return to_keras(*with_names_for_keras(graph, reading.weights))
