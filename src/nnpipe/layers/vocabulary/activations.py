"""Activation functions by name, and their computation in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nnpipe.frameworks.keras_files import HARD_SIGMOID_2 as HARD_SIGMOID_2
from nnpipe.frameworks.keras_files import describe_function
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary.field_table import Raw
from nnpipe.layers.vocabulary.value_kinds import NamedKind

ALIASES = {
    "swish": "silu",
    "hard_swish": "hard_silu",
    "HardSigmoid": "hard_sigmoid",
    "ReLU": "relu",
    "Softmax": "softmax",
}


@dataclass(frozen=True)
class ActivationFunction:
    """An activation function, applied to each value or along the last axis."""

    name: str = "linear"

    def faults(self) -> list[str]:
        """Return what is wrong with it; empty if nothing is."""
        return (
            []
            if self.name in get_activation_functions()
            else [f"there is no activation {self.name!r}"]
        )

    def torch(self) -> Callable[[Any], Any]:
        """Return the function for a ``torch.Tensor``."""
        name = self.name
        # Looked up in the call: a table of torch's functions would need an import of torch.
        return get_activation_functions()[name]


def get_activation_functions() -> dict[str, Callable[[Any], Any]]:
    """Return the functions for a ``torch.Tensor`` of all activations, by their names in Keras."""
    return _FUNCTIONS


def _make_functional(name: str, **arguments: Any) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        import torch.nn.functional as F

        return getattr(F, name)(x, **arguments)

    return call


def _compute_glu(x: Any) -> Any:
    half, gate = x.chunk(2, -1)
    return half * gate.sigmoid()


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda x: x,
    "relu": _make_functional("relu"),
    "relu6": _make_functional("relu6"),
    "leaky_relu": _make_functional("leaky_relu", negative_slope=0.2),
    "elu": _make_functional("elu"),
    "celu": _make_functional("celu"),
    "selu": _make_functional("selu"),
    "gelu": _make_functional("gelu"),
    "silu": _make_functional("silu"),
    "mish": _make_functional("mish"),
    "glu": _compute_glu,
    "sigmoid": lambda x: x.sigmoid(),
    "hard_sigmoid": _make_functional("hardsigmoid"),
    HARD_SIGMOID_2: lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "hard_silu": _make_functional("hardswish"),
    "log_sigmoid": _make_functional("logsigmoid"),
    "tanh": lambda x: x.tanh(),
    "hard_tanh": _make_functional("hardtanh"),
    "tanh_shrink": lambda x: x - x.tanh(),
    "softmax": _make_functional("softmax", dim=-1),
    "log_softmax": _make_functional("log_softmax", dim=-1),
    "softplus": _make_functional("softplus"),
    "softsign": _make_functional("softsign"),
    "soft_shrink": _make_functional("softshrink"),
    "hard_shrink": _make_functional("hardshrink"),
    "exponential": lambda x: x.exp(),
    "squareplus": lambda x: (x + (x.square() + 4).sqrt()) / 2,
}


def read_activation(raw: Any, path: str, found: list[NetworkProblem]) -> ActivationFunction | Raw:
    """Read an activation that Keras wrote as a name or as an object."""
    name = raw
    if isinstance(raw, Mapping):  # Keras 3 writes functions as objects
        name = raw.get("config") if raw.get("class_name") == "function" else None
    if not isinstance(name, (str, type(None))) or (name is None and not isinstance(raw, Mapping)):
        found.append(NetworkProblem("argument", path, f"is not an activation: {raw!r}"))
        return Raw.from_value(raw)
    name = ALIASES.get(str(name), name)
    if name not in _FUNCTIONS:
        found.append(
            NetworkProblem("unknown-object", path, f"an unknown activation: {str(raw)[:60]}")
        )
        return Raw.from_value(raw)
    return ActivationFunction(name)


def _write(value: ActivationFunction | Raw) -> Any:
    if isinstance(value, Raw):
        return value.value
    return describe_function(value.name) if value.name == HARD_SIGMOID_2 else value.name


class _Function(NamedKind):
    def parse(self, raw: Any, path: str, found: list[NetworkProblem]) -> Any:
        return ActivationFunction() if raw is None else super().parse(raw, path, found)

    def normal(self, value: Any, rank: int) -> Any:
        return ActivationFunction() if value is None else super().normal(value, rank)


ACTIVATION = _Function(read_activation, _write, lambda: (ActivationFunction, Raw), "an activation")
"""The kind of arguments that are activations."""
