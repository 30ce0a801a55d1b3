"""The variables of Keras models and optimisers as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError


def weights_by_path(model: Any) -> dict[str, Any]:
    """Return the weights of a model by their paths."""
    return {variable.path: np.array(variable.numpy()) for variable in model.weights}


def values_of(owner: Any) -> list[Any]:
    """Return the variables of a model or an optimiser, in their order."""
    return [np.array(variable.numpy()) for variable in owner.variables]


def paired(owner: Any, values: list[Any], path: Path) -> list[tuple[Any, Any]]:
    """Return the variables of a model or an optimiser, each with its stored value.

    Raises
    ------
    ConfigError
        If the values are of another model; the message names the ``path`` of the checkpoint.
    """
    variables = list(owner.variables)
    if [tuple(v.shape) for v in variables] != [np.shape(value) for value in values]:
        raise ConfigError(f"{path}: of another model; use another folder")
    return list(zip(variables, values, strict=True))
