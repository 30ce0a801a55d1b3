"""Comparing a model with its source on real samples.

The source runs once, in a subprocess; its inputs and outputs are written to a
file.  Other models run on the same inputs, each in a subprocess, and are compared
with the file.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.analysis.agreement import AgreementAccumulator, Tolerances, compare
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Claim, normalize_claims
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, NotSupported, SpecMismatch
from nnpipe.core.files import replace_atomically
from nnpipe.core.model import ModelWrapper
from nnpipe.core.quantization import adapt, dequantize_linear
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.workflows.verification.binding import AS_THEY_ARE, Binding


class VerifyOptions(Tolerances):
    """How to compare a model with its source.

    Examples
    --------
    >>> VerifyOptions(verify_samples=16).verify_samples
    16
    """

    verify_samples: int = argument(
        64,
        help=(
            "test samples, drawn from a fixed seed, on which outputs are compared with the source's"
        ),
        minimum=0,
    )


@dataclass(frozen=True)
class Reference:
    """The inputs and outputs of the source.

    Parameters
    ----------
    io
        The specification of its inputs and outputs.
    inputs, outputs
        A batch of one sample each; outputs are floating point.
    numbers
        The number format in which it computes; outputs of a conversion need not be closer than
        that.
    classes
        Whether the first output may hold scores of classes, so that it matters which one is the
        greatest.
    """

    io: IOSpec
    inputs: tuple[Batch, ...]
    outputs: tuple[Batch, ...]
    numbers: Claim = "float"
    classes: bool = True

    @classmethod
    def from_session(
        cls,
        session: InferenceSession,
        io: IOSpec,
        samples: Sequence[Batch],
        numbers: Claim = "float",
        classes: bool = True,
    ) -> Reference:
        """Run the source on samples that agree with ``io``, and return its inputs and outputs."""
        outputs = list(iter_outputs(session, io, samples))
        inputs = [
            session.get_comparison_inputs(*each) for each in zip(samples, outputs, strict=True)
        ]
        changed = [number for number, each in enumerate(inputs) if each is not samples[number]]
        for number, found in zip(
            changed, iter_outputs(session, io, [inputs[n] for n in changed]), strict=True
        ):
            outputs[number] = found
        return cls(io, tuple(inputs), tuple(outputs), numbers, classes)

    def with_own_numbers(self, claims: Iterable[Claim]) -> tuple[Claim, ...]:
        """Return claims of a conversion with the number format of its source: nothing can be
        closer than that.
        """
        return normalize_claims((*claims, self.numbers))

    def write(self, path: Path) -> None:
        """Write an uncompressed ``.npz`` file.

        Raises
        ------
        NotSupported
            If a tensor has an element type that such a file cannot hold.
        """
        arrays: dict[str, Any] = {
            "io": np.array(json.dumps(self.io.to_json())),
            "numbers": np.array(self.numbers),
        }
        arrays["classes"] = np.array(self.classes)
        for side, batches in (("i", self.inputs), ("o", self.outputs)):
            for number, batch in enumerate(batches):
                for place, spec in enumerate(self.io.inputs if side == "i" else self.io.outputs):
                    arrays[f"{side}{number}.{place}"] = _to_storable(spec.name, batch[spec.name])
        with replace_atomically(path) as temporary:
            np.savez(temporary, **arrays)

    @classmethod
    def read(cls, path: Path) -> Reference:
        """Return the reference that :meth:`write` wrote."""
        try:
            with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as content:
                io = IOSpec.from_json(parse_json(str(content["io"])))
                numbers = normalize_claims([str(content["numbers"])])[0]
                classes = bool(content["classes"])
                count = sum(name.startswith("i") and name.endswith(".0") for name in content.files)
                sides = [
                    tuple(
                        {
                            spec.name: content[f"{side}{number}.{place}"]
                            for place, spec in enumerate(specs)
                        }
                        for number in range(count)
                    )
                    for side, specs in (("i", io.inputs), ("o", io.outputs))
                ]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ArtifactError(f"{path}: not what a source took and gave: {error}") from None
        return cls(io, sides[0], sides[1], numbers, classes)


def select_test_samples(dataset: Dataset, count: int) -> np.ndarray[Any, Any]:
    """Return ``count`` random indices of test samples, always the same ones."""
    test = dataset.split("test")
    if count >= len(test):
        return test
    return np.sort(np.random.default_rng(0).choice(test, count, replace=False))


def prepare_samples(wrapper: ModelWrapper, dataset: Dataset, count: int) -> list[Batch]:
    """Return ``count`` preprocessed test samples, one in each batch."""
    return [
        wrapper.preprocess(raw)
        for raw, _ in dataset.batches(select_test_samples(dataset, count), 1)
    ]


def iter_outputs(
    session: InferenceSession, io: IOSpec, samples: Iterable[Batch], binding: Binding = AS_THEY_ARE
) -> Iterator[Batch]:
    """Run samples that agree with ``io``, and yield each one's floating-point outputs by the names
    of ``io``.

    A session with a fixed batch size gets that many at a time; the last sample is repeated to fill
    the batch.
    """
    first = session.io.inputs[0].shape if session.io.inputs else ()
    size = (first[0] or 1) if first else 1
    taken = binding.to_other_specs(io.inputs)
    group: list[Batch] = []
    for sample in samples:
        group.append(sample)
        if len(group) == size:
            yield from _run(session, taken, group, size, binding)
            group = []
    if group:
        yield from _run(session, taken, group, size, binding)


def _run(
    session: InferenceSession,
    taken: tuple[TensorSpec, ...],
    group: Sequence[Batch],
    size: int,
    binding: Binding,
) -> Iterator[Batch]:
    turned = [binding.to_other(sample) for sample in group]
    turned += [turned[-1]] * (size - len(turned))
    joined = (
        turned[0]
        if size == 1
        else {n: np.concatenate([sample[n] for sample in turned]) for n in turned[0]}
    )
    given = session.infer(adapt(joined, taken, session.io.inputs))
    outputs = binding.from_other(
        {spec.name: dequantize_values(given[spec.name], spec) for spec in session.io.outputs}
    )
    if size == 1:
        yield outputs
        return
    for name, array in outputs.items():
        if not array.ndim or len(array) % size:
            raise SpecMismatch(
                f"output {name!r} of shape {array.shape} does not tell {size} samples apart"
            )
    for number in range(len(group)):
        yield {
            name: array[number * len(array) // size : (number + 1) * len(array) // size]
            for name, array in outputs.items()
        }


def dequantize_values(array: np.ndarray[Any, Any], spec: TensorSpec) -> np.ndarray[Any, Any]:
    """Return the real numbers that stored values represent."""
    return (
        array
        if spec.scale is None
        else dequantize_linear(array, spec.scale, spec.zero_point, spec.axis)
    )


def verify_outputs(
    session: InferenceSession,
    reference: Reference,
    tolerances: Tolerances,
    binding: Binding = AS_THEY_ARE,
    claims: Iterable[Claim] = ("float",),
) -> dict[str, Any]:
    """Compare a model with its source; return verdict, reason and errors as JSON can hold them."""
    comparison, worst, largest = AgreementAccumulator(reference.classes), 0, -1.0
    outputs = iter_outputs(session, reference.io, reference.inputs, binding)
    for number, pair in enumerate(zip(reference.outputs, outputs, strict=True)):
        ours, theirs = map(session.get_comparison_outputs, pair)
        comparison.add(ours, theirs, samples=1)
        alone = compare([ours], [theirs]).max_relative
        if alone > largest:
            worst, largest = number, alone
    return {**comparison.result().to_json(tolerances, claims), "worst_sample": worst}


def build_unverified_verdict(cause: object) -> dict[str, Any]:
    """Return the reason why a model could not be compared with its source, in the form of a
    verdict.
    """
    return {"verdict": "unknown", "reason": " ".join(str(cause).split())}


def _to_storable(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.kind == "O":
        array = array.astype(np.str_)
    if array.dtype.kind not in "biufUS":
        raise NotSupported(
            f"tensor {name!r} has {array.dtype.name} elements, which are not compared"
        )
    return array
