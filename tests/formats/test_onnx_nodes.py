"""The reader of operations sees what the ``onnx`` package sees, and takes damage for damage."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.onnx_network import read_nodes

onnx = pytest.importorskip("onnx", reason="onnx is not installed")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with a branch, constants of several kinds, and an optional input left out."""
    from onnx import TensorProto, helper, numpy_helper

    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["negative"], name="within")],
        "branch",
        [],
        [helper.make_tensor_value_info("negative", TensorProto.FLOAT, [2])],
    )
    nodes = [
        helper.make_node("Constant", [], ["low"], value_float=-1.5),
        helper.make_node(
            "Constant", [], ["lowest"], value=numpy_helper.from_array(np.float32(-np.inf))
        ),
        helper.make_node("Cast", ["lowest"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Clip", ["x", "", "high"], ["clipped"], name="clip"),
        helper.make_node("Transpose", ["clipped"], ["turned"], perm=[0]),
        helper.make_node("If", ["choice"], ["y"], then_branch=branch, else_branch=branch),
        helper.make_node("Det", ["x"], ["z"], domain="my.own", weights=[0.5, 2.0]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("choice", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [helper.make_tensor("high", TensorProto.FLOAT, [], [2.5])],
    )
    path = tmp_path / "model.onnx"
    onnx.save_model(helper.make_model(graph), str(path))
    return path


def test_operations_of_all_graphs_are_read(model: Path) -> None:
    found = read_nodes(model)
    kinds = [node.kind for node in found]
    assert sorted(kinds) == sorted(
        ["Constant", "Constant", "Cast", "Clip", "Transpose", "If", "Neg", "Neg", "my.own::Det"]
    )
    by_kind = {node.kind: node for node in found}
    assert by_kind["Clip"].inputs == ("x", "", "high")
    assert (
        by_kind["Clip"].get_input(1),
        by_kind["Clip"].get_input(2),
        by_kind["Clip"].get_input(9),
    ) == (
        "",
        "high",
        "",
    )
    assert (by_kind["Clip"].title, by_kind["Transpose"].title, by_kind["Neg"].title) == (
        "clip",
        "turned",
        "within",
    )
    assert by_kind["Transpose"].attributes == {"perm": (0,)}
    assert by_kind["Cast"].attributes == {"to": 1}
    assert by_kind["my.own::Det"].attributes == {"weights": (0.5, 2.0)}


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_damage_is_named_or_read_as_something_else(model: Path, data: st.DataObject) -> None:
    content = bytearray(model.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(content)))
    damaged = model.with_name("damaged.onnx")
    damaged.write_bytes(content[:cut])
    with contextlib.suppress(ArtifactError):
        read_nodes(damaged)
