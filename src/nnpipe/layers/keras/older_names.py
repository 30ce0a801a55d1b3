"""Names of layers and arguments in older versions of Keras, and their names today.

Of Keras 1, these are the names that Keras 2.0 to 2.3 still accepted with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_CLASSES = {
    "AtrousConvolution1D": "Conv1D",
    "AtrousConvolution2D": "Conv2D",
    "TimeDistributedDense": "Dense",
}
# Layers for NVIDIA GPUs, with fixed activation functions.
_CUDNN: dict[str, tuple[str, dict[str, Any]]] = {
    "CuDNNLSTM": ("LSTM", {"activation": "tanh", "recurrent_activation": "sigmoid"}),
    "CuDNNGRU": ("GRU", {"activation": "tanh", "recurrent_activation": "sigmoid", "reset_after": True}),
}
_MERGED = {"sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum", "concat": "Concatenate", "dot": "Dot"}
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


def in_todays_words(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a layer's configuration with today's names.

    Nothing is left out that could change the layer's results: an argument without
    a name today stays, and is later reported as unknown.
    """
    name, config = raw.get("class_name"), raw.get("config")
    if "module" in raw or not isinstance(name, str) or not isinstance(config, Mapping):
        return raw
    found = dict(config)
    if name == "Merge" and _MERGED.get(str(found.get("mode"))) is not None and not found.get("layers"):
        return {**raw, "class_name": _MERGED[str(found["mode"])], "config": _merge(found)}
    kind = _CLASSES.get(name, name)
    if name in _CUDNN:
        kind, more = _CUDNN[name]
        found |= more
    if kind == "Embedding":
        _embedding(found)
    elif kind == "PReLU" and "init" in found:
        found["alpha_initializer"] = found.pop("init")
    for step in (_windows, _ordering, _units, _normalisation, _names):
        step(found, kind)
    return raw if found == config and kind == name else {**raw, "class_name": kind, "config": found}


def _names(config: dict[str, Any], kind: str) -> None:
    for old, new in _NAMES.items():
        if old in config and new not in config:
            config[new] = config.pop(old)
    for key in _GONE & config.keys():
        if key != "weights" or config[key] is None:
            del config[key]


def _units(config: dict[str, Any], kind: str) -> None:
    if "output_dim" in config and "units" not in config and kind in (*_RECURRENT, "Dense", "ConvLSTM2D"):
        config["units"] = config.pop("output_dim")
        if kind == "LSTM" and config.get("forget_bias_init") == "zero":
            config["unit_forget_bias"] = False


def _windows(config: dict[str, Any], kind: str) -> None:
    for keys in (("nb_row", "nb_col"), ("kernel_dim1", "kernel_dim2", "kernel_dim3"), ("filter_length",)):
        if all(key in config for key in keys) and "kernel_size" not in config:
            config["kernel_size"] = [config.pop(key) for key in keys]
    for old, new in (("subsample_length", "strides"), ("stride", "strides")):
        if old in config and new not in config:
            config[new] = config.pop(old)
    if kind != "Embedding":
        config.pop("input_dim", None)  # the input's shape states it as well
        config.pop("input_length", None)


def _ordering(config: dict[str, Any], kind: str) -> None:
    if "dim_ordering" in config and config["dim_ordering"] in _ORDERINGS and "data_format" not in config:
        config["data_format"] = _ORDERINGS[config.pop("dim_ordering")]


def _normalisation(config: dict[str, Any], kind: str) -> None:
    # Mode 1 normalised each sample separately, mode 2 each batch even in inference.
    if kind == "BatchNormalization" and config.get("mode") == 0:
        del config["mode"]


def _embedding(config: dict[str, Any]) -> None:
    for old, new in (("init", "initializer"), ("W_regularizer", "regularizer"), ("W_constraint", "constraint")):
        if old in config:
            config[f"embeddings_{new}"] = config.pop(old)
            for key in _GONE & config.keys():
                del config[key]
    config.pop("dropout", None)  # for training only


def _merge(config: dict[str, Any]) -> dict[str, Any]:
    kept = {"name": config.get("name")}
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "concat": lambda: {"axis": config.get("concat_axis", -1)},
        "dot": lambda: {"axes": config.get("dot_axes", -1)},
    }
    make = makers.get(str(config["mode"]))
    return kept | (make() if make else {})
