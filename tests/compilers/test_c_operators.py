"""Single operators as C compute what LiteRT's reference kernels compute: integers to the bit,
floats closely.

All of them become one program with sanitisers, because a C compiler needs most of its time for
kernels that they share.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import c_arithmetic_cases
import c_layer_cases
import c_operator_cases
import numpy as np
import pytest
from installed import needs
from one_operator import Case, OneOperator

from nnpipe.compilers._c_code.source import Source, generate_source
from nnpipe.core.discoverable import C
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.tflite import read_tflite
from nnpipe.formats.tflite_graph import read_program
from nnpipe.frameworks.litert import open_interpreter
from nnpipe.testing.c_operator import join_sources, run_sanitized

needs("ai_edge_litert")
pytestmark = pytest.mark.skipif(
    C.find() is None, reason="no C compiler is installed (apt install gcc)"
)
MAKERS = (*c_operator_cases.ALL, *c_arithmetic_cases.ALL, *c_layer_cases.ALL)


def written(graph: OneOperator, folder: Path) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.tflite"
    path.write_bytes(graph.content())
    return path


def inputs(io: IOSpec, count: int) -> list[Batch]:
    """Return random inputs."""
    rng, found = np.random.default_rng(1), []
    for _ in range(count):
        batch = {}
        for spec in io.inputs:
            kind, shape = np.dtype(spec.dtype), [n or 1 for n in spec.shape]
            if kind.kind == "f":
                batch[spec.name] = rng.normal(scale=3, size=shape).astype(kind)
            elif kind.kind == "b":
                batch[spec.name] = rng.integers(0, 2, shape).astype(kind)
            else:
                info = np.iinfo(kind)
                batch[spec.name] = rng.integers(info.min, info.max, shape, kind, endpoint=True)
        found.append(batch)
    return found


def expected_of(case: Case, path: Path, batches: Sequence[Batch]) -> list[Batch]:
    """Return what LiteRT computes, by its reference kernels, or without a delegate where it has
    none.

    Batches follow from one another, as the calls of the C program do: what one leaves behind, the
    next one finds.
    """
    kernels = "BUILTIN_REF" if case.reference else "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
    interpreter = open_interpreter(path, 1, (), kernels)
    file, found = read_tflite(path), []
    for batch in batches:
        for name, array in batch.items():
            interpreter.set_tensor(file.inputs[name], array)
        interpreter.invoke()
        found.append(
            {name: interpreter.get_tensor(number) for name, number in file.outputs.items()}
        )
    return found


@pytest.fixture(scope="module")
def computed(
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Sequence[tuple[Case, list[Batch], list[Batch]]]]:
    """By the name of what makes cases: each case, what is expected of it, and what came out."""
    folder = tmp_path_factory.mktemp("operators")
    cases = [(make.__name__, case) for make in MAKERS for case in make()]
    graphs: list[tuple[Source, list[Batch]]] = []
    expected: list[list[Batch]] = []
    for _, case in cases:
        path = written(case.graph, folder)
        source = generate_source(read_program(path), 0)
        batches = inputs(source.io, case.runs)
        expected.append(expected_of(case, path, batches))
        graphs.append((source, batches))
    found: dict[str, list[tuple[Case, list[Batch], list[Batch]]]] = {}
    for (name, case), wanted, made in zip(cases, expected, run_sanitized(graphs), strict=True):
        found.setdefault(name, []).append((case, wanted, made))
    return found


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_operators_compute_what_the_reference_kernels_do(
    make: Callable[[], Iterator[Case]],
    computed: Mapping[str, Sequence[tuple[Case, list[Batch], list[Batch]]]],
) -> None:
    for case, expected, found in computed[make.__name__]:
        for wanted, outputs in zip(expected, found, strict=True):
            for name, array in wanted.items():
                if array.dtype.kind == "f":
                    np.testing.assert_allclose(
                        outputs[name],
                        array,
                        rtol=case.tolerance,
                        atol=case.tolerance,
                        err_msg=case.name,
                    )
                else:
                    np.testing.assert_array_equal(outputs[name], array, case.name, strict=True)
                    assert array.size < 1000 or not case.varied or len(np.unique(array)) > 20, (
                        case.name
                    )


@pytest.mark.slow
def test_no_operator_needs_a_library_or_gives_a_warning(tmp_path: Path) -> None:
    sources = [
        generate_source(read_program(written(case.graph, tmp_path)), 0)
        for make in MAKERS
        for case in make()
    ]
    path = tmp_path / "all.c"
    path.write_text(join_sources(sources))
    command = [
        "cc",
        "-std=c99",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-ffreestanding",
        "-fno-builtin",
        "-O1",
    ]
    subprocess.run([*command, "-c", "-o", str(tmp_path / "all.o"), str(path)], check=True)
    needed = subprocess.run(
        ["nm", "-u", str(tmp_path / "all.o")], capture_output=True, text=True, check=True
    ).stdout
    assert needed.split() in ([], ["U", "_GLOBAL_OFFSET_TABLE_"])


def test_places_outside_of_the_input_read_nothing_outside(tmp_path: Path) -> None:
    graph = OneOperator([1, 2], "int32")
    graph.add("GATHER_ND", ([1, 4], "int8", 0.02, 3), options="GatherNdOptions")
    table = graph._constant(np.arange(12, dtype=np.int8).reshape(3, 1, 4), 0.02, 3)
    graph._operators[-1].inputs = [table, graph._values[0]]
    source = generate_source(read_program(written(graph, tmp_path)), 0)
    name, made = source.io.inputs[0].name, source.io.outputs[0].name
    batches = [{name: np.array([place], np.int32)} for place in ([2**31 - 1, -5], [-(2**31), 9])]
    ((first, second),) = run_sanitized([(source, batches)])
    assert first[made].tolist() == [[8, 9, 10, 11]]
    assert second[made].tolist() == [[0, 1, 2, 3]]


def test_a_resized_image_must_keep_its_scale(tmp_path: Path) -> None:
    graph = OneOperator([1, 2, 2, 1], "int8", 0.02, 0)
    graph.add(
        "RESIZE_BILINEAR",
        ([1, 4, 4, 1], "int8", 0.03, 0),
        graph.axes(4, 4),
        options="ResizeBilinearOptions",
    )
    with pytest.raises(CompileError, match=r"RESIZE_BILINEAR .*input and output have other scales"):
        generate_source(read_program(written(graph, tmp_path)), 0)


def test_an_operator_without_inputs_is_refused(tmp_path: Path) -> None:
    graph = OneOperator([1, 4], "int8", 0.02, 3)
    graph.add("ADD", ([1, 4], "int8", 0.02, 3), options="AddOptions")
    graph._operators[-1].inputs = []
    with pytest.raises(CompileError, match=r"ADD \(operator 0\): its input 0 is missing"):
        generate_source(read_program(written(graph, tmp_path)), 0)


def test_a_bias_may_have_several_axes_and_scales_may_be_too_large(tmp_path: Path) -> None:
    weights = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    bodies = []
    for bias in (np.array([5, -7, 9], np.int32), np.array([[5, -7, 9]], np.int32)):
        graph = OneOperator([1, 4], "int8", 0.02, 3)
        places = graph._constant(weights, 0.01, 0), graph._constant(bias, 0.0002, 0)
        graph.add(
            "FULLY_CONNECTED", ([1, 3], "int8", 0.04, 0), *places, options="FullyConnectedOptions"
        )
        bodies.append(generate_source(read_program(written(graph, tmp_path)), 0).body)
    assert bodies[0] == bodies[1]
    graph = OneOperator([1, 4], "int8", 1e30, 3)
    other = graph._constant(np.ones((1, 4), np.int8), 1e30, 0)
    graph.add("MUL", ([1, 4], "int8", 1e-30, 0), other, options="MulOptions")
    with pytest.raises(CompileError, match=r"MUL \(operator 0\): its scales give the factor inf"):
        generate_source(read_program(written(graph, tmp_path)), 0)
