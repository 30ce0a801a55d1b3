"""What all layers have in common.

A layer is a frozen dataclass whose first argument is what it is applied to::

    x = Input((28, 28, 1))
    y = Conv2d(x, 16, 5, activation="relu")
    z = Dense(Flatten(y), 10)

Its fields carry its table (``field_table``): a field says how its values are
checked, what Keras calls it and how they are read and written.  Its hooks say
the rest once for all backends: which shapes come out (``_shapes``), which
weights it has (``_variables``), and what it is in PyTorch (``_torch``).
A new layer is one class, and no list is edited: it is found as components are,
in nnpipe and in plugins, and where it has been declared in the program itself.

Two layers are equal if their arguments are; what they are applied to belongs
to the graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, TypeVar

from nnpipe.core.component import dataclass_transform
from nnpipe.core.discoverable import Discoverable, Option, annotation_text, parameter_descriptions
from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.constraints import Constraint
from nnpipe.layers.vocabulary.field_table import entry, row
from nnpipe.layers.vocabulary.initialisers import Initialiser
from nnpipe.layers.vocabulary.objects import Raw
from nnpipe.layers.vocabulary.regularisers import Regulariser
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, FlagKind

Shape: TypeAlias = "tuple[int | None, ...]"
"""A tensor's shape with the axis of samples first; ``None`` is a free axis."""

L = TypeVar("L", bound="Layer")


@dataclass(frozen=True, eq=False)
class LayerCall:
    """A layer used once more, with the same weights."""

    layer: Layer
    inputs: tuple[Tensor, ...]
    training: bool | None = None

    def __getitem__(self, index: int) -> LayerOutput:
        return LayerOutput(self, index)


@dataclass(frozen=True, eq=False)
class LayerOutput:
    """One of several outputs of a layer."""

    of: Layer | LayerCall
    index: int


Tensor: TypeAlias = "Layer | LayerCall | LayerOutput"
"""What a layer can be applied to: another layer (its first output), a further call of one, or one of its outputs."""

Inputs: TypeAlias = "Tensor | Sequence[Tensor]"


@dataclass(frozen=True)
class LayerVariable:
    """One weight of a layer.

    Attributes
    ----------
    name
        Its name in the layer, such as ``kernel``.
    shape
        Its shape as Keras has it.
    initialiser, regulariser, constraint
        Where it starts, what it adds to the loss, and what it is put back to.
    trainable
        Whether training changes it.
    torch
        The name of the parameter or buffer in the layer's PyTorch module.
    axes
        How Keras's axes are ordered there; ``None`` if alike.
    torch_shape
        Its shape there, where it is not that of the axes so ordered.
    place
        Where a ``.keras`` file has it below its layer; ``None`` if it is ``vars/i``, i being its number.
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
    """A layer in PyTorch: a ``torch.nn.Module`` with its parameters, and what is computed with it.

    ``call(module, *inputs)`` gets the module that holds ``core``, so that it can
    ask whether it is in training.
    """

    call: Callable[..., Any]
    core: Any = None


# As with components, a default is given by keyword, which is what type checkers see.
@dataclass_transform(frozen_default=True, field_specifiers=(row, field))
@dataclass(frozen=True)
class Layer(Discoverable):
    """Base of all layers.

    Authors declare arguments with :func:`~nnpipe.layers.vocabulary.field_table.row` and write the hooks:
    ``_torch`` always, ``_shapes`` where another shape comes out than goes in, ``_variables`` where there are
    weights, and ``_faults`` for what a row cannot check.  A layer that names no ``keras`` class is built in
    PyTorch alone.

    Parameters
    ----------
    inputs
        What it is applied to: a tensor, or several where it takes several;
        ``()`` for a layer that is applied later with :meth:`on`.
    name
        Its name in the graph; the graph makes one up where it is empty.
    trainable
        Whether training changes its weights.
    dtype
        What Keras computes in, such as ``float32`` or ``mixed_float16``.

    Examples
    --------
    >>> from nnpipe.layers import Input, network
    >>> from nnpipe.layers.vocabulary.value_kinds import NumberKind
    >>> class Swish(Layer):
    ...     'x times the sigmoid of beta x.'
    ...     beta: float = row(NumberKind(), default=1.0)
    ...     def _torch(self, *shapes):
    ...         return TorchParts(lambda module, x: x * (self.beta * x).sigmoid())
    >>> graph = network(x := Input((4,)), Swish(x, beta=2.0))
    >>> graph.problems()
    ()
    """

    abstract: ClassVar[bool] = True
    keras: ClassVar[str] = ""
    """The name of the class in Keras; empty if Keras has none that computes the same."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names, of older versions."""
    own: ClassVar[bool] = False
    """Whether Keras has no such layer; ``keras`` is then one that computes the same."""
    ignored: ClassVar[frozenset[str]] = frozenset()
    """Keys of a Keras configuration that say nothing that the table does not."""
    called: ClassVar[tuple[str, ...]] = ("inputs",)
    """What Keras calls the arguments of a call that are tensors."""
    resting: ClassVar[bool] = False
    """Whether Keras notes ``training=False`` at each call that says nothing of it."""
    rests_when_frozen: ClassVar[bool] = False
    """Whether it behaves as in inference while it is not trained, as normalisations do."""
    unwritten: ClassVar[frozenset[str]] = frozenset()
    """Keys that Keras lacks, although similar layers have the argument."""
    rank: ClassVar[int] = 0
    """Number of spatial axes."""
    takes: ClassVar[tuple[int, int | None]] = (1, 1)
    """Least and greatest number of inputs; ``None`` for any."""
    grouped: ClassVar[bool] = False
    """Whether Keras wants the inputs in one list."""

    inputs: Inputs = field(compare=False, repr=False)
    name: str = field(default="", kw_only=True)
    trainable: bool = field(default=True, kw_only=True, metadata=entry(FlagKind()))
    dtype: str = field(default="float32", kw_only=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        field_table.settle(self, self.rank)

    def __getitem__(self, index: int) -> LayerOutput:
        return LayerOutput(self, index)

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Describe the arguments of the table, with what the docstring says of them."""
        said, kinds = parameter_descriptions(cls), {f.name: annotation_text(f.type) for f in dataclasses.fields(cls)}
        return tuple(Option(r.name, kinds[r.name], said.get(r.name, ""), r.default) for r in field_table.table(cls))

    def on(self, inputs: Inputs, *, training: bool | None = None) -> LayerCall:
        """Use this layer once more, with the same weights.

        ``training=False`` makes it behave as in inference even while the rest
        is trained, which is what a network used for its features wants.
        """
        return LayerCall(self, tensors(inputs), training)

    def alone(self: L, **changes: Any) -> L:
        """Return this layer without what it is applied to, with some arguments changed."""
        return dataclasses.replace(self, inputs=(), **changes)

    def faults(self) -> Iterator[tuple[str, str]]:
        """List what is wrong with the arguments: the argument and the fault, all of them."""
        found = list(field_table.faults(self, self.rank))
        yield from found
        if not found:
            yield from self._faults()

    def shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        """Return the shapes that come out where ``shapes`` go in; the arguments must be in order.

        Raises
        ------
        Misfit
            If they do not fit the layer, or each other.
        """
        least, most = self.takes
        if len(shapes) < least or (most is not None and len(shapes) > most):
            wanted = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            raise Misfit(f"takes {wanted} inputs, not {len(shapes)}", "arity")
        return self._shapes(*shapes)

    def variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        """List the weights for inputs of these shapes, in Keras's order."""
        return self._variables(*shapes)

    def limits(self, backend: str) -> Iterable[str]:
        """Say what ``"torch"`` or ``"keras"`` cannot compute of this layer; nothing, as a rule."""
        return ()

    def _faults(self) -> Iterable[tuple[str, str]]:
        return ()

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        return (shapes[0],)

    def _variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        return ()

    def _torch(self, *shapes: Shape) -> TorchParts:
        raise NotImplementedError


LAST_FIRST = ("channels_last", "channels_first")


def data_format() -> Any:
    """Declare where the channels are; a configuration without it means the last axis."""
    return row(ChoiceKind(LAST_FIRST, otherwise="channels_last"), default="channels_last")


def tensors(inputs: Inputs) -> tuple[Tensor, ...]:
    """Return inputs as a tuple, one alone too."""
    return (inputs,) if isinstance(inputs, (Layer, LayerCall, LayerOutput)) else tuple(inputs)


def known(extent: int | None, what: str) -> int:
    """Return an extent that the layer's weights depend on; a free one is a misfit."""
    if extent is None:
        raise Misfit(f"needs to know {what}, which is free")
    return extent
