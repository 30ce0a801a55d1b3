"""What the source took and gave is kept, and tensors of the two sides find each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.analysis.agreement import Tolerances
from nnpipe.core.errors import ArtifactError, NotSupported, SpecMismatch
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.workflows.verification.binding import match_tensors
from nnpipe.workflows.verification.compare_outputs import Reference, iter_outputs, verify_outputs


def io(
    *, batch: int | None = None, a: str = "a", b: str = "b", out: str = "y", other: str = "z"
) -> IOSpec:
    return IOSpec(
        (TensorSpec(a, (batch, 3), "float32"), TensorSpec(b, (batch, 3), "float32")),
        (TensorSpec(out, (batch, 3), "float32"), TensorSpec(other, (batch, 3), "float32")),
    )


class Difference(InferenceSession):
    """First input less second, and the other way round, by position in its own specification."""

    def __init__(self, spec: IOSpec, wrong: bool = False) -> None:
        self.io, self.wrong = spec, wrong
        self.sizes: list[int] = []

    def _put(self, batch: Batch) -> None:
        first, second = (batch[s.name].astype(np.float32) * (s.scale or 1) for s in self.io.inputs)
        self.difference = first - second
        self.sizes.append(len(first))

    def _run(self) -> None:
        pass

    def _get(self) -> dict[str, np.ndarray]:
        y, z = (spec.name for spec in self.io.outputs)
        found = {y: self.difference, z: -self.difference}
        return {y: found[z], z: found[y]} if self.wrong else found


def samples(count: int = 5) -> list[Batch]:
    random = np.random.default_rng(0)
    return [
        {n: random.standard_normal((1, 3)).astype(np.float32) for n in "ab"} for _ in range(count)
    ]


def test_a_reference_is_read_as_it_was_written(tmp_path: Path) -> None:
    reference = Reference.from_session(Difference(io()), io(), samples())
    reference.write(tmp_path / "reference.npz")
    again = Reference.read(tmp_path / "reference.npz")
    assert again.io == reference.io
    np.testing.assert_equal(again.inputs, reference.inputs)
    np.testing.assert_equal(again.outputs, reference.outputs)


def test_a_damaged_reference_is_named(tmp_path: Path) -> None:
    path = tmp_path / "reference.npz"
    path.write_bytes(b"PK\x03\x04 and then nothing of use")
    with pytest.raises(ArtifactError, match=r"reference\.npz"):
        Reference.read(path)


def test_elements_that_no_file_holds_are_refused_by_name(tmp_path: Path) -> None:
    spec = IOSpec((TensorSpec("x", (None,), "float32"),), (TensorSpec("x", (None,), "float32"),))
    odd = np.zeros(1, np.complex64)
    with pytest.raises(NotSupported, match="'x' has complex64"):
        Reference(spec, ({"x": odd},), ({"x": odd},)).write(tmp_path / "r.npz")


def test_texts_are_kept(tmp_path: Path) -> None:
    spec = IOSpec((TensorSpec("x", (None,), "string"),), (TensorSpec("x", (None,), "string"),))
    texts = {"x": np.array(["ä", "longer"], dtype=object)}
    Reference(spec, (texts,), (texts,)).write(tmp_path / "r.npz")
    assert Reference.read(tmp_path / "r.npz").outputs[0]["x"].tolist() == ["ä", "longer"]


def test_inputs_declared_in_another_order_make_no_difference() -> None:
    reference = Reference.from_session(Difference(io()), io(), samples())
    turned = IOSpec(io().inputs[::-1], io().outputs[::-1])

    class Turned(Difference):
        def _put(self, batch: Batch) -> None:
            self.difference = batch["a"] - batch["b"]

        def _get(self) -> dict[str, np.ndarray]:
            return {"z": -self.difference, "y": self.difference}

    assert verify_outputs(Turned(turned), reference, Tolerances())["verdict"] == "same"


def test_swapped_outputs_are_different() -> None:
    reference = Reference.from_session(Difference(io()), io(), samples())
    found = verify_outputs(Difference(io(), wrong=True), reference, Tolerances())
    assert found["verdict"] == "different"


@pytest.mark.parametrize("classes", [True, False])
def test_which_number_is_the_greatest_matters_for_classes_only(
    classes: bool, tmp_path: Path
) -> None:
    Reference.from_session(Difference(io()), io(), samples(), "float", classes).write(
        tmp_path / "r.npz"
    )
    found = verify_outputs(Difference(io()), Reference.read(tmp_path / "r.npz"), Tolerances())
    assert ("same_class" in found) == classes


def test_the_worst_sample_is_told() -> None:
    reference = Reference.from_session(Difference(io()), io(), samples())
    reference.outputs[3]["y"][0, 0] += 1
    assert verify_outputs(Difference(io()), reference, Tolerances())["worst_sample"] == 3


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_fixed_batches_are_filled_up_and_taken_apart(size: int) -> None:
    session = Difference(io(batch=size))
    found = list(iter_outputs(session, io(), samples()))
    expected = list(iter_outputs(Difference(io()), io(), samples()))
    np.testing.assert_equal(found, expected)
    assert session.sizes == [size] * -(-5 // size)


def test_outputs_of_a_batch_that_cannot_be_taken_apart_are_refused() -> None:
    class Summing(Difference):
        def _get(self) -> dict[str, np.ndarray]:
            return {"y": self.difference.sum(0), "z": self.difference}

    with pytest.raises(SpecMismatch, match=r"'y'.*does not tell 4 samples apart"):
        list(iter_outputs(Summing(io(batch=4)), io(), samples()))


def test_quantised_tensors_are_compared_as_the_numbers_they_stand_for() -> None:
    fine = IOSpec(tuple(TensorSpec(n, (None, 3), "int8", 1 / 16, 0) for n in "ab"), io().outputs)
    reference = Reference.from_session(Difference(io()), io(), samples())
    found = verify_outputs(Difference(fine), reference, Tolerances(close_tolerance=0.2))
    assert 0 < found["tensors"][0]["max_absolute"] <= 1 / 16 + 1e-6


def test_a_match_leads_inputs_and_outputs_to_the_right_tensors() -> None:
    reference = Reference.from_session(Difference(io()), io(), samples())
    other = io(a="p", b="q", out="u", other="v")
    right = match_tensors(reference.io, other, {"a": "p", "y": "u"})
    wrong = match_tensors(reference.io, other, {"a": "q", "y": "u"})
    assert verify_outputs(Difference(other), reference, Tolerances(), right)["verdict"] == "same"
    assert (
        verify_outputs(Difference(other), reference, Tolerances(), wrong)["verdict"] == "different"
    )
