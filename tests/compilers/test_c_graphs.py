"""C of random graphs in 8-bit numbers computes what the reference kernels do, and no sanitiser finds a fault."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from installed import needs

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NNPipeError
from nnpipe.core.external_tools import C
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.c_source import read_c_source, write_c_source
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.integer_graphs import random_integer_graph
from nnpipe.testing.sanitised_c import sanitised_outputs
from nnpipe.testing.session import assert_one_line

needs("ai_edge_litert")
needs_c = pytest.mark.skipif(C.find() is None, reason="no C compiler is installed (apt install gcc)")


@needs_c
@given(seed=st.integers(0, 1 << 32), operators=st.integers(1, 6))
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_graphs_compute_the_same_to_the_bit(seed: int, operators: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.tflite")
        path.write_bytes(random_integer_graph(seed, operators))
        source = Artifact.of(path, "tflite", read_tflite(path).io)
        made = CCompiler().compile(source, Path(folder, "graph.c"))
        rng = np.random.default_rng(seed)
        batch = {
            spec.name: rng.integers(0, 256, [n or 1 for n in spec.shape], np.uint8).view(spec.dtype)
            for spec in source.io.inputs
        }
        with LiteRTRuntime(reference_kernels=True).load(source) as reference:
            expected = reference.infer(batch)
        plain = sanitised_outputs(made.path, made.io, batch)
        dsp = sanitised_outputs(made.path, made.io, batch, ["NN_DSP_IN_C"])
        vectors = sanitised_outputs(made.path, made.io, batch, ["NN_DSP_IN_C", "NN_MVE_IN_C"])
    np.testing.assert_equal(plain, expected)
    np.testing.assert_equal(dsp, expected)
    np.testing.assert_equal(vectors, expected)


@given(
    seed=st.integers(0, 1 << 32), places=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8)
)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_damaged_files_are_refused_or_compiled_but_never_crash(seed: int, places: list[tuple[int, int]]) -> None:
    data = bytearray(random_integer_graph(seed, 3))
    for place, value in places:
        data[place % len(data)] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.tflite")
        path.write_bytes(data)
        try:
            source = Artifact.of(path, "tflite", read_tflite(path).io)
            CCompiler(arena_seconds=0).compile(source, Path(folder, "graph.c"))
        except NNPipeError as error:
            assert_one_line(error)


@needs_c
def test_sanitisers_notice_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "graph.tflite"
    path.write_bytes(random_integer_graph(1, 2))
    source = Artifact.of(path, "tflite", read_tflite(path).io)
    made = CCompiler().compile(source, tmp_path / "graph.c")
    text = made.path.read_text()
    io, notes = read_c_source(made.path)
    begin = text.rindex("/* nnpipe-c-1 ")
    broken = text[:begin].replace("void nn_run(void) {", "void nn_run(void) {\n    nn_arena.bytes[NN_ARENA_BYTES] = 1;")
    write_c_source(made.path, broken, io, notes)
    batch = {spec.name: np.zeros([n or 1 for n in spec.shape], spec.dtype) for spec in io.inputs}
    with pytest.raises(AssertionError, match=r"out of bounds|overflow"):
        sanitised_outputs(made.path, made.io, batch)
