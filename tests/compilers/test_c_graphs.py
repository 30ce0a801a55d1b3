"""C of random graphs in 8-bit numbers computes what the reference kernels do, and no sanitiser
finds a fault.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from installed import needs

from nnpipe.compilers._c_code.source import Source, generate_source
from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.discoverable import C
from nnpipe.core.errors import NNPipeError
from nnpipe.core.tensors import Batch
from nnpipe.formats.tflite import read_tflite
from nnpipe.formats.tflite_graph import read_program
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.c_operator import SanitiserFinding, run_sanitized
from nnpipe.testing.integer_graphs import generate_integer_graph
from nnpipe.testing.model_files import mutate_graph
from nnpipe.testing.session import assert_one_line
from nnpipe.testing.wide_integer_graphs import generate_wide_integer_graph

needs("ai_edge_litert")
# the last one has a softmax that rounds in another way if it is computed in floats
SEEDS = (*range(12), 4001194)
needs_c = pytest.mark.skipif(
    C.find() is None, reason="no C compiler is installed (apt install gcc)"
)


def prepared(folder: Path, seed: int) -> tuple[Source, list[Batch], Batch]:
    """Return the source of a random graph, inputs, and what is expected."""
    path = folder / f"{seed}.tflite"
    path.write_bytes(
        (generate_wide_integer_graph if seed % 2 else generate_integer_graph)(seed, 1 + seed % 6)
    )
    source = generate_source(read_program(path), 0)
    rng = np.random.default_rng(seed)
    batch = {
        spec.name: rng.integers(0, 256, spec.shape, np.uint8).view(spec.dtype)
        for spec in source.io.inputs
    }
    with LiteRTRuntime(reference_kernels=True).load(
        Artifact.create(path, "tflite", read_tflite(path).io)
    ) as reference:
        return source, [batch], reference.infer(batch)


@needs_c
@pytest.mark.parametrize(
    "seeds", [SEEDS, pytest.param(range(12, 300), marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("defines", [[], ["NN_DSP_IN_C"], ["NN_DSP_IN_C", "NN_MVE_IN_C"]])
def test_random_graphs_compute_the_same_to_the_bit(
    seeds: Sequence[int], defines: list[str], tmp_path: Path
) -> None:
    graphs = [prepared(tmp_path, seed) for seed in seeds]
    found = run_sanitized([(source, batches) for source, batches, _ in graphs], defines)
    for seed, (_, _, expected), (outputs,) in zip(seeds, graphs, found, strict=True):
        np.testing.assert_equal(outputs, expected, f"graph {seed}")


@given(
    seed=st.integers(0, 1 << 32),
    places=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8),
)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_damaged_files_are_refused_or_compiled_but_never_crash(
    seed: int, places: list[tuple[int, int]]
) -> None:
    data = bytearray(generate_integer_graph(seed, 3))
    for place, value in places:
        data[place % len(data)] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.tflite")
        path.write_bytes(data)
        try:
            source = Artifact.create(path, "tflite", read_tflite(path).io)
            CCompiler(arena_seconds=0).compile(source, Path(folder, "graph.c"))
        except NNPipeError as error:
            assert_one_line(error)


@needs_c
def test_graphs_that_say_something_else_are_refused_or_run_without_a_fault(tmp_path: Path) -> None:
    graphs: list[tuple[Source, list[Batch]]] = []
    path = tmp_path / "graph.tflite"
    for seed in range(40):
        path.write_bytes(
            mutate_graph(generate_wide_integer_graph(seed, 3), np.random.default_rng(seed))
        )
        try:
            source = generate_source(read_program(path), 0)
        except NNPipeError as error:
            assert_one_line(error)
        else:
            graphs.append(
                (
                    source,
                    [{spec.name: np.ones(spec.shape, spec.dtype) for spec in source.io.inputs}],
                )
            )
    assert 5 < len(graphs) < 35
    run_sanitized(graphs)


@needs_c
def test_sanitisers_notice_a_fault(tmp_path: Path) -> None:
    graphs = [prepared(tmp_path, seed)[:2] for seed in (1, 2)]
    source, batches = graphs[1]
    body = source.body.replace(
        "void nn_run(void) {", "void nn_run(void) {\n    nn_arena.bytes[NN_ARENA_BYTES] = 1;"
    )
    graphs[1] = (dataclasses.replace(source, body=body), batches)
    with pytest.raises(SanitiserFinding, match=r"graph 1.*(out of bounds|overflow)") as caught:
        run_sanitized(graphs)
    assert caught.value.graph == 1
