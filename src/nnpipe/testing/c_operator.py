"""The contract of operators in C."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from nnpipe.compilers.c_operator import COperator, Source, own_kernels, source_of_one
from nnpipe.core.discoverable import Discoverable
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import TensorSpec
from nnpipe.testing.discoverable import DiscoverableContract
from nnpipe.testing.sanitised_c import sanitised_outputs

_FLAGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-builtin", "-O1")


@dataclass(frozen=True)
class OperatorCase:
    """One use of an operator.

    Attributes
    ----------
    inputs, outputs
        Its tensors, with all lengths, and scale and zero point where they are quantised.
    constants
        The contents of those inputs that are constant, by their places.
    options
        The options of a custom operator.
    """

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    options: bytes = b""


class COperatorContract(DiscoverableContract):
    """What every operator in C must do; subclass it, define two fixtures and :meth:`reference`.

    ``operator``
        The operator.
    ``cases``
        Uses of it: each type that it takes, scales that differ, several shapes.

    Attributes
    ----------
    tolerance
        The greatest difference of floats, of each value and of 1; whole numbers are equal.
    span
        Floats are drawn from minus this to this.
    """

    tolerance: float = 1e-6
    span: float = 4.0

    @pytest.fixture
    def operator(self) -> COperator:
        raise NotImplementedError("a subclass of COperatorContract gives the fixture `operator`")

    @pytest.fixture
    def cases(self) -> Sequence[OperatorCase]:
        raise NotImplementedError("a subclass of COperatorContract gives the fixture `cases`")

    def reference(self, case: OperatorCase, *inputs: np.ndarray) -> Sequence[np.ndarray]:
        """Return the outputs that are expected for all inputs, constants included."""
        raise NotImplementedError("a subclass of COperatorContract says what its operator computes")

    @pytest.fixture
    def discovered(self, operator: COperator) -> type[Discoverable]:
        return type(operator)

    def test_it_names_its_operator_and_is_found_by_it(self, operator: COperator) -> None:
        assert operator.operator in own_kernels([operator.dotted_path()])

    def test_it_computes_what_its_reference_does_and_touches_nothing_else(
        self, operator: COperator, cases: Sequence[OperatorCase]
    ) -> None:
        graphs = [(_source(operator, case), _runs(case, self.span)) for case in cases]
        for case, (_, runs), found in zip(cases, graphs, sanitised_outputs(graphs), strict=True):
            for batch, outputs in zip(runs, found, strict=True):
                given = [batch.get(spec.name, case.constants.get(n)) for n, spec in enumerate(case.inputs)]
                expected = self.reference(case, *(array for array in given if array is not None))
                for spec, array in zip(case.outputs, expected, strict=True):
                    assert array.dtype == spec.dtype, f"the reference gives {array.dtype} for {spec.dtype}"
                    accepted = self.tolerance if array.dtype.kind == "f" else 0
                    np.testing.assert_allclose(
                        outputs[spec.name], array, rtol=accepted, atol=accepted, err_msg=spec.name
                    )

    def test_it_refuses_outputs_of_other_shapes_and_other_types(
        self, operator: COperator, cases: Sequence[OperatorCase]
    ) -> None:
        for case in cases:
            for number, spec in enumerate(case.outputs):
                *first, last = [length or 0 for length in spec.shape]
                for change in ({"shape": (*first, last + 1)}, {"shape": (*first, last, 2)}, {"dtype": "float64"}):
                    outputs = [*case.outputs]
                    outputs[number] = replace(spec, **change)
                    with pytest.raises(CompileError):
                        _source(operator, replace(case, outputs=outputs))

    def test_it_refuses_inputs_of_other_types_and_missing_ones(
        self, operator: COperator, cases: Sequence[OperatorCase]
    ) -> None:
        for case in cases:
            for number, spec in enumerate(case.inputs):
                inputs = [*case.inputs]
                inputs[number] = TensorSpec(spec.name, spec.shape, "int64")
                constants = {place: array for place, array in case.constants.items() if place != number}
                with pytest.raises(CompileError):
                    _source(operator, replace(case, inputs=inputs, constants=constants))
            with pytest.raises(CompileError):
                _source(operator, replace(case, inputs=[], constants={}))

    def test_its_c_needs_no_library_and_gives_no_warning(
        self, operator: COperator, cases: Sequence[OperatorCase], tmp_path: Path
    ) -> None:
        for case in cases:
            path, made = tmp_path / "one.c", tmp_path / "one.o"
            path.write_text(_source(operator, case).text, "utf-8")
            done = subprocess.run(
                ["cc", *_FLAGS, "-c", "-o", str(made), str(path)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr[:2000]
            needed = subprocess.run(["nm", "-u", str(made)], capture_output=True, text=True, check=True).stdout.split()
            assert set(needed) <= {"U", "_GLOBAL_OFFSET_TABLE_"}, f"it needs {' '.join(needed)}"


def _source(operator: COperator, case: OperatorCase) -> Source:
    return source_of_one(operator, case.inputs, case.outputs, case.constants, case.options)


def _runs(case: OperatorCase, span: float) -> list[dict[str, np.ndarray]]:
    """Return inputs of three runs: random numbers, and the least and the greatest."""
    random = np.random.default_rng(7)
    found = []
    for share in (None, 0.0, 1.0):
        batch = {}
        for number, spec in enumerate(case.inputs):
            if number in case.constants:
                continue
            kind, shape = np.dtype(spec.dtype), tuple(length or 0 for length in spec.shape)
            low, high = (-span, span) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)
            drawn = random.uniform(low, high, shape) if share is None else np.full(shape, high if share else low)
            batch[spec.name] = (np.rint(drawn) if kind.kind != "f" else drawn).astype(kind)
        found.append(batch)
    return found
