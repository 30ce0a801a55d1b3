"""One operation in translation, and the type of its handlers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.registry import map_names_to_classes
from nnpipe.formats.onnx_network import ONNXNode
from nnpipe.layers.imports.channels_first import Builder, Unsupported, View
from nnpipe.layers.vocabulary.layer import Layer


class Step:
    """One operation in translation: its inputs, its attributes, and the builder of layers."""

    def __init__(
        self,
        node: ONNXNode,
        *,
        builder: Builder,
        opset: int,
        samples: int,
        values: Mapping[str, View],
        constants: Mapping[str, np.ndarray],
        users: Mapping[str, int],
        made: Mapping[str, Any],
    ) -> None:
        self.builder, self.node, self.opset, self.samples = builder, node, opset, samples
        self._values, self._constants = values, constants
        self._users, self._made = users, made

    def has(self, place: int) -> bool:
        """Return whether there is an input at this position."""
        return bool(self.node.get_input(place))

    def view(self, place: int = 0) -> View:
        """Return an input that depends on the network's inputs, after pending padding and
        flattening.
        """
        return self.builder.apply_pending(self.get_pending_view(place))

    def get_pending_view(self, place: int = 0) -> View:
        """Return an input that depends on the network's inputs, before pending padding and
        flattening.
        """
        name = self.node.get_input(place)
        if name not in self._values:
            raise Unsupported(f"takes a constant where a value belongs, as input {place}")
        found = self._values[name]
        found.axes  # noqa: B018 - raises if the shape is not known
        return found

    def is_constant(self, place: int) -> bool:
        """Return whether an input is a constant."""
        return self.node.get_input(place) in self._constants

    def constant(self, place: int, what: str = "") -> np.ndarray:
        """Return an input that must be a constant; raise ``Unsupported`` if it is not."""
        name = self.node.get_input(place)
        if name not in self._constants:
            raise Unsupported(f"takes {what or f'input {place}'} that is no constant", what)
        return self._constants[name]

    def attribute(self, name: str, otherwise: Any = None) -> Any:
        """Return an attribute, or ``otherwise`` if it is left out."""
        found = self.node.attributes.get(name)
        return otherwise if found is None else found

    def only(self, name: str, *allowed: Any) -> None:
        """Raise ``Unsupported`` if an attribute has any other value; it may be left out."""
        found = self.attribute(name)
        if found is not None and found not in allowed:
            raise Unsupported(f"has {name} {str(found)[:60]!r}, which no layer has", name)

    def read_integers(self, name: str, place: int, otherwise: Any = None) -> list[int]:
        """Return integers that are an attribute in older operator sets and an input in newer
        ones.
        """
        if self.has(place):
            return [int(number) for number in self.constant(place, name).reshape(-1)]
        found = self.attribute(name, otherwise)
        return [
            int(number) for number in ((found,) if isinstance(found, (int, float)) else found or ())
        ]

    def name(self, weight: int | None = None) -> str:
        """Return a name for a layer: its weight's name without the last part, or the operation's
        name.
        """
        if weight is not None and self.has(weight):
            prefix, _, last = self.node.get_input(weight).rpartition(".")
            if last in ("weight", "bias") and prefix:
                return self.builder.name(prefix)
        return self.builder.name(self.node.title or self.node.kind)

    def is_wanted(self, output: int) -> bool:
        """Return whether any operation takes this output, or it is an output of the network."""
        return output < len(self.node.outputs) and self._users[self.node.outputs[output]] > 0

    def is_first(self, place: int, layer: Any) -> bool:
        """Return whether an input is the direct result of a layer, and no other operation takes
        it.
        """
        name = self.node.get_input(place)
        return self._users[name] == 1 and self._made.get(name) is layer


Handler = Callable[[Step], "View | Sequence[View | None] | None"]
"""Returns the first result of an operation, or several."""


class Operator(Discoverable):
    """Translates an operator of ONNX into a layer; a class in a plugin is found like a component.

    An operator with several inputs that depend on the network's inputs gets the first one only, and
    nnpipe's own translations come first.

    Attributes
    ----------
    operator
        The name of the operator in ONNX files, after its domain: ``acme::Leak``; for ONNX's own
        domain the name alone.

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
    """Whether each output depends on one value of the input, so that the order of axes does not
    matter.
    """

    @abstractmethod
    def layer(self, step: Step) -> Layer:
        """Return the layer of an operation, without its inputs, whose channels are last.

        Parameters
        ----------
        step
            The operation: ``step.attribute(name)``, and ``step.constant(place)`` for inputs that
            are constants.

        Raises
        ------
        Unsupported
            If no layer computes it; the operation is then kept as it is, and reported.
        """

    def weights(self, step: Step) -> Mapping[str, np.ndarray]:
        """Return the weights of the layer by name, in the shapes of its variables; by default
        none.
        """
        return {}


def find_plugin_operators() -> Mapping[str, Operator]:
    """Return the operators of plugins and of the running program by their names in ONNX."""
    return {cls.operator: cls() for cls in map_names_to_classes(Operator).values() if cls.operator}


def make_plugin_handler(kind: str) -> Handler | None:
    """Return the function that translates an operator of a plugin; ``None`` if none translates
    it.
    """
    operator = find_plugin_operators().get(kind)
    if operator is None:
        return None

    def handle(step: Step) -> View:
        view = step.view()
        if not operator.elementwise and len(view.order) > 2:
            view = step.builder.channels_last(view)
        layer = operator.layer(step)
        applied = replace(layer, inputs=view.tensor, name=layer.name or step.name())
        return step.builder.put(view, applied, operator.weights(step))

    return handle
