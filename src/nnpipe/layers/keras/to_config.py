"""The writer of the Keras 3 configuration of a graph, without Keras."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.core.files import write_bytes
from nnpipe.formats.keras import CONFIG, METADATA, WEIGHTS
from nnpipe.layers.catalogue import get_layer_class_name
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import LayerEntry, Ref, Use, infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.graph.weights import Weights, find_weight_problems
from nnpipe.layers.keras.weight_paths import iter_layer_paths, map_weight_paths
from nnpipe.layers.problems import NetworkProblem, raise_if
from nnpipe.layers.torch.to_torch import find_backend_problems
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.input import Input, Unknown
from nnpipe.layers.vocabulary.layer import Layer, Shape

TENSOR = "__keras_tensor__"
OWN = "nnpipe"
"""The key beside a layer's configuration that holds nnpipe's own entries; Keras ignores it."""
OWN_PACKAGE = "nnpipe"
"""The package under which Keras registers layers that their hook ``_build_keras`` computes."""
_KEPT = ("unknown-layer", "unknown-object", "unknown-argument", "weights")


def network_config(graph: NetworkGraph) -> dict[str, Any]:
    """Return the configuration of a whole network.

    Raises
    ------
    ConfigError
        If the graph has problems that prevent writing; unknown layers and
        arguments are written as they were read.
    """
    check_call(network_config, locals())
    raise_if((p for p in infer(graph).problems if p.code not in _KEPT), graph.name or "network")
    return _write_network(graph, graph.name, True)


def layer_config(layer: Layer) -> dict[str, Any]:
    """Return a layer's own configuration, without its calls."""
    if isinstance(layer, Submodel):
        return _write_network(layer.graph, layer.name, layer.trainable)
    if isinstance(layer, Unknown):
        raw: dict[str, Any] = layer.raw.value
        own = {"name": layer.name} if layer.name else {}
        return raw | {"config": {**raw.get("config", {}), **own}}
    config: dict[str, Any] = {"name": layer.name} if layer.name else {}
    if isinstance(layer, Input):
        shape = [layer.batch, *layer.shape]
        return _make_object(
            "keras.layers", "InputLayer", {**config, "batch_shape": shape, "dtype": layer.dtype}
        )
    if layer.has_keras_hook():
        return own_layer_config(
            type(layer), {**config, "dtype": layer.dtype, **arguments_config(layer)}
        )
    if not layer.keras:
        raise ConfigError(
            f"{layer.name}: Keras has no layer that computes what {type(layer).__name__} does"
        )
    if layer.own:
        config |= {"dtype": layer.dtype, "trainable": layer.trainable}
        beside = {
            OWN: {"class_name": get_layer_class_name(layer), "config": arguments_config(layer)}
        }
        return _make_object("keras.layers", layer.keras, config) | beside
    config |= {"dtype": layer.dtype, **arguments_config(layer)}
    config = {key: value for key, value in config.items() if key not in layer.unwritten}
    return _make_object("keras.layers", layer.keras, config)


def own_layer_config(cls: type[Layer], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a layer that its hook ``_build_keras`` computes in Keras."""
    named = f"{OWN_PACKAGE}>{cls.get_dotted_path()}"
    return _make_object("nnpipe.layers", cls.__name__, dict(config)) | {"registered_name": named}


def arguments_config(layer: Layer) -> dict[str, Any]:
    """Return the arguments of a layer; an argument that is a layer has its own configuration."""
    found = field_table.write(layer)
    return {
        key: layer_config(value) if isinstance(value, Layer) else value
        for key, value in found.items()
    }


def _make_object(module: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"module": module, "class_name": name, "config": config, "registered_name": None}


def _write_network(graph: NetworkGraph, name: str, trainable: bool) -> dict[str, Any]:
    config: dict[str, Any] = {"name": name, "trainable": trainable}
    if graph.sequential:
        config["layers"] = [layer_config(entry.layer) for entry in graph.entries]
        return _make_object("keras", "Sequential", config)
    shapes = infer(graph).shapes
    config["layers"] = [_write_entry(entry, shapes) for entry in graph.entries]
    config["input_layers"], config["output_layers"] = (
        _write_refs(graph.inputs),
        _write_refs(graph.outputs),
    )
    return _make_object("keras.src.models.functional", "Functional", config) | {
        "registered_name": "Functional"
    }


def _write_entry(entry: LayerEntry, shapes: Mapping[Ref, Shape]) -> dict[str, Any]:
    layer = entry.layer
    uses = (
        [] if isinstance(layer, Input) else [_write_use(layer, use, shapes) for use in entry.uses]
    )
    return layer_config(layer) | {"name": layer.name, "inbound_nodes": uses}


def _write_refs(refs: tuple[Ref, ...]) -> list[Any]:
    # A single tensor is written without a list: otherwise Keras expects lists of one in calls as
    # well.
    return _write_ref(refs[0]) if len(refs) == 1 else [_write_ref(ref) for ref in refs]


def _write_ref(ref: Ref) -> list[Any]:
    return [ref.layer, ref.call, ref.output]


def _write_tensor(ref: Ref, shapes: Mapping[Ref, Shape]) -> dict[str, Any]:
    # Keras requires a shape and a type here, but uses the history only.
    config = {
        "shape": list(shapes.get(ref, ())),
        "dtype": "float32",
        "keras_history": _write_ref(ref),
    }
    return {"class_name": TENSOR, "config": config}


def _write_use(layer: Layer, use: Use, shapes: Mapping[Ref, Shape]) -> dict[str, Any]:
    given = [_write_tensor(ref, shapes) for ref in use.inputs]
    if use.form is not None:
        form = _insert_tensors(use.form.value, given)
        return {"args": form["args"], "kwargs": form["kwargs"]}
    training: dict[str, Any] = {} if use.training is None else {"training": use.training}
    if len(layer.called) == 1:
        alone = isinstance(layer, (Submodel, Unknown)) or layer.has_keras_hook()
        listed = layer.grouped or (len(given) > 1 and alone)
        return {"args": [given] if listed else given, "kwargs": training}
    # Tensors that are separate arguments: query, value, key; or a sequence and its initial states.
    if layer.called[-1] == "initial_state":
        rest = {"initial_state": given[1:]} if given[1:] else {}
        return {"args": given[:1], "kwargs": rest | training}
    return {
        "args": given[:2],
        "kwargs": dict(zip(layer.called[2:], given[2:], strict=False)) | training,
    }


def _insert_tensors(form: Any, given: list[dict[str, Any]]) -> Any:
    if isinstance(form, dict):
        if form.keys() == {"input"}:
            return given[form["input"]]
        return {key: _insert_tensors(value, given) for key, value in form.items()}
    return [_insert_tensors(value, given) for value in form] if isinstance(form, list) else form


_VERSION = "3.8.0"  # version of the format; Keras ignores it
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same network gives the same bytes


def write_keras(path: str | Path, graph: NetworkGraph, weights: Weights) -> None:
    """Write a network to a ``.keras`` file for Keras 3, whole or not at all.

    Unknown layers are written as they were read, with their weights.

    Raises
    ------
    ConfigError
        If the graph has problems, or the weights do not fit it.
    MissingDependency
        If h5py is not installed.
    """
    check_call(write_keras, locals())
    try:
        import h5py
    except ImportError as error:
        raise MissingDependency(f"h5py is needed here: pip install h5py ({error})") from None
    raise_if(find_backend_problems(graph, "keras"), graph.name or "network")
    config = json.dumps(network_config(graph))
    arrays = _map_weights_to_paths(graph, weights)
    stored = io.BytesIO()
    with h5py.File(stored, "w") as file:
        file.create_group("layers")
        for place, value in arrays.items():
            file.create_dataset(place, data=value, track_times=False)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        metadata = json.dumps({"keras_version": _VERSION, "written_by": "nnpipe"})
        for name, content in ((METADATA, metadata), (CONFIG, config), (WEIGHTS, stored.getvalue())):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    write_bytes(path, written.getvalue())


def _map_weights_to_paths(graph: NetworkGraph, weights: Weights) -> dict[str, np.ndarray]:
    """Return the weights by their paths in the file."""
    found: dict[str, np.ndarray] = {}
    expected: dict[str, Any] = {}
    rest = dict(weights)
    for item in iter_layer_paths(graph):
        if item.variables is None:  # stored under their names below the layer
            prefix = f"{item.name}/"
            for name in [name for name in rest if name.startswith(prefix)]:
                found[f"{item.place}/{name.removeprefix(prefix)}"] = rest.pop(name)
            continue
        at = map_weight_paths(item)
        for variable in item.variables:
            name = f"{item.name}/{variable.name}"
            expected[name] = variable
            if name in rest:
                found[at[variable.name]] = rest.pop(name)
    known = {name: value for name, value in weights.items() if name in expected}
    problems = find_weight_problems(expected, known)
    problems += [NetworkProblem("weights", name, "is not in the network") for name in rest]
    raise_if(problems, graph.name or "network")
    return found
