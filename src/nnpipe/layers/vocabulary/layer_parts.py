"""The parts of layers: their weights, and what computes them in PyTorch and in Keras."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nnpipe.layers.vocabulary.constraints import Constraint
from nnpipe.layers.vocabulary.initialisers import Initialiser
from nnpipe.layers.vocabulary.objects import Raw
from nnpipe.layers.vocabulary.regularisers import Regulariser


@dataclass(frozen=True)
class LayerVariable:
    """One weight of a layer.

    Attributes
    ----------
    name
        Its name in the layer, such as ``kernel``.
    shape
        Its shape in Keras.
    initialiser, regulariser, constraint
        Its initial values, its penalty in the loss, and the constraint applied after each training step.
    trainable
        Whether training changes it.
    torch
        The name of the parameter or buffer in the layer's PyTorch module.
    axes
        Order of Keras's axes in PyTorch; ``None`` if it is the same.
    torch_shape
        Its shape in PyTorch, if it differs from the shape with reordered axes.
    place
        Its path below its layer in a ``.keras`` file; ``None`` for ``vars/i``, where i is its index.
    """

    name: str
    shape: tuple[int, ...]
    initialiser: Initialiser | Raw
    regulariser: Regulariser | Raw | None = None
    constraint: Constraint | Raw | None = None
    trainable: bool = True
    torch: str = ""
    axes: tuple[int, ...] | None = None
    torch_shape: tuple[int, ...] | None = None
    place: str | None = None

    @property
    def torch_name(self) -> str:
        """The name in the PyTorch module."""
        return self.torch or self.name


@dataclass(frozen=True)
class TorchParts:
    """A layer in PyTorch: a ``torch.nn.Module`` that holds the parameters, and the function that computes with it.

    ``call(module, *inputs)`` gets the module that holds ``core``, so that it can
    check whether that is in training mode.
    """

    call: Callable[..., Any]
    core: Any = None


@dataclass(frozen=True)
class KerasParts:
    """A layer in Keras: the function that computes with it, by Keras's operations (``keras.ops``).

    ``call(layer, *inputs)`` gets the weights that the hook ``_variables`` declares as ``layer.core[name]``, and
    whether the network is in training as ``layer.training``.  It returns a tensor, or a tuple of several.
    """

    call: Callable[..., Any]
