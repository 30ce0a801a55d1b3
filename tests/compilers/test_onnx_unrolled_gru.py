"""GRU layers that are written as products and sums compute the same, in every form that
exporters use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.compilers.iree import IREECompiler, unroll_gru_layers
from nnpipe.core.artifact import Artifact
from nnpipe.formats.onnx import read_onnx

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
STEPS, GIVEN, SIZE = 5, 3, 4
RANDOM = np.random.default_rng(0)
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def model(
    direction: str = "forward", initial: bool = True, bias: bool = True, **options: Any
) -> Any:
    """Return a GRU over 5 steps of 3 numbers, for any number of samples."""
    count = DIRECTIONS[direction]
    weights = {"w": (count, 3 * SIZE, GIVEN), "r": (count, 3 * SIZE, SIZE), "b": (count, 6 * SIZE)}
    names = ["x", "w", "r", "b" if bias else "", "", "h" if initial else ""]
    node = helper.make_node(
        "GRU", names, ["y", "last"], hidden_size=SIZE, direction=direction, **options
    )
    inputs = [helper.make_tensor_value_info("x", FLOAT, [STEPS, "n", GIVEN])]
    if initial:
        inputs.append(helper.make_tensor_value_info("h", FLOAT, [count, "n", SIZE]))
    graph = helper.make_graph(
        [node],
        "gru",
        inputs,
        [
            helper.make_tensor_value_info("y", FLOAT, [STEPS, count, "n", SIZE]),
            helper.make_tensor_value_info("last", FLOAT, [count, "n", SIZE]),
        ],
        [
            onnx.numpy_helper.from_array(RANDOM.standard_normal(shape).astype("f"), name)
            for name, shape in weights.items()
            if name in names
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def ran(made: Any, given: Any) -> Any:
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(
        None, {name: given[name] for name in (value.name for value in session.get_inputs())}
    )


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize(("initial", "bias"), [(True, True), (False, True), (False, False)])
def test_it_computes_the_same(direction: str, after: int, initial: bool, bias: bool) -> None:
    source = model(direction, initial, bias, linear_before_reset=after)
    given = {
        "x": RANDOM.standard_normal((STEPS, 2, GIVEN)).astype("f"),
        "h": RANDOM.standard_normal((DIRECTIONS[direction], 2, SIZE)).astype("f"),
    }
    expected = ran(source, given)
    made = unroll_gru_layers(source)
    onnx.checker.check_model(made)
    assert "GRU" not in {node.op_type for node in made.graph.node}
    for mine, theirs in zip(ran(made, given), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{"clip": 1.0}, {"activations": ["Tanh", "Tanh"]}])
def test_other_forms_stay_as_they_are(options: dict[str, Any]) -> None:
    assert [node.op_type for node in unroll_gru_layers(model(**options)).graph.node] == ["GRU"]


@pytest.mark.slow
def test_iree_compiles_it(tmp_path: Path) -> None:
    pytest.importorskip("iree.compiler", reason="IREE is not installed")
    pytest.importorskip("iree.runtime", reason="IREE is not installed")
    from nnpipe.runtimes.iree import IREERuntime

    source, path = (
        model("bidirectional", initial=False, linear_before_reset=1),
        tmp_path / "gru.onnx",
    )
    onnx.save(source, path)
    given = {"x": RANDOM.standard_normal((STEPS, 2, GIVEN)).astype("f")}
    made = IREECompiler().compile(
        Artifact.create(path, "onnx", read_onnx(path).io()), tmp_path / "gru.vmfb"
    )
    with IREERuntime().load(made) as session:
        found = session.infer(given)
    for name, theirs in zip(("y", "last"), ran(source, given), strict=True):
        np.testing.assert_allclose(found[name], theirs, rtol=1e-4, atol=1e-5)
