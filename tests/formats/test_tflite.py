"""TensorFlow Lite files are read as if from strangers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import TensorSpec
from nnpipe.formats.tflite import read_tflite
from nnpipe.testing.model_files import STEP, write_tflite_difference

pytest.importorskip(
    "ai_edge_litert", reason="LiteRT, whose schema writes the files, is not installed"
)
Rewrite = Callable[[Callable[[Any], None]], Path]


@pytest.fixture
def rewritten(tmp_path: Path) -> Rewrite:
    """Make a file whose content has been changed as an object before it was written."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    def rewrite(change: Callable[[Any], None]) -> Path:
        path = write_tflite_difference(tmp_path / "changed.tflite", "int8").path
        model = schema.ModelT.InitFromPackedBuf(bytearray(path.read_bytes()), 0)
        change(model)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        path.write_bytes(builder.Output())
        return path

    return rewrite


def test_names_types_shapes_and_quantisation_are_read(tmp_path: Path) -> None:
    file = read_tflite(write_tflite_difference(tmp_path / "m.tflite", "int8").path)
    assert file.io.inputs == (
        TensorSpec("second", (None, 4), "int8", STEP, -2),
        TensorSpec("first", (None, 4), "int8", STEP, 1),
    )
    assert file.io.outputs == (TensorSpec("difference", (None, 4), "int8", STEP, 3),)
    assert (file.inputs, file.outputs) == ({"second": 1, "first": 0}, {"difference": 2})


def test_the_usual_signature_is_chosen_among_several(rewritten: Rewrite) -> None:
    def add(model: Any) -> None:
        import copy

        other = copy.deepcopy(model.signatureDefs[0])
        other.signatureKey = "another"
        for entry in (*other.inputs, *other.outputs):
            entry.name = entry.name + b"_too"
        model.signatureDefs.insert(0, other)

    assert {spec.name for spec in read_tflite(rewritten(add)).io} == {
        "first",
        "second",
        "difference",
    }


def test_a_signature_that_names_other_tensors_is_passed_over(rewritten: Rewrite) -> None:
    def spoil(model: Any) -> None:
        model.signatureDefs[0].inputs[0].tensorIndex = 2

    assert {spec.name for spec in read_tflite(rewritten(spoil)).io.inputs} == {
        "t_first",
        "t_second",
    }


def test_scales_along_an_axis_are_read(rewritten: Rewrite) -> None:
    def spread(model: Any) -> None:
        quantisation = model.subgraphs[0].tensors[2].quantization
        quantisation.scale, quantisation.zeroPoint = [0.5, 0.25, 1.0, 2.0], [0, 1, 2, 3]
        quantisation.quantizedDimension = 1

    (spec,) = read_tflite(rewritten(spread)).io.outputs
    assert spec == TensorSpec(
        "difference", (None, 4), "int8", (0.5, 0.25, 1.0, 2.0), (0, 1, 2, 3), 1
    )


def _graph(change: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda model: change(model.subgraphs[0])


def _set(what: Any, name: str, value: Any) -> None:
    setattr(what, name, value)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda model: _set(model, "version", 2), "schema version 2"),
        (lambda model: _set(model, "subgraphs", []), "it holds no graph"),
        (
            _graph(lambda graph: _set(graph, "inputs", [0, 3])),
            "an input or output is a tensor that does not exist",
        ),
        (
            _graph(lambda graph: _set(graph, "outputs", [-1])),
            "an input or output is a tensor that does not exist",
        ),
        (
            _graph(lambda graph: _set(graph.operators[0], "inputs", [0, 9])),
            "an operator uses a tensor that does not exist",
        ),
        (
            _graph(lambda graph: _set(graph.operators[0], "opcodeIndex", 5)),
            "an operator refers to an operator code that does not exist",
        ),
        (
            _graph(lambda graph: _set(graph.tensors[0], "buffer", 7)),
            "the buffer of a tensor does not exist",
        ),
        (_graph(lambda graph: _set(graph.tensors[0], "type", 17)), "'int4' is no element type"),
        (_graph(lambda graph: _set(graph.tensors[0], "shape", [1] * 40)), "a list of 40 numbers"),
        (
            _graph(lambda graph: _set(graph.tensors[0], "shapeSignature", [1])),
            "two shapes of different length",
        ),
        (
            _graph(lambda graph: _set(graph.tensors[0], "shapeSignature", [-2, 4])),
            "-2 is no axis length",
        ),
        (
            _graph(lambda graph: _set(graph.tensors[0].quantization, "zeroPoint", [1, 2])),
            "1 scales and 2 zero points",
        ),
        (
            _graph(lambda graph: _set(graph.tensors[0].quantization, "scale", [np.nan])),
            "a scale that is not finite",
        ),
        (_graph(lambda graph: _set(graph.tensors[0].quantization, "scale", [-1.0])), "above zero"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    rewritten: Rewrite, change: Callable[[Any], None], cause: str
) -> None:
    path = rewritten(change)
    with pytest.raises(ArtifactError, match="not a usable TensorFlow Lite model") as caught:
        read_tflite(path)
    assert cause in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tensors_without_a_name_are_called_after_their_number(rewritten: Rewrite) -> None:
    def unname(model: Any) -> None:
        model.signatureDefs = []
        model.subgraphs[0].tensors[2].name = b""

    assert [spec.name for spec in read_tflite(rewritten(unname)).io.outputs] == ["tensor_2"]


def test_two_tensors_of_one_name_are_refused(rewritten: Rewrite) -> None:
    def spoil(model: Any) -> None:
        model.signatureDefs = []
        for tensor in model.subgraphs[0].tensors[:2]:
            tensor.name = b"twin"

    with pytest.raises(ArtifactError, match="two inputs or outputs have the same name"):
        read_tflite(rewritten(spoil))


@pytest.mark.slow
def test_lists_that_share_their_bytes_do_not_cost_time_without_end(tmp_path: Path) -> None:
    path = write_tflite_difference(tmp_path / "m.tflite").path
    data = bytearray(path.read_bytes())

    def follow(at: int) -> int:
        return at + int(struct.unpack_from("<I", data, at)[0])

    model = follow(0)
    vtable = model - struct.unpack_from("<i", data, model)[0]
    # where the list of graphs is referred to
    graphs = model + struct.unpack_from("<H", data, vtable + 4 + 2 * 2)[0]
    graph = follow(follow(graphs) + 4)
    # A list of many graphs, all of them the same: a copy of the file behind it, because references
    # lead forwards.
    count, start = 200_000, len(data)
    copy = start + 4 + 4 * count
    listed = np.arange(count, dtype="<u4")
    struct.pack_into("<I", data, graphs, start - graphs)
    path.write_bytes(
        bytes(data)
        + struct.pack("<I", count)
        + (copy + graph - (start + 4 + 4 * listed)).tobytes()
        + bytes(data)
    )
    with pytest.raises(ArtifactError, match="its lists overlap"):
        read_tflite(path)


def test_signatures_without_number_are_refused(rewritten: Rewrite) -> None:
    def repeat(model: Any) -> None:
        model.signatureDefs *= 2000

    with pytest.raises(ArtifactError, match="2000 signatures"):
        read_tflite(rewritten(repeat))


def read_or_refused(path: Path) -> None:
    try:
        read_tflite(path)
    except ArtifactError as error:
        refused = str(error)
    else:
        return
    assert str(path) in refused
    assert "\n" not in refused


@settings(
    max_examples=examples(300),
    deadline=1000,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_a_changed_file_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "m.tflite"
    if not path.exists():
        write_tflite_difference(path, "int8")
        (tmp_path / "original").write_bytes(path.read_bytes())
    content = bytearray((tmp_path / "original").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 4))
        new = data.draw(
            st.one_of(
                st.binary(min_size=1, max_size=4), st.sampled_from([b"\xff" * 4, b"\0\0\0\x80"])
            )
        )
        content[at : at + len(new)] = new
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2, 40]))])
    read_or_refused(path)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
@example(b"\x00\x00\x00\x00TFL3")
@example(b"\xff\xff\xff\xffTFL3")
@example(b"\x08\x00\x00\x00TFL3\xff\xff\xff\x7f")
def test_no_bytes_break_the_reader(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "m.tflite"
    for content in (tail, b"\x08\0\0\0TFL3" + tail):
        path.write_bytes(content)
        read_or_refused(path)


def test_real_files_are_read_as_the_interpreter_reads_them(shared_data: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    paths = sorted(shared_data.glob("models/**/*.tflite"))
    assert paths
    for path in paths:
        file, interpreter = read_tflite(path), Interpreter(model_path=str(path))
        for specs, numbers, details in (
            (file.io.inputs, file.inputs, interpreter.get_input_details()),
            (file.io.outputs, file.outputs, interpreter.get_output_details()),
        ):
            assert [numbers[spec.name] for spec in specs] == [detail["index"] for detail in details]
            for spec, detail in zip(specs, details, strict=True):
                assert spec.dtype == np.dtype(detail["dtype"]).name
                assert [-1 if n is None else n for n in spec.shape] == list(
                    detail["shape_signature"]
                )
                assert (spec.scale or 0.0, spec.zero_point or 0) == detail["quantization"]
