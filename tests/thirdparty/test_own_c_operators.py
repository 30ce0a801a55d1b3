"""Operators of one's own in C: by the contract, from files, by entry point and by dotted path."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from bricks.swish_in_c import BricksSwishInC

from nnpipe.compilers.c import CCompiler, COperator, find_own_builders
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError, ComponentNotFound, ConfigError
from nnpipe.core.tensors import TensorSpec
from nnpipe.formats.tflite import read_tflite
from nnpipe.runtimes.c import CRuntime
from nnpipe.testing.c_operator import COperatorContract, OperatorCase

STEEP = struct.pack("<f", 1.5)


class TestBricksSwishInC(COperatorContract):
    tolerance = 1e-5

    @pytest.fixture
    def operator(self) -> COperator:
        return BricksSwishInC()

    @pytest.fixture
    def cases(self) -> Sequence[OperatorCase]:
        def case(dtype: str, shape: tuple[int, ...], *scales: tuple[float, int]) -> OperatorCase:
            given = scales or ((None, None),) * 2
            specs = [
                TensorSpec(name, shape, dtype, *how) for name, how in zip("xy", given, strict=True)
            ]
            return OperatorCase(specs[:1], specs[1:], options=STEEP)

        return [
            case("float32", (2, 3)),
            case("float32", (1,)),
            case("int8", (5, 40), (0.05, 3), (0.03, -100)),
            case("int8", (1, 9), (0.1, 0), (0.1, 0)),
        ]

    def reference(self, case: OperatorCase, *inputs: np.ndarray) -> Sequence[np.ndarray]:
        (x,), spec, made = inputs, case.inputs[0], case.outputs[0]
        if x.dtype == np.float32:
            return [(x / (1 + np.exp(-1.5 * x.astype(np.float64)))).astype(np.float32)]
        real = (x.astype(np.float64) - spec.zero_point) * spec.scale
        whole = np.floor(real / (1 + np.exp(-1.5 * real)) / made.scale + 0.5) + made.zero_point
        return [np.clip(whole, -128, 127).astype(np.int8)]


def custom_model(path: Path, name: str) -> Artifact:
    """Write a TensorFlow Lite file of one custom operator."""
    schema = pytest.importorskip(
        "ai_edge_litert.schema_py_generated", reason="LiteRT is not installed"
    )
    from nnpipe.testing.model_files import _pack_model

    model, graph, code, operator = (
        schema.ModelT(),
        schema.SubGraphT(),
        schema.OperatorCodeT(),
        schema.OperatorT(),
    )
    code.builtinCode, code.deprecatedBuiltinCode, code.customCode = 32, 32, name
    operator.inputs, operator.outputs, operator.customOptions = (
        [0],
        [1],
        np.frombuffer(STEEP, np.uint8),
    )
    graph.tensors = []
    for title in ("x", "y"):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type = title, [1, 3], schema.TensorType.FLOAT32
        graph.tensors.append(tensor)
    graph.inputs, graph.outputs, graph.operators = [0], [1], [operator]
    model.version, model.operatorCodes, model.subgraphs, model.buffers = (
        3,
        [code],
        [graph],
        [schema.BufferT()],
    )
    path.write_bytes(_pack_model(model))
    return Artifact.create(path, "tflite", read_tflite(path).io)


MINE = """
from nnpipe.compilers.c import COperator, CStep

class Twice(COperator):
    "Twice each number."

    operator = "mine.Twice"
    kernel = '''
static void mine_twice(const float *in, float *out, int32_t count) {
    for (int32_t i = 0; i < count; i++) out[i] = 2 * in[i];
}
'''

    def step(self, op):
        op.expect(op.types() == ("float32", "float32"), "it takes floats")
        op.expect_shape(op.input(0).shape)
        return CStep(f"mine_twice({{in0}}, {{out0}}, {op.output().count});")

class Again(Twice):
    "The same once more."

class Broken(Twice):
    "It fails."

    def step(self, op):
        raise ValueError("out of luck")

class Nameless(Twice):
    "For no operator."

    operator = ""
"""


def computed(artifact: Artifact) -> np.ndarray:
    with CRuntime().load(artifact) as session:
        return session.infer({"x": np.array([[1, -2, 3]], np.float32)})["y"].copy()


def test_a_file_with_it_is_compiled_where_its_package_is_known(tmp_path: Path) -> None:
    source = custom_model(tmp_path / "own.tflite", "BricksSwish")
    made = CCompiler(arena_seconds=0).compile(source, tmp_path / "own.c")
    x = np.array([[1, -2, 3]])
    np.testing.assert_allclose(computed(made), x / (1 + np.exp(-1.5 * x)), rtol=1e-5)


def test_it_is_named_by_its_dotted_path_and_nothing_in_a_file_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_twice.py").write_text(MINE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    source = custom_model(tmp_path / "own.tflite", "mine.Twice")
    with pytest.raises(CompileError, match=r"the custom 'mine\.Twice', .*--own-operators"):
        CCompiler(arena_seconds=0).compile(source, tmp_path / "own.c")
    assert "own_twice" not in sys.modules
    made = CCompiler(arena_seconds=0, own_operators=("own_twice.Twice",)).compile(
        source, tmp_path / "own.c"
    )
    np.testing.assert_array_equal(computed(made), [[2, -4, 6]])
    with pytest.raises(
        CompileError,
        match=(
            r"own_twice\.Twice and own_twice\.Again and own_twice\.Broken are for it; name one "
            r"in own_op"
        ),
    ):
        CCompiler(arena_seconds=0).compile(source, tmp_path / "own.c")
    with pytest.raises(CompileError, match=r"own_twice\.Broken failed: ValueError: out of luck"):
        CCompiler(arena_seconds=0, own_operators=("own_twice.Broken",)).compile(
            source, tmp_path / "own.c"
        )
    with pytest.raises(ComponentNotFound, match="Thrice"):
        find_own_builders(["own_twice.Thrice"])
    with pytest.raises(ConfigError, match=r"own_twice\.Nameless names no operator"):
        find_own_builders(["own_twice.Nameless"])


def test_a_name_in_a_file_cannot_leave_its_comment(tmp_path: Path) -> None:
    evil = "*/ int evil; /*"

    class Evil(BricksSwishInC):
        """Takes a name that would end a comment."""

        operator = evil

    source = custom_model(tmp_path / "own.tflite", evil)
    made = CCompiler(arena_seconds=0).compile(source, tmp_path / "own.c")
    assert "evil;" not in made.path.read_text("utf-8").rpartition("/*")[0]
    assert "/* ___int_evil____ */" in made.path.read_text("utf-8")
