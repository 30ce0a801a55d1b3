"""Functions of older Keras versions, registered so that Keras 3 can load and save models that use them."""

from __future__ import annotations

from functools import cache
from typing import Any

HARD_SIGMOID_2 = "hard_sigmoid_keras2"
"""The ``hard_sigmoid`` of Keras 1 and 2, clip(0.2 x + 0.5, 0, 1); that of Keras 3 is clip(x / 6 + 0.5, 0, 1)."""
_PACKAGE = "nnpipe"


def described(name: str) -> dict[str, Any]:
    """Return the configuration of one of these functions, as Keras 3 writes it."""
    return {"module": "builtins", "class_name": "function", "config": name, "registered_name": f"{_PACKAGE}>{name}"}


@cache
def register() -> None:
    """Register these functions in Keras, so that this process can load models that use them."""
    import keras

    @keras.saving.register_keras_serializable(package=_PACKAGE, name=HARD_SIGMOID_2)  # type: ignore[untyped-decorator, unused-ignore]
    def hard_sigmoid_keras2(x: Any) -> Any:
        return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)
