"""ONNX files that are larger than one file can be, and what can be said of any without reading
its weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer
from nnpipe.core.artifact import get_sidecar_path
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.tensors import generate_random_batch
from nnpipe.formats.onnx import read_onnx
from nnpipe.modelwrappers.files import _onnx_graph
from nnpipe.modelwrappers.files import onnx as module
from nnpipe.modelwrappers.files._onnx_graph import ONNXSource
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.scenarios.info import main as info
from nnpipe.testing.model_files import write_onnx_network

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
needs("onnx_ir")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def plain_network(path: Path) -> None:
    """Write a network as strangers do, with no description beside it."""
    write_onnx_network(path)
    get_sidecar_path(path).unlink()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A network whose weights lie in a file beside it, one of them in a graph within a node."""
    path = tmp_path / "source" / "network.onnx"
    path.parent.mkdir()
    plain_network(path)
    model = onnx.load_model(str(path))
    onnx.save_model(
        model, str(path), save_as_external_data=True, location="all.bin", size_threshold=0
    )
    return path


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch, outside: Path) -> None:
    monkeypatch.setattr(module, "LARGEST", read_onnx(outside).bytes_in_all - 1)


def outputs(path: Path) -> dict[str, np.ndarray]:
    model = ONNXModel(model_path=path).open()
    with model.session() as session:
        return session.infer(generate_random_batch(model.io, 1))


@pytest.mark.usefixtures("small_limit")
def test_a_large_model_is_exported_with_its_weights_beside_it_and_none_is_read(
    outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = outputs(outside)
    monkeypatch.setattr(
        ONNXSource, "serialize", lambda self: pytest.fail("the whole model is put together")
    )
    made = ONNXModel(model_path=outside).open().export(tmp_path / "made" / "m.onnx", "onnx")
    (outside.parent / "all.bin").unlink()
    assert {path.name for path in made.path.parent.iterdir()} == {
        "m.onnx",
        "m.onnx.json",
        "m.onnx.0.weights",
    }
    for name, array in outputs(made.path).items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.usefixtures("small_limit")
def test_what_cannot_take_a_large_model_is_told_before_anything_slow(outside: Path) -> None:
    model = ONNXModel(model_path=outside)
    model.check_takers([ONNXRuntime])
    with pytest.raises(
        ConfigError,
        match=r"with its weights it has [\d,]+ bytes, and ONNXStaticQuantizer works on one",
    ):
        model.check_takers([ONNXStaticQuantizer, ONNXRuntime])
    with pytest.raises(ConfigError, match=r"more than the one file of .* that is sent to a target"):
        model.check_takers([ONNXRuntime], remote=True)


def test_a_smaller_one_becomes_one_file_piece_by_piece_and_is_taken_by_all(
    outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = outputs(outside)
    whole = onnx.load_model(str(outside))
    monkeypatch.setattr(
        ONNXSource, "serialize", lambda self: pytest.fail("the whole model is put together")
    )
    model = ONNXModel(model_path=outside).open()
    model.wrapper.check_takers([ONNXStaticQuantizer, ONNXRuntime], remote=True)
    made = model.export(tmp_path / "made" / "m.onnx", "onnx")
    assert read_onnx(made.path).external == ()
    onnx.checker.check_model(str(made.path))
    for mine, its in zip(
        onnx.load_model(str(made.path)).graph.initializer, whole.graph.initializer, strict=True
    ):
        assert mine == its or mine.raw_data == its.raw_data
    for name, array in outputs(made.path).items():
        np.testing.assert_array_equal(array, expected[name])


def test_weights_that_reach_beyond_their_file_are_told(outside: Path, tmp_path: Path) -> None:
    (outside.parent / "all.bin").write_bytes(b"short")
    with pytest.raises(ArtifactError, match=r"a weight reaches beyond the end of 'all\.bin'"):
        ONNXModel(model_path=outside).open().export(tmp_path / "made" / "m.onnx", "onnx")
    assert list((tmp_path / "made").iterdir()) == []


def test_weights_within_nodes_become_part_of_the_file_too(tmp_path: Path) -> None:
    value = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    node = onnx.helper.make_node("Constant", [], ["w"], value=value)
    add = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    info = [onnx.helper.make_tensor_value_info(name, 1, [None, 4]) for name in "xy"]
    graph = onnx.helper.make_graph([node, add], "g", info[:1], info[1:])
    model = onnx.helper.make_model(
        graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 13)]
    )
    path = tmp_path / "m.onnx"
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    assert read_onnx(path).external == ("w.bin",)
    made = ONNXModel(model_path=path).open().export(tmp_path / "made" / "m.onnx", "onnx")
    assert read_onnx(made.path).external == ()
    with ONNXModel(model_path=made.path).open().session() as session:
        found = session.infer({"x": np.ones((1, 4), np.float32)})["y"]
    np.testing.assert_array_equal(found, [[1, 2, 3, 4]])


def test_a_file_is_counted_without_its_weights(
    outside: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ONNXModel(model_path=outside).open()
    graph, weights = model.get_inference_graph(), model.get_weights()
    found = model.wrapper.contents()
    kinds = [operation.kind for operation in graph.operations]
    assert found.operations == {kind: kinds.count(kind) for kind in kinds}
    assert found.tensors == len(weights)
    assert found.numbers.total() == sum(array.size for array in weights.values())
    monkeypatch.setattr(
        ONNXSource, "model", property(lambda self: pytest.fail("the weights are read"))
    )
    (outside.parent / "all.bin").unlink()
    assert info([str(outside)]) == 0
    assert f"{len(weights)} tensors" in capsys.readouterr().out


def spoilt(path: Path, change: Any) -> bytes:
    model = onnx.load_model(str(path))
    change(model)
    data: bytes = model.SerializeToString()
    assert data.count(b"NAME") == 1
    return data.replace(b"NAME", b"NAM\xff")


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.graph.node[0], "name", "NAME"),
        lambda model: setattr(model.graph.node[0], "domain", "NAME"),
        lambda model: model.graph.node[0].attribute.append(onnx.helper.make_attribute("NAME", 1)),
        lambda model: model.graph.value_info.append(
            onnx.helper.make_tensor_value_info("NAME", 1, [1])
        ),
        lambda model: onnx.helper.set_model_props(model, {"key": "NAME"}),
    ],
    ids=["node", "domain", "attribute", "value", "property"],
)
def test_a_name_that_is_no_text_is_told_in_one_line(
    tmp_path: Path, change: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    plain_network(path)
    path.write_bytes(spoilt(path, change))
    assert info([str(path)]) == 2
    told = capsys.readouterr().err
    assert told == f"nnpipe info: {path}: not a usable ONNX model: a string that is not UTF-8\n"
    with pytest.raises(ArtifactError, match="not UTF-8"):
        ONNXModel(model_path=path).open().session()


def test_a_graph_is_read_without_large_weights_in_files_of_their_own(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_onnx_graph, "_SMALL", 16)
    expected = ONNXModel(model_path=outside).open().get_weights()
    model, broken = ONNXModel(model_path=outside).open(), ONNXModel(model_path=outside).open()
    assert model.get_inference_graph().operations == broken.get_inference_graph().operations
    for name, array in model.get_weights().items():
        np.testing.assert_array_equal(array, expected[name])
    (outside.parent / "all.bin").write_bytes(b"\0")
    assert broken.get_inference_graph().tensors["kernel"].shape == (6, 1, 3, 3)
    with pytest.raises(ArtifactError, match=r"network\.onnx: not a usable ONNX model"):
        broken.get_weights()
    assert model.get_weights().keys() == expected.keys()
