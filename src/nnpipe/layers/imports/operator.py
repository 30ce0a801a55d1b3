"""Operators of one's own: what ONNX files and PyTorch modules hold besides those that nnpipe translates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.registry import named
from nnpipe.layers.imports.channels_first import View
from nnpipe.layers.imports.step import Handler, Step
from nnpipe.layers.vocabulary.layer import Layer


class Operator(Discoverable):
    """Translates an operator of ONNX into a layer; a class in a plugin is found like a component.

    An operator with several inputs that depend on the network's inputs gets the first one only, and nnpipe's own
    translations come first.

    Attributes
    ----------
    operator
        The name of the operator in ONNX files, after its domain: ``acme::Leak``; for ONNX's own domain the name alone.

    Examples
    --------
    >>> from nnpipe.layers.vocabulary.activation_layers import LeakyReLU
    >>> class Leaky(Operator):
    ...     'The operator Leak of our exporter.'
    ...     operator = "acme::Leak"
    ...     def layer(self, step):
    ...         return LeakyReLU((), float(step.attribute("slope", 0.1)))
    >>> Leaky().operator
    'acme::Leak'
    """

    abstract: ClassVar[bool] = True
    operator: ClassVar[str] = ""
    elementwise: ClassVar[bool] = False
    """Whether each output depends on one value of the input, so that the order of axes does not matter."""

    @abstractmethod
    def layer(self, step: Step) -> Layer:
        """Return the layer of an operation, without its inputs, whose channels are last.

        Parameters
        ----------
        step
            The operation: ``step.attribute(name)``, and ``step.constant(place)`` for inputs that are constants.

        Raises
        ------
        Unsupported
            If no layer computes it; the operation is then kept as it is, and reported.
        """

    def weights(self, step: Step) -> Mapping[str, np.ndarray]:
        """Return the weights of the layer by name, in the shapes of its variables; by default none."""
        return {}


def own_operators() -> Mapping[str, Operator]:
    """Return the operators of plugins and of the running program by their names in ONNX."""
    return {cls.operator: cls() for cls in named(Operator).values() if cls.operator}


def own_handler(kind: str) -> Handler | None:
    """Return the function that translates an operator of a plugin; ``None`` if none translates it."""
    operator = own_operators().get(kind)
    if operator is None:
        return None

    def handler(step: Step) -> View:
        view = step.view()
        if not operator.elementwise and len(view.order) > 2:
            view = step.builder.channels_last(view)
        layer = operator.layer(step)
        applied = replace(layer, inputs=view.tensor, name=layer.name or step.name())
        return step.builder.put(view, applied, operator.weights(step))

    return handler
