"""Operators of one's own: what ONNX files and PyTorch modules hold besides those that nnpipe translates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.registry import named
from nnpipe.layers.imports.step import Step
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


def own_operators() -> Mapping[str, Operator]:
    """Return the operators of plugins and of the running program by their names in ONNX."""
    return {cls.operator: cls() for cls in named(Operator).values() if cls.operator}
