"""The base class of layers.

A layer is a frozen dataclass whose first argument is the tensor that it is applied to::

    x = Input((28, 28, 1))
    y = Conv2d(x, 16, 5, activation="relu")
    z = Dense(Flatten(y), 10)

Its fields form its table (``field_table``): a field states how its values are
checked, its name in Keras, and how values are read and written.  Its hooks state
the rest once for all backends: the shapes of its outputs (``_infer_shapes``), its
weights (``_describe_variables``), its PyTorch module (``_build_torch``), and what computes it in
Keras if Keras has no such layer (``_build_keras``).
A new layer is one class, and no list is edited: layers are found like components,
in nnpipe, in plugins, and in the running program.

Two layers are equal if their arguments are equal; their inputs belong to the
graph and are not compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, TypeVar

from nnpipe.core.component import dataclass_transform
from nnpipe.core.discoverable import (
    Discoverable,
    Option,
    extract_parameter_descriptions,
    format_annotation,
)
from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.field_table import Raw, make_row_metadata, row
from nnpipe.layers.vocabulary.initialisers import Initialiser
from nnpipe.layers.vocabulary.regularisers import Constraint, Regulariser
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, FlagKind


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
        Its initial values, its penalty in the loss, and the constraint applied after each training
        step.
    trainable
        Whether training changes it.
    torch
        The name of the parameter or buffer in the layer's PyTorch module.
    axes
        Order of Keras's axes in PyTorch; ``None`` if it is the same.
    torch_shape
        Its shape in PyTorch, if it differs from the shape with reordered axes.
    place
        Its path below its layer in a ``.keras`` file; ``None`` for ``vars/i``, where i is its
        index.
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
    """A layer in PyTorch: a ``torch.nn.Module`` that holds the parameters, and the function that
    computes with it.

    ``call(module, *inputs)`` gets the module that holds ``core``, so that it can
    check whether that is in training mode.
    """

    call: Callable[..., Any]
    core: Any = None


@dataclass(frozen=True)
class KerasParts:
    """A layer in Keras: the function that computes with it, by Keras's operations (``keras.ops``).

    ``call(layer, *inputs)`` gets the weights that the hook ``_describe_variables`` declares as
    ``layer.core[name]``, and whether the network is in training as ``layer.training``.  It returns
    a tensor, or a tuple of several.
    """

    call: Callable[..., Any]


Shape: TypeAlias = "tuple[int | None, ...]"
"""A tensor's shape with the batch axis first; ``None`` is a free axis."""

L = TypeVar("L", bound="Layer")


@dataclass(frozen=True, eq=False)
class LayerCall:
    """A further call of a layer, with the same weights."""

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
"""An input of a layer: another layer (its first output), a further call of one, or one output of
several.
"""

Inputs: TypeAlias = "Tensor | Sequence[Tensor]"


# A default is given by keyword, as in components, so that type checkers see it.
@dataclass_transform(frozen_default=True, field_specifiers=(row, field))
@dataclass(frozen=True)
class Layer(Discoverable):
    """Base of all layers.

    Authors declare arguments with :func:`~nnpipe.layers.vocabulary.field_table.row` and write the
    hooks: ``_build_torch`` always, ``_infer_shapes`` if the output's shape differs from the
    input's, ``_describe_variables`` if the layer has weights, and ``_find_faults`` for checks that
    a row cannot make.  A layer that names no ``keras`` class is built in Keras by
    ``_build_keras``, and in PyTorch only if it has no such hook.

    Parameters
    ----------
    inputs
        The tensor, or several tensors, that it is applied to;
        ``()`` for a layer that is applied later with :meth:`on`.
    name
        Its name in the graph; the graph chooses one if it is empty.
    trainable
        Whether training changes its weights.
    dtype
        The dtype policy in Keras, such as ``float32`` or ``mixed_float16``.

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
    """Name of the class in Keras; empty if Keras has no equivalent."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Names of the class in older versions of Keras."""
    own: ClassVar[bool] = False
    """Whether nnpipe alone has this layer; ``keras`` then names a layer that computes the same."""
    ignored: ClassVar[frozenset[str]] = frozenset()
    """Keys of a Keras configuration that add nothing to the table."""
    called: ClassVar[tuple[str, ...]] = ("inputs",)
    """Names that Keras gives to the tensor arguments of a call."""
    resting: ClassVar[bool] = False
    """Whether Keras records ``training=False`` for calls that leave ``training`` out."""
    rests_when_frozen: ClassVar[bool] = False
    """Whether it behaves as in inference while ``trainable`` is false, as batch normalisation
    does.
    """
    unwritten: ClassVar[frozenset[str]] = frozenset()
    """Keys that this layer lacks in Keras, although similar layers have them."""
    rank: ClassVar[int] = 0
    """Number of spatial axes."""
    takes: ClassVar[tuple[int, int | None]] = (1, 1)
    """Least and greatest number of inputs; ``None`` for no limit."""
    grouped: ClassVar[bool] = False
    """Whether Keras takes the inputs as one list."""

    inputs: Inputs = field(compare=False, repr=False)
    name: str = field(default="", kw_only=True)
    trainable: bool = field(default=True, kw_only=True, metadata=make_row_metadata(FlagKind()))
    dtype: str = field(default="float32", kw_only=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        field_table.normalize_fields(self, self.rank)

    def __getitem__(self, index: int) -> LayerOutput:
        return LayerOutput(self, index)

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Return the arguments of the table, with their help from the docstring."""
        said, kinds = (
            extract_parameter_descriptions(cls),
            {f.name: format_annotation(f.type) for f in dataclasses.fields(cls)},
        )
        return tuple(
            Option(r.name, kinds[r.name], said.get(r.name, ""), r.default)
            for r in field_table.table(cls)
        )

    def on(self, inputs: Inputs, *, training: bool | None = None) -> LayerCall:
        """Apply this layer to other inputs, with the same weights.

        Parameters
        ----------
        inputs
            A tensor, or several for a layer with several inputs.
        training
            ``False`` makes it behave as in inference even while the rest of the network is trained,
            as a frozen feature extractor should; ``None`` follows the network.
        """
        return LayerCall(self, as_tensors(inputs), training)

    def alone(self: L, **changes: Any) -> L:
        """Return a copy of this layer without its inputs, with some arguments changed."""
        return dataclasses.replace(self, inputs=(), **changes)

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield everything that is wrong with the arguments, as pairs of argument and fault."""
        found = list(field_table.find_faults(self, self.rank))
        yield from found
        if not found:
            yield from self._find_faults()

    def shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        """Return the shapes of the outputs for inputs of these shapes.

        The layer's arguments must be valid: :meth:`faults` yields nothing.

        Raises
        ------
        Misfit
            If the shapes do not fit the layer, or each other.
        """
        least, most = self.takes
        if len(shapes) < least or (most is not None and len(shapes) > most):
            wanted = (
                f"{least}"
                if least == most
                else f"{least} or more"
                if most is None
                else f"{least} to {most}"
            )
            raise Misfit(f"takes {wanted} inputs, not {len(shapes)}", "arity")
        return self._infer_shapes(*shapes)

    def variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        """Return the weights for inputs of these shapes, in Keras's order."""
        return self._describe_variables(*shapes)

    def limits(self, backend: str) -> Iterable[str]:
        """Return what ``"torch"`` or ``"keras"`` cannot compute of this layer; nothing by
        default.
        """
        return ()

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        return ()

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        return (shapes[0],)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        return ()

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        raise NotImplementedError

    def _build_keras(self, *shapes: Shape) -> KerasParts:
        raise NotImplementedError

    @classmethod
    def has_keras_hook(cls) -> bool:
        """Return whether the class says itself what computes it in Keras."""
        return cls._build_keras is not Layer._build_keras


LAST_FIRST = ("channels_last", "channels_first")


def declare_data_format() -> Any:
    """Declare the argument ``data_format``; a configuration without it means channels last."""
    return row(ChoiceKind(LAST_FIRST, otherwise="channels_last"), default="channels_last")


def as_tensors(inputs: Inputs) -> tuple[Tensor, ...]:
    """Return inputs as a tuple, also if there is only one."""
    return (inputs,) if isinstance(inputs, (Layer, LayerCall, LayerOutput)) else tuple(inputs)


def require_static(extent: int | None, what: str) -> int:
    """Return an extent that the layer's weights depend on.

    Raises
    ------
    Misfit
        If it is free; the message contains ``what``.
    """
    if extent is None:
        raise Misfit(f"needs to know {what}, which is free")
    return extent
