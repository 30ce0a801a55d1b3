"""Specifications of the tensors that a model has as inputs and outputs, and of what a data set
holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, SpecMismatch

Batch = Mapping[str, np.ndarray]
"""Arrays by tensor name; the first axis of each counts samples."""

DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "string".split()
)
_NUMPY = {name: np.dtype(name) for name in DTYPES - {"bfloat16", "string"}}


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape, element type and quantisation of one tensor.

    Parameters
    ----------
    name
        The name; tensors are bound by name, never by position.
    shape
        The length of each axis; ``None`` for any length.
    dtype
        One of :data:`DTYPES`.
    scale, zero_point
        Quantisation: ``real = scale * (stored - zero_point)``.  One number for
        the tensor, or one for each index along ``axis``.
    axis
        The axis of per-channel quantisation.

    Examples
    --------
    >>> spec = TensorSpec("image", (None, 28, 28, 1), "float32")
    >>> spec.shape
    (None, 28, 28, 1)
    >>> TensorSpec("image", (1, 3), "floaty")
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.SpecMismatch: tensor 'image': the dtype 'floaty' is no element type...
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    scale: float | tuple[float, ...] | None = None
    zero_point: int | tuple[int, ...] | None = None
    axis: int | None = None

    def __post_init__(self) -> None:
        try:
            self._check()
        except TypeError:  # looked at only now, for there are many tensors with many scales
            try:
                check_call(TensorSpec, vars(self))
            except ConfigError as error:
                raise SpecMismatch(str(error)) from None
            raise

    def _check(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise SpecMismatch(f"a tensor needs a name, {self.name!r} is none")
        object.__setattr__(self, "shape", tuple(self.shape))
        for length in self.shape:
            if type(length) is int and length >= 0:  # nearly all
                continue
            if length is not None and (
                not isinstance(length, int) or isinstance(length, bool) or length < 0
            ):
                raise SpecMismatch(f"tensor {self.name!r}: {length!r} is no axis length")
        self._check_quantisation()
        if self.dtype not in DTYPES:
            raise SpecMismatch(
                f"tensor {self.name!r}: the dtype {self.dtype!r} is no element type; use one of "
                f"{sorted(DTYPES)}"
            )

    def _check_quantisation(self) -> None:
        if self.scale is None:
            if self.zero_point is not None or self.axis is not None:
                raise SpecMismatch(
                    f"tensor {self.name!r}: zero_point and axis mean nothing without a scale"
                )
            return
        per_channel = isinstance(self.scale, (tuple, list))
        if per_channel != (self.axis is not None):
            raise SpecMismatch(
                f"tensor {self.name!r}: several scales need an axis, a single one has none"
            )
        scales = self.scale if isinstance(self.scale, (tuple, list)) else (self.scale,)
        if not all(math.isfinite(scale) and scale > 0 for scale in scales):
            raise SpecMismatch(f"tensor {self.name!r}: scales must be finite and above zero")
        if self.zero_point is None:
            object.__setattr__(self, "zero_point", (0,) * len(scales) if per_channel else 0)
        if isinstance(self.scale, list) or isinstance(self.zero_point, list):
            object.__setattr__(self, "scale", tuple(scales))
            object.__setattr__(self, "zero_point", tuple(self.zero_point))
        if per_channel and len(self.zero_point) != len(scales):  # type: ignore[arg-type]
            raise SpecMismatch(f"tensor {self.name!r}: as many zero points as scales are needed")

    @property
    def quantised(self) -> bool:
        """Whether the tensor has a scale, so that stored integers represent real numbers."""
        return self.scale is not None

    def check(self, array: np.ndarray) -> None:
        """Raise :class:`SpecMismatch` unless ``array`` has this element type and shape."""
        wanted = _NUMPY.get(self.dtype)  # numpy would read None as float64
        if (wanted is None or array.dtype != wanted) and not self._can_hold(array.dtype):
            raise SpecMismatch(
                f"tensor {self.name!r} has {array.dtype} elements, expected {self.dtype}"
            )
        shape = array.shape
        if shape != self.shape and (
            len(shape) != len(self.shape)
            or any(
                want is not None and have != want
                for have, want in zip(shape, self.shape, strict=True)
            )
        ):
            raise SpecMismatch(
                f"tensor {self.name!r} has shape {show_shape(shape)}, expected "
                f"{show_shape(self.shape)}"
            )

    def _can_hold(self, dtype: np.dtype[Any]) -> bool:
        if self.dtype == "string":
            return dtype.kind in "OUST"
        if self.dtype == "bfloat16":  # numpy knows it only once ml_dtypes is imported
            return bool(dtype.name == "bfloat16")
        return False

    def to_json(self) -> dict[str, Any]:
        """Return the specification in its JSON form."""
        found: dict[str, Any] = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}
        if self.scale is not None:
            found["scale"] = list(self.scale) if isinstance(self.scale, tuple) else self.scale
            found["zero_point"] = (
                list(self.zero_point) if isinstance(self.zero_point, tuple) else self.zero_point
            )
        if self.axis is not None:
            found["axis"] = self.axis
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorSpec:
        """Make a specification from the output of :meth:`to_json`; raise :class:`SpecMismatch`
        if it is malformed.
        """
        try:
            scale, zero = data.get("scale"), data.get("zero_point")
            return cls(
                data["name"],
                tuple(data["shape"]),
                data["dtype"],
                tuple(map(float, scale))
                if isinstance(scale, list)
                else None
                if scale is None
                else float(scale),
                tuple(map(int, zero))
                if isinstance(zero, list)
                else None
                if zero is None
                else int(zero),
                data.get("axis"),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise (
                error
                if isinstance(error, SpecMismatch)
                else SpecMismatch(f"not a tensor: {data!r}")
            ) from None


@dataclass(frozen=True)
class IOSpec:
    """The input and output tensors of a model.

    Examples
    --------
    >>> io = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
    >>> [spec.name for spec in io.inputs]
    ['x']
    >>> IOSpec.from_json(io.to_json()) == io
    True
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "outputs", tuple(self.outputs))
        for side, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            names = [spec.name for spec in specs]
            if len(set(names)) != len(names):
                raise SpecMismatch(f"two {side} bear one name: {', '.join(names)}")

    def check_inputs(self, batch: Batch) -> None:
        """Raise :class:`SpecMismatch` unless ``batch`` holds exactly the inputs, each with its
        shape and type.
        """
        check_batch(self.inputs, batch, "input")

    def check_outputs(self, batch: Batch) -> None:
        """Raise :class:`SpecMismatch` unless ``batch`` holds exactly the outputs, each with its
        shape and type.
        """
        check_batch(self.outputs, batch, "output")

    def __iter__(self) -> Iterator[TensorSpec]:
        yield from self.inputs
        yield from self.outputs

    def to_json(self) -> dict[str, Any]:
        """Return the specification in its JSON form."""
        return {
            "inputs": [s.to_json() for s in self.inputs],
            "outputs": [s.to_json() for s in self.outputs],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> IOSpec:
        """Make a specification from the output of :meth:`to_json`; raise :class:`SpecMismatch`
        if it is malformed.
        """
        try:
            inputs, outputs = data["inputs"], data["outputs"]
            return cls(
                tuple(map(TensorSpec.from_json, inputs)), tuple(map(TensorSpec.from_json, outputs))
            )
        except (KeyError, TypeError) as error:
            raise SpecMismatch(f"not a description of inputs and outputs: {error}") from None


def check_batch(specs: tuple[TensorSpec, ...], batch: Batch, what: str = "tensor") -> None:
    """Raise :class:`SpecMismatch` unless ``batch`` holds exactly these tensors, with equally
    many samples of each.
    """
    try:
        if len(batch) != len(specs):
            raise KeyError
        for spec in specs:
            spec.check(batch[spec.name])
    except KeyError:
        expected, given = ", ".join(spec.name for spec in specs), ", ".join(map(str, batch))
        raise SpecMismatch(
            f"expected {what}s {expected or 'none'}; given: {given or 'none'}"
        ) from None


def get_batch_size(batch: Batch) -> int:
    """Return the number of samples in a batch, or 1 if its tensors have no axes."""
    for array in batch.values():
        return int(array.shape[0]) if array.ndim else 1
    return 0


def show_shape(shape: tuple[int | None, ...]) -> str:
    """Return a shape as text, with ``?`` for free axes."""
    return "(" + ", ".join("?" if length is None else str(length) for length in shape) + ")"


def generate_random_batch(io: IOSpec, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random inputs for a model: standard normal real numbers and small integers.

    ``size`` is the length of free first axes; other free axes get length 1.
    """
    generator = np.random.default_rng(seed)
    batch: dict[str, np.ndarray] = {}
    for spec in io.inputs:
        shape = tuple((size if i == 0 else 1) if n is None else n for i, n in enumerate(spec.shape))
        if spec.dtype.startswith("float"):
            batch[spec.name] = generator.standard_normal(shape).astype(spec.dtype)
        elif spec.dtype == "bool":
            batch[spec.name] = generator.random(shape) < 0.5
        elif spec.dtype.startswith(("int", "uint")):
            batch[spec.name] = generator.integers(0, 2, shape).astype(spec.dtype)
        else:
            raise SpecMismatch(f"tensor {spec.name!r}: cannot make random {spec.dtype}")
    return batch


@dataclass(frozen=True)
class DatasetSpec:
    """The task, tensors and classes of a data set.

    Parameters
    ----------
    task
        The name of a :class:`~nnpipe.core.task.Task`, such as ``"regression"``.
    inputs, targets
        The tensors that ``read`` returns, with a free first axis for samples.
        Images are ``(None, height, width, channels)`` of ``uint8``; the target
        of a classification is ``"label"``, ``(None,)`` of ``int64``.
    class_names
        Names of the classes, ordered by class number; empty if there are no classes.
    transforms
        For some inputs, by name, the :class:`~nnpipe.core.input_transform.InputTransform` that was
        fitted to the training samples, as its class and arguments; models that are trained on them
        take it over.
    ranges
        For some inputs, by name, the least and greatest number that they may hold, if that is not
        what their element type says: pixels from 0 to 16.
    sample_rates
        For inputs that are sounds, by name, the number of samples a second, if it is known.

    Examples
    --------
    >>> from nnpipe import TensorSpec
    >>> image, label = TensorSpec("image", (8, 8, 1), "uint8"), TensorSpec("label", (), "int64")
    >>> DatasetSpec("cats and dogs", (image,), (label,), ("cat", "dog")).class_names
    ('cat', 'dog')
    """

    task: str
    inputs: tuple[TensorSpec, ...]
    targets: tuple[TensorSpec, ...]
    class_names: tuple[str, ...] = ()
    transforms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    sample_rates: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_call(DatasetSpec, vars(self))
