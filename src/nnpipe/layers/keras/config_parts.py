"""The parts of Keras configurations: classes by their names, shapes, types, and what is kept as
it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from nnpipe.layers.catalogue import get_layers_by_name, list_layer_classes
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import LayerEntry, Ref, Use
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.keras.to_config import OWN, TENSOR
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.field_table import Raw
from nnpipe.layers.vocabulary.input import Input, Unknown
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.value_kinds import is_integer

_OWN = frozenset({"name", "trainable", "dtype"})
# Older versions wrote the shape of the first layer's input beside the layer's arguments.
_SHAPES = ("batch_shape", "batch_input_shape")
_HARMLESS = frozenset(
    {*_SHAPES, "input_shape", "input_dtype", "ragged", "sparse", "optional", "autocast"}
)


def has_unknown_arguments(
    cls: type[Layer], config: Mapping[str, Any], path: str, found: list[NetworkProblem]
) -> bool:
    """Return whether a configuration has arguments that the class lacks; each is added to
    ``found``.
    """
    allowed = field_table.list_keys(cls) | cls.ignored | _OWN | _HARMLESS | cls.unwritten
    extra = sorted(
        str(key)
        for key, value in config.items()
        if key not in allowed and value not in (None, False)
    )
    for key in extra:
        title = cls.keras or cls.__name__
        found.append(
            NetworkProblem(
                "unknown-argument", f"{path}.config.{key}", f"{title} has no such argument"
            )
        )
    return bool(extra)


def read_input(
    config: Mapping[str, Any], values: dict[str, Any], path: str, found: list[NetworkProblem]
) -> Input:
    """Return the input of a configuration, with the ``values`` that were read already."""
    shape = read_input_shape(config)
    if shape is None:
        found.append(NetworkProblem("no-input-shape", f"{path}.config", "an input without a shape"))
        shape = (None,)
    return Input(shape[1:], shape[0], **values)


def read_input_shape(config: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the shape with the batch axis that a configuration states, or ``None``."""
    for key in _SHAPES:
        if isinstance(shape := config.get(key), (list, tuple)) and shape:
            return tuple(shape)
    if isinstance(shape := config.get("input_shape"), (list, tuple)):
        return (None, *shape)
    return None


def make_unknown(raw: Mapping[str, Any], config: Mapping[str, Any], name: str) -> Unknown:
    """Return a layer that keeps its configuration as it was written."""
    kept = {
        key: raw[key]
        for key in ("class_name", "module", "registered_name", "build_config", OWN)
        if key in raw
    }
    own = {key: value for key, value in config.items() if key != "name"}
    return Unknown((), Raw.from_value(kept | {"config": own}), name=name)


def get_keras_classes() -> Mapping[str, type[Layer]]:
    """Return the layer classes by their names in Keras."""
    return _map_by_keras_name(list_layer_classes())


@lru_cache(maxsize=4)
def _map_by_keras_name(classes: tuple[type[Layer], ...]) -> dict[str, type[Layer]]:
    """Return layer classes by their names in Keras; of several with one name the first, nnpipe's
    own.
    """
    known = [cls for cls in classes if cls.keras and not cls.own and not cls.has_keras_hook()]
    return {name: cls for cls in reversed(known) for name in (cls.keras, *cls.aliases)}


def resolve_own_class(
    raw: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[type[Layer] | None, Mapping[str, Any]]:
    """Return the class of a layer that only nnpipe has, and its arguments that Keras does not
    know.
    """
    beside = raw[OWN]
    name = beside.get("class_name") if isinstance(beside, Mapping) else None
    cls = get_layers_by_name().get(name) if isinstance(name, str) else None
    if cls is None or not cls.own or cls.keras != raw["class_name"]:
        return None, config
    more = beside.get("config")
    return cls, {**config, **(more if isinstance(more, Mapping) else {})}


def is_keras_own(raw: Mapping[str, Any]) -> bool:
    """Return whether a class is Keras's own; a foreign class or an operation may have the same
    name.
    """
    module, registered = str(raw.get("module") or "keras.layers"), raw.get("registered_name")
    own = module == "keras" or module.startswith(("keras.layers", "keras.src.layers"))
    return own and registered in (None, raw["class_name"])


def read_dtype(raw: Any) -> str:
    """Return the name of the dtype policy in a configuration."""
    if isinstance(raw, Mapping):  # a policy
        config = raw.get("config")
        raw = config.get("name") if isinstance(config, Mapping) else None
    return raw if isinstance(raw, str) else "float32"


def find_first_text(*given: Any) -> str:
    """Return the first value that is a text; the empty text if none is."""
    return next((text for text in given if isinstance(text, str)), "")


def shorten(text: Any) -> str:
    """Return the beginning of a text from a file, for a message."""
    return str(text)[:60]


_CONSTANT = "_CONSTANT_VALUE"


def read_uses(layer: Layer, raw: Any, path: str, found: list[NetworkProblem]) -> tuple[Use, ...]:
    """Return the calls of a layer; a call that cannot be read has no inputs, and a problem is
    added to ``found``.
    """
    if not isinstance(raw, list):
        found.append(NetworkProblem("structure", path, "is not a list of calls"))
        return ()
    uses = []
    for number, node in enumerate(raw):
        refs: list[Ref] = []
        try:
            if isinstance(node, Mapping):
                form = {"args": node.get("args") or [], "kwargs": node.get("kwargs") or {}}
                args, kwargs = (_extract_refs(form[key], refs) for key in ("args", "kwargs"))
                if not isinstance(args, list) or not isinstance(kwargs, dict):
                    raise ValueError("its arguments are no list, or those by name no object")
            else:
                args, kwargs = _read_old_form(node, refs)
        except (ValueError, TypeError, AttributeError) as error:
            found.append(
                NetworkProblem("structure", f"{path}[{number}]", f"is not a call: {error}")
            )
            uses.append(Use())
            continue
        if isinstance(node, Mapping) and layer.resting and kwargs.get("training") is False:
            # Keras 3 writes its default like this, and never uses it
            kwargs = {**kwargs, "training": None}
        uses.append(_make_use(layer, args, kwargs, refs))
    return tuple(uses)


def _extract_refs(raw: Any, refs: list[Ref]) -> Any:
    """Replace each tensor by ``{"input": i}``, and append its reference to ``refs``."""
    if isinstance(raw, Mapping):
        if raw.get("class_name") == TENSOR:
            config = raw.get("config")
            return _append_ref(
                config.get("keras_history") if isinstance(config, Mapping) else None, refs
            )
        if raw.keys() == {"input"}:
            raise ValueError("an argument called input, alone")
        return {key: _extract_refs(value, refs) for key, value in raw.items()}
    return [_extract_refs(value, refs) for value in raw] if isinstance(raw, list) else raw


def _append_ref(place: Any, refs: list[Ref]) -> dict[str, int]:
    if not isinstance(place, list) or len(place) < 3 or not isinstance(place[0], str):
        raise ValueError("a tensor that names no output of a layer")
    if not all(is_integer(part) for part in place[1:3]):
        raise ValueError("a tensor that names no output of a layer")
    refs.append(Ref(*place[:3]))
    return {"input": len(refs) - 1}


def _read_old_form(node: Any, refs: list[Ref]) -> tuple[list[Any], dict[str, Any]]:
    """Read ``[[name, call, output, arguments], ...]``; a single entry may lack the outer list."""
    if not isinstance(node, list) or not node:
        raise ValueError("neither a list of tensors nor an object")
    if isinstance(node[0], str):
        node = [node]
    given: list[Any] = []
    kwargs: dict[str, Any] = {}
    for item in node:
        if not isinstance(item, list) or not item:
            raise ValueError("an input that is no list")
        if item[0] == _CONSTANT:
            given.append({"constant": item[2:3]})
        else:
            given.append(_append_ref(item, refs))
        more = item[3] if len(item) > 3 else None
        for key, value in (more if isinstance(more, Mapping) else {}).items():
            kwargs[key] = _read_old_argument(value, refs)
    return ([given] if len(given) > 1 else given), kwargs


def _read_old_argument(value: Any, refs: list[Ref]) -> Any:
    if (
        isinstance(value, list)
        and len(value) in (3, 4)
        and isinstance(value[0], str)
        and is_integer(value[1])
    ):
        return _append_ref(value, refs)
    return [_read_old_argument(item, refs) for item in value] if isinstance(value, list) else value


def _make_use(layer: Layer, args: list[Any], kwargs: dict[str, Any], refs: list[Ref]) -> Use:
    """Return a call in the usual form, or in its own if it has unknown arguments."""
    training = kwargs.get("training")
    given = {key: value for key, value in kwargs.items() if value is not None and key != "training"}
    flat: list[Any] = []
    for value in args:
        flat += value if isinstance(value, list) else [value]
    # Tensors given by name follow the positional ones, in the order of the layer's parameters.
    for name in layer.called[len(args) :] if len(layer.called) > 1 else ():
        value = given.pop(name, [])
        flat += value if isinstance(value, list) else [value]
    usual = not given and all(
        isinstance(value, dict) and value.keys() == {"input"} for value in flat
    )
    if not usual or not isinstance(training, (bool, type(None))) or len(flat) != len(refs):
        kept = {key: value for key, value in kwargs.items() if value is not None}
        return Use(tuple(refs), None, Raw.from_value({"args": args, "kwargs": kept}))
    return Use(tuple(refs[value["input"]] for value in flat), training)


def renumber_calls(graph: NetworkGraph) -> NetworkGraph:
    """Return the graph with the calls of nested networks numbered from 0.

    Keras 2 counts the call that creates such a network, which no file contains,
    so that the first call in the file has the number 1.
    """
    calls: dict[str, set[int]] = {}
    refs = [
        *graph.outputs,
        *(ref for entry in graph.entries for use in entry.uses for ref in use.inputs),
    ]
    for ref in refs:
        calls.setdefault(ref.layer, set()).add(ref.call)
    late = {
        entry.layer.name
        for entry in graph.entries
        if isinstance(entry.layer, Submodel)
        and calls.get(entry.layer.name) == set(range(1, len(entry.uses) + 1))
    }
    if not late:
        return graph

    def update_refs(inputs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        return tuple(
            replace(ref, call=ref.call - 1) if ref.layer in late else ref for ref in inputs
        )

    entries = tuple(
        LayerEntry(
            entry.layer, tuple(replace(use, inputs=update_refs(use.inputs)) for use in entry.uses)
        )
        for entry in graph.entries
    )
    return replace(graph, entries=entries, outputs=update_refs(graph.outputs))


# Names of layers and arguments in older versions of Keras, and their names today.
#
# Of Keras 1, these are the names that Keras 2.0 to 2.3 still accepted with a warning.

_CLASSES = {
    "AtrousConvolution1D": "Conv1D",
    "AtrousConvolution2D": "Conv2D",
    "TimeDistributedDense": "Dense",
}
# Layers for NVIDIA GPUs, with fixed activation functions.
_CUDNN: dict[str, tuple[str, dict[str, Any]]] = {
    "CuDNNLSTM": ("LSTM", {"activation": "tanh", "recurrent_activation": "sigmoid"}),
    "CuDNNGRU": (
        "GRU",
        {"activation": "tanh", "recurrent_activation": "sigmoid", "reset_after": True},
    ),
}
_MERGED = {
    "sum": "Add",
    "mul": "Multiply",
    "ave": "Average",
    "max": "Maximum",
    "concat": "Concatenate",
    "dot": "Dot",
}
_RECURRENT = ("LSTM", "GRU", "SimpleRNN")
_ORDERINGS = {"th": "channels_first", "tf": "channels_last", "default": None}
# Renamed wherever the layer has no other argument of that name.
_NAMES = {
    "nb_filter": "filters",
    "subsample": "strides",
    "border_mode": "padding",
    "bias": "use_bias",
    "init": "kernel_initializer",
    "inner_init": "recurrent_initializer",
    "inner_activation": "recurrent_activation",
    "atrous_rate": "dilation_rate",
    "W_regularizer": "kernel_regularizer",
    "U_regularizer": "recurrent_regularizer",
    "b_regularizer": "bias_regularizer",
    "W_constraint": "kernel_constraint",
    "U_constraint": "recurrent_constraint",
    "b_constraint": "bias_constraint",
    "beta_init": "beta_initializer",
    "gamma_init": "gamma_initializer",
    "dropout_W": "dropout",
    "dropout_U": "recurrent_dropout",
}
# Arguments about the way of computing or the initial values, which do not matter here.
_GONE = frozenset({"consume_less", "forget_bias_init", "weights", "input_dtype"})


def update_old_config(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a layer's configuration with today's names.

    Nothing is left out that could change the layer's results: an argument without
    a name today stays, and is later reported as unknown.
    """
    name, config = raw.get("class_name"), raw.get("config")
    if "module" in raw or not isinstance(name, str) or not isinstance(config, Mapping):
        return raw
    found = dict(config)
    if (
        name == "Merge"
        and _MERGED.get(str(found.get("mode"))) is not None
        and not found.get("layers")
    ):
        return {**raw, "class_name": _MERGED[str(found["mode"])], "config": _update_merge(found)}
    kind = _CLASSES.get(name, name)
    if name in _CUDNN:
        kind, more = _CUDNN[name]
        found |= more
    if kind == "Embedding":
        _update_embedding(found)
    elif kind == "PReLU" and "init" in found:
        found["alpha_initializer"] = found.pop("init")
    for step in (
        _update_windows,
        _update_data_format,
        _update_units,
        _update_normalisation,
        _update_names,
    ):
        step(found, kind)
    return raw if found == config and kind == name else {**raw, "class_name": kind, "config": found}


def _update_names(config: dict[str, Any], kind: str) -> None:
    for old, new in _NAMES.items():
        if old in config and new not in config:
            config[new] = config.pop(old)
    for key in _GONE & config.keys():
        if key != "weights" or config[key] is None:
            del config[key]


def _update_units(config: dict[str, Any], kind: str) -> None:
    if (
        "output_dim" in config
        and "units" not in config
        and kind in (*_RECURRENT, "Dense", "ConvLSTM2D")
    ):
        config["units"] = config.pop("output_dim")
        if kind == "LSTM" and config.get("forget_bias_init") == "zero":
            config["unit_forget_bias"] = False


def _update_windows(config: dict[str, Any], kind: str) -> None:
    for keys in (
        ("nb_row", "nb_col"),
        ("kernel_dim1", "kernel_dim2", "kernel_dim3"),
        ("filter_length",),
    ):
        if all(key in config for key in keys) and "kernel_size" not in config:
            config["kernel_size"] = [config.pop(key) for key in keys]
    for old, new in (("subsample_length", "strides"), ("stride", "strides")):
        if old in config and new not in config:
            config[new] = config.pop(old)
    if kind != "Embedding":
        config.pop("input_dim", None)  # the input's shape states it as well
        config.pop("input_length", None)


def _update_data_format(config: dict[str, Any], kind: str) -> None:
    if (
        "dim_ordering" in config
        and config["dim_ordering"] in _ORDERINGS
        and "data_format" not in config
    ):
        config["data_format"] = _ORDERINGS[config.pop("dim_ordering")]


def _update_normalisation(config: dict[str, Any], kind: str) -> None:
    # Mode 1 normalised each sample separately, mode 2 each batch even in inference.
    if kind == "BatchNormalization" and config.get("mode") == 0:
        del config["mode"]


def _update_embedding(config: dict[str, Any]) -> None:
    for old, new in (
        ("init", "initializer"),
        ("W_regularizer", "regularizer"),
        ("W_constraint", "constraint"),
    ):
        if old in config:
            config[f"embeddings_{new}"] = config.pop(old)
            for key in _GONE & config.keys():
                del config[key]
    config.pop("dropout", None)  # for training only


def _update_merge(config: dict[str, Any]) -> dict[str, Any]:
    kept = {"name": config.get("name")}
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "concat": lambda: {"axis": config.get("concat_axis", -1)},
        "dot": lambda: {"axes": config.get("dot_axes", -1)},
    }
    make = makers.get(str(config["mode"]))
    return kept | (make() if make else {})
