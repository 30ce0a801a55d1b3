"""Compare a model with its source on real samples.

The source runs once, in a process of its own; what it took and gave is written
to a file.  Others run on the same inputs, each in a process of
its own, and are compared with what is in the file.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.analysis.agreement import AgreementAccumulator, Tolerances, compare
from nnpipe.core.arguments import argument
from nnpipe.core.batch_conversion import adapt
from nnpipe.core.claims import Claim
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, NotSupported, SpecMismatch
from nnpipe.core.files import replacing
from nnpipe.core.model import ModelWrapper
from nnpipe.core.quantization import dequantize_linear
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, show_shape


class VerifyOptions(Tolerances):
    """How a model is held against the one that it was made from.

    Examples
    --------
    >>> VerifyOptions(verify_samples=16).verify_samples
    16
    """

    verify_samples: int = argument(
        64, help="test samples, drawn from a fixed seed, on which outputs are compared with the source's", minimum=0
    )


@dataclass(frozen=True)
class Reference:
    """What the source took and gave.

    Parameters
    ----------
    io
        Its inputs and outputs.
    inputs, outputs
        One batch of one sample each; outputs in real numbers.
    """

    io: IOSpec
    inputs: tuple[Batch, ...]
    outputs: tuple[Batch, ...]

    @classmethod
    def of(cls, session: InferenceSession, io: IOSpec, samples: Sequence[Batch]) -> Reference:
        """Run the source; ``samples`` are what ``io`` takes."""
        return cls(io, tuple(samples), tuple(outputs_of(session, io, samples)))

    def write(self, path: Path) -> None:
        """Write an uncompressed ``.npz`` file.

        Raises
        ------
        NotSupported
            If a tensor has elements that such a file cannot hold.
        """
        arrays: dict[str, Any] = {"io": np.array(json.dumps(self.io.to_json()))}
        for side, batches in (("i", self.inputs), ("o", self.outputs)):
            for number, batch in enumerate(batches):
                for place, spec in enumerate(self.io.inputs if side == "i" else self.io.outputs):
                    arrays[f"{side}{number}.{place}"] = _storable(spec.name, batch[spec.name])
        with replacing(path) as temporary:
            np.savez(temporary, **arrays)

    @classmethod
    def read(cls, path: Path) -> Reference:
        """Read what :meth:`write` wrote."""
        try:
            with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as content:
                io = IOSpec.from_json(json.loads(str(content["io"])))
                count = sum(name.startswith("i") and name.endswith(".0") for name in content.files)
                sides = [
                    tuple(
                        {spec.name: content[f"{side}{number}.{place}"] for place, spec in enumerate(specs)}
                        for number in range(count)
                    )
                    for side, specs in (("i", io.inputs), ("o", io.outputs))
                ]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ArtifactError(f"{path}: not what a source took and gave: {error}") from None
        return cls(io, *sides)


@dataclass(frozen=True)
class Binding:
    """How the tensors of two models belong together.

    Parameters
    ----------
    names
        The other's name for a tensor of the source, where it differs.
    axes
        For inputs of so many axes: which of the source's stands where in the other's.
    """

    names: Mapping[str, str]
    axes: tuple[int, ...] = ()

    def towards(self, inputs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        """Return the specification of the source's inputs by the other's names, axes in the other's order."""
        return tuple(map(self._turned, inputs))

    def there(self, batch: Batch) -> Batch:
        """Turn the source's inputs into the other's."""
        return {
            self.names.get(name, name): array.transpose(self.axes) if array.ndim == len(self.axes) else array
            for name, array in batch.items()
        }

    def back(self, batch: Batch) -> Batch:
        """Return the other's outputs the source's names."""
        ours = {theirs: own for own, theirs in self.names.items()}
        return {ours.get(name, name): array for name, array in batch.items()}

    def _turned(self, spec: TensorSpec) -> TensorSpec:
        turns = len(spec.shape) == len(self.axes)
        shape = tuple(spec.shape[axis] for axis in self.axes) if turns else spec.shape
        axis = self.axes.index(spec.axis) if turns and spec.axis is not None else spec.axis
        return TensorSpec(self.names.get(spec.name, spec.name), shape, spec.dtype, spec.scale, spec.zero_point, axis)


AS_THEY_ARE = Binding({})


def bound(source: IOSpec, other: IOSpec, pairs: Mapping[str, str], axes: tuple[int, ...] = ()) -> Binding:
    """Find out which tensors of two models belong together: by name; a single one with the other single one.

    Parameters
    ----------
    pairs
        The other's names by the source's, as the user gives them.

    Raises
    ------
    ConfigError
        If that leaves a doubt, or names something that is not there.
    """
    names = dict(pairs)
    for side, ours, theirs in (("input", source.inputs, other.inputs), ("output", source.outputs, other.outputs)):
        mine, free = [spec.name for spec in ours], [spec.name for spec in theirs]
        here = {own: names[own] for own in mine if own in pairs}
        for own, given in here.items():
            if given not in free:
                raise ConfigError(f"the other model has no {side} {given!r} to go with {own!r}; it has {_list(free)}")
        open_mine = [name for name in mine if name not in here]
        free = [name for name in free if name not in here.values()]
        if set(open_mine) == set(free):
            continue
        if len(open_mine) == len(free) == 1:
            names[open_mine[0]] = free[0]
            continue
        raise ConfigError(
            f"the source has the {side}s {_list(mine)}, the other {_list([s.name for s in theirs])}: "
            "say which go together with --match SOURCE=OTHER"
        )
    known = {spec.name for spec in source}
    for own in pairs:
        if own not in known:
            raise ConfigError(f"the source has no tensor {own!r}; it has {_list(sorted(known))}")
    if axes and sorted(axes) != list(range(len(axes))):
        raise ConfigError(f"{' '.join(map(str, axes))} is no order of axes: give each from 0 on once")
    binding = Binding(names, axes)
    wanted = {spec.name: spec for spec in other.inputs}
    for taken, spec in zip(source.inputs, binding.towards(source.inputs), strict=True):
        _check_shape(taken, spec, wanted[spec.name])
    return binding


def _check_shape(source: TensorSpec, given: TensorSpec, taken: TensorSpec) -> None:
    if _fits(given.shape, taken.shape):
        return
    told = f"the source takes {source.name!r} as {show_shape(source.shape)}, the other as {show_shape(taken.shape)}"
    for axes in ((0, 2, 3, 1), (0, 3, 1, 2)):
        if len(source.shape) == 4 and _fits(tuple(source.shape[axis] for axis in axes), taken.shape):
            turn = " ".join(map(str, axes))
            raise ConfigError(f"{told}; if these are the same axes in another order, give --artifact-axes {turn}")
    raise ConfigError(f"{told}; these two do not take the same samples")


def _fits(given: tuple[int | None, ...], taken: tuple[int | None, ...]) -> bool:
    # The first axis counts samples; what one side leaves open may be what the other wants.
    pairs = zip(given[1:], taken[1:], strict=False)
    return len(given) == len(taken) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def chosen(dataset: Dataset, count: int) -> np.ndarray[Any, Any]:
    """Draw so many test samples, the same ones every time."""
    test = dataset.split("test")
    if count >= len(test):
        return test
    return np.sort(np.random.default_rng(0).choice(test, count, replace=False))


def prepared_samples(wrapper: ModelWrapper, dataset: Dataset, count: int) -> list[Batch]:
    """Return so many test samples as the model takes them, one in each batch."""
    return [wrapper.preprocess(raw) for raw, _ in dataset.batches(chosen(dataset, count), 1)]


def outputs_of(
    session: InferenceSession, io: IOSpec, samples: Iterable[Batch], binding: Binding = AS_THEY_ARE
) -> Iterator[Batch]:
    """Run samples that agree with ``io``, and give each one's outputs in real numbers, by the names of ``io``.

    A session with a fixed batch size gets that many at a time, the last of them repeated to fill up.
    """
    first = session.io.inputs[0].shape if session.io.inputs else ()
    size = (first[0] or 1) if first else 1
    taken = binding.towards(io.inputs)
    group: list[Batch] = []
    for sample in samples:
        group.append(sample)
        if len(group) == size:
            yield from _run(session, taken, group, size, binding)
            group = []
    if group:
        yield from _run(session, taken, group, size, binding)


def _run(
    session: InferenceSession, taken: tuple[TensorSpec, ...], group: Sequence[Batch], size: int, binding: Binding
) -> Iterator[Batch]:
    turned = [binding.there(sample) for sample in group]
    turned += [turned[-1]] * (size - len(turned))
    joined = turned[0] if size == 1 else {n: np.concatenate([sample[n] for sample in turned]) for n in turned[0]}
    given = session.infer(adapt(joined, taken, session.io.inputs))
    outputs = binding.back({spec.name: real(given[spec.name], spec) for spec in session.io.outputs})
    if size == 1:
        yield outputs
        return
    for name, array in outputs.items():
        if not array.ndim or len(array) % size:
            raise SpecMismatch(f"output {name!r} of shape {array.shape} does not tell {size} samples apart")
    for number in range(len(group)):
        yield {
            name: array[number * len(array) // size : (number + 1) * len(array) // size]
            for name, array in outputs.items()
        }


def real(array: np.ndarray[Any, Any], spec: TensorSpec) -> np.ndarray[Any, Any]:
    """Return the numbers that stored ones stand for."""
    return array if spec.scale is None else dequantize_linear(array, spec.scale, spec.zero_point, spec.axis)


def verified(
    session: InferenceSession,
    reference: Reference,
    tolerances: Tolerances,
    binding: Binding = AS_THEY_ARE,
    claims: Iterable[Claim] = ("float",),
) -> dict[str, Any]:
    """Hold a model against its source: the verdict, its reason and the figures, as JSON can hold them."""
    comparison, worst, largest = AgreementAccumulator(), 0, -1.0
    outputs = outputs_of(session, reference.io, reference.inputs, binding)
    for number, (ours, theirs) in enumerate(zip(reference.outputs, outputs, strict=True)):
        comparison.add(ours, theirs, samples=1)
        alone = compare([ours], [theirs]).max_relative
        if alone > largest:
            worst, largest = number, alone
    return {**comparison.result().to_json(tolerances, claims), "worst_sample": worst}


def not_verified(cause: object) -> dict[str, Any]:
    """Say why a model could not be held against its source, in the form of a verdict."""
    return {"verdict": "unknown", "reason": " ".join(str(cause).split())}


def _storable(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.kind == "O":
        array = array.astype(np.str_)
    if array.dtype.kind not in "biufUS":
        raise NotSupported(f"tensor {name!r} has {array.dtype.name} elements, which are not compared")
    return array
