"""The contract of operators in C."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from nnpipe.compilers.c import COperator, Source, find_own_builders, generate_operator_source
from nnpipe.core.discoverable import Discoverable
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.testing.discoverable import DiscoverableContract

_SANITISED_C_FLAGS = (
    "-std=c99",
    "-O0",
    "-g1",
    "-w",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
_OWN_NAMES = re.compile(
    r"\b(nn_arena|nn_input|nn_output|nn_run|nn_reset|nn_constant_\d+|NN_ARENA_BYTES)\b"
)
_SECONDS = 300
_MAIN = """
#include <stdio.h>
static const struct { void *(*in)(int32_t); const void *(*out)(int32_t); void (*run)(void); int32_t runs; } graphs[] = {
    %s
};
static const int32_t sizes[] = {%s}; /* of each graph's inputs and outputs, in bytes; each list ends with -1 */
int main(void) {
    const int32_t *next = sizes;
    for (size_t g = 0; g < sizeof graphs / sizeof *graphs; g++) {
        const int32_t *in = next, *out = in;
        while (*out >= 0) out++;
        out++;
        for (next = out; *next >= 0; next++) {}
        next++;
        fprintf(stderr, "graph %%d\\n", (int)g);
        for (int32_t r = 0; r < graphs[g].runs; r++) {
            for (int32_t n = 0; in[n] >= 0; n++)
                if (fread(graphs[g].in(n), 1, in[n], stdin) != (size_t)in[n]) return 3;
            graphs[g].run();
            for (int32_t n = 0; out[n] >= 0; n++) fwrite(graphs[g].out(n), 1, out[n], stdout);
        }
    }
    return 0;
}
"""


class SourceParts(Protocol):
    """The C source of a graph: kernels that several graphs may share, what is its own, its
    inputs and outputs.
    """

    @property
    def kernels(self) -> Sequence[str]:
        """Texts, each after those that it needs."""

    @property
    def body(self) -> str:
        """The graph's memory, constants and functions."""

    @property
    def io(self) -> IOSpec:
        """Inputs and outputs with all lengths."""


class SanitiserFinding(AssertionError):
    """A sanitiser has ended the program, or the program did not end.

    Parameters
    ----------
    graph
        Which graph was computed.
    told
        The report.
    """

    def __init__(self, graph: int, told: str) -> None:
        super().__init__(f"graph {graph}: {told[:2000]}")
        self.graph = graph


def run_sanitized(
    graphs: Sequence[tuple[SourceParts, Sequence[Batch]]], defines: Sequence[str] = ()
) -> list[list[dict[str, np.ndarray]]]:
    """Return the outputs of graphs, computed by one program with AddressSanitizer and
    UndefinedBehaviorSanitizer.

    Parameters
    ----------
    graphs
        For each graph its source, and the inputs by name of one run after the other.
    defines
        Macros to define, such as ``NN_DSP_IN_C``, with which instructions of a microcontroller are
        computed in C.

    Returns
    -------
    list of list of dict
        For each graph and each run, the outputs by name.

    Raises
    ------
    SanitiserFinding
        If a sanitiser finds a fault.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "main.c"), Path(folder, "main")
        source.write_text(_build_program(graphs))
        macros = [f"-D{each}" for each in defines]
        subprocess.run(
            ["cc", *_SANITISED_C_FLAGS, *macros, "-o", str(program), str(source)],
            check=True,
            capture_output=True,
        )
        given = b"".join(
            np.ascontiguousarray(batch[spec.name]).tobytes()
            for parts, batches in graphs
            for batch in batches
            for spec in parts.io.inputs
        )
        try:
            done = subprocess.run(
                [str(program)], input=given, capture_output=True, check=False, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise SanitiserFinding(
                *_find_last_graph(error.stderr or b"", f"no end within {_SECONDS} s")
            ) from None
    if done.returncode != 0:
        raise SanitiserFinding(*_find_last_graph(done.stderr, f"exit status {done.returncode}"))
    return _split_outputs(graphs, done.stdout)


def join_sources(graphs: Sequence[SourceParts]) -> str:
    """Return one C source of several graphs: kernels once, and names that each graph has with
    its number.
    """
    kernels = dict.fromkeys(text for parts in graphs for text in parts.kernels)
    bodies = [_OWN_NAMES.sub(rf"\g<1>_{n}", parts.body) for n, parts in enumerate(graphs)]
    return "\n".join([*kernels, *bodies])


def _build_program(graphs: Sequence[tuple[SourceParts, Sequence[Batch]]]) -> str:
    entries = [
        f"{{nn_input_{n}, nn_output_{n}, nn_run_{n}, {len(runs)}}}"
        for n, (_, runs) in enumerate(graphs)
    ]
    sizes = [
        str(size)
        for parts, _ in graphs
        for side in (parts.io.inputs, parts.io.outputs)
        for size in [*(_count_bytes(spec) for spec in side), -1]
    ]
    return join_sources([parts for parts, _ in graphs]) + _MAIN % (
        ", ".join(entries),
        ", ".join(sizes),
    )


def _find_last_graph(errors: bytes, otherwise: str) -> tuple[int, str]:
    """Return which graph was computed last, and what was told then."""
    *_, last = ["graph -1\n", *re.split(r"(?m)(?=^graph \d+$)", errors.decode(errors="replace"))]
    head, _, told = last.partition("\n")
    return int(head.split()[1]), told.strip() or otherwise


def _split_outputs(
    graphs: Sequence[tuple[SourceParts, Sequence[Batch]]], written: bytes
) -> list[list[dict[str, np.ndarray]]]:
    at, found = 0, list[list[dict[str, np.ndarray]]]()
    for parts, batches in graphs:
        found.append([])
        for _ in batches:
            found[-1].append({})
            for spec in parts.io.outputs:
                kind, size = np.dtype(spec.dtype), _count_bytes(spec)
                flat = np.frombuffer(written, kind, size // kind.itemsize, at)
                found[-1][-1][spec.name] = flat.reshape([length or 0 for length in spec.shape])
                at += size
    return found


def _count_bytes(spec: TensorSpec) -> int:
    return (
        int(np.prod([length or 0 for length in spec.shape], dtype=np.int64))
        * np.dtype(spec.dtype).itemsize
    )


_FLAGS = (
    "-std=c99",
    "-pedantic",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-builtin",
    "-O1",
)


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
        assert operator.operator in find_own_builders([operator.get_dotted_path()])

    def test_it_computes_what_its_reference_does_and_touches_nothing_else(
        self, operator: COperator, cases: Sequence[OperatorCase]
    ) -> None:
        graphs = [
            (_generate_source(operator, case), _create_runs(case, self.span)) for case in cases
        ]
        for case, (_, runs), found in zip(cases, graphs, run_sanitized(graphs), strict=True):
            for batch, outputs in zip(runs, found, strict=True):
                given = [
                    batch.get(spec.name, case.constants.get(n))
                    for n, spec in enumerate(case.inputs)
                ]
                expected = self.reference(case, *(array for array in given if array is not None))
                for spec, array in zip(case.outputs, expected, strict=True):
                    assert array.dtype == spec.dtype, (
                        f"the reference gives {array.dtype} for {spec.dtype}"
                    )
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
                for change in (
                    {"shape": (*first, last + 1)},
                    {"shape": (*first, last, 2)},
                    {"dtype": "float64"},
                ):
                    outputs = [*case.outputs]
                    outputs[number] = replace(spec, **change)
                    with pytest.raises(CompileError):
                        _generate_source(operator, replace(case, outputs=outputs))

    def test_it_refuses_inputs_of_other_types_and_missing_ones(
        self, operator: COperator, cases: Sequence[OperatorCase]
    ) -> None:
        for case in cases:
            for number, spec in enumerate(case.inputs):
                inputs = [*case.inputs]
                inputs[number] = TensorSpec(spec.name, spec.shape, "int64")
                constants = {
                    place: array for place, array in case.constants.items() if place != number
                }
                with pytest.raises(CompileError):
                    _generate_source(operator, replace(case, inputs=inputs, constants=constants))
            with pytest.raises(CompileError):
                _generate_source(operator, replace(case, inputs=[], constants={}))

    def test_its_c_needs_no_library_and_gives_no_warning(
        self, operator: COperator, cases: Sequence[OperatorCase], tmp_path: Path
    ) -> None:
        for case in cases:
            path, made = tmp_path / "one.c", tmp_path / "one.o"
            path.write_text(_generate_source(operator, case).text, "utf-8")
            done = subprocess.run(
                ["cc", *_FLAGS, "-c", "-o", str(made), str(path)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr[:2000]
            needed = subprocess.run(
                ["nm", "-u", str(made)], capture_output=True, text=True, check=True
            ).stdout.split()
            assert set(needed) <= {"U", "_GLOBAL_OFFSET_TABLE_"}, f"it needs {' '.join(needed)}"


def _generate_source(operator: COperator, case: OperatorCase) -> Source:
    return generate_operator_source(
        operator, case.inputs, case.outputs, case.constants, case.options
    )


def _create_runs(case: OperatorCase, span: float) -> list[dict[str, np.ndarray]]:
    """Return inputs of three runs: random numbers, and the least and the greatest."""
    random = np.random.default_rng(7)
    found = []
    for share in (None, 0.0, 1.0):
        batch = {}
        for number, spec in enumerate(case.inputs):
            if number in case.constants:
                continue
            kind, shape = np.dtype(spec.dtype), tuple(length or 0 for length in spec.shape)
            low, high = (
                (-span, span) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)
            )
            drawn = (
                random.uniform(low, high, shape)
                if share is None
                else np.full(shape, high if share else low)
            )
            batch[spec.name] = (np.rint(drawn) if kind.kind != "f" else drawn).astype(kind)
        found.append(batch)
    return found
