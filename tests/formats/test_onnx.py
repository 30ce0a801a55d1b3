"""ONNX files are read as if from strangers, and as the onnx package reads them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import TensorSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network

onnx = pytest.importorskip("onnx", reason="onnx is not installed")


def saved(model: Any, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def model_of(nodes: list[Any], constants: list[Any], **side: Any) -> Any:
    inputs = [
        onnx.helper.make_tensor_value_info("x", side.get("input", onnx.TensorProto.FLOAT), ["n", 4])
    ]
    outputs = [
        onnx.helper.make_tensor_value_info(
            "y", side.get("output", onnx.TensorProto.FLOAT), ["n", 4]
        )
    ]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, constants)
    return onnx.helper.make_model(graph)


def node(*arguments: Any, **attributes: Any) -> Any:
    return onnx.helper.make_node(*arguments, **attributes)


def external_tensor(location: str) -> Any:
    tensor = onnx.TensorProto(data_type=onnx.TensorProto.FLOAT, dims=[1], name="w")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="offset", value="0")
    tensor.external_data.add(key="location", value=location)
    return tensor


def test_names_types_and_shapes_are_read(tmp_path: Path) -> None:
    file = read_onnx(write_onnx_network(tmp_path / "m.onnx").path)
    assert file.io() == NETWORK_IO
    assert file.external == ()


def test_weights_on_the_list_of_inputs_are_no_inputs(tmp_path: Path) -> None:
    model = onnx.load_model(write_onnx_network(tmp_path / "m.onnx").path)
    for constant in model.graph.initializer:
        model.graph.input.append(
            onnx.helper.make_tensor_value_info(
                constant.name, constant.data_type, list(constant.dims)
            )
        )
    assert read_onnx(saved(model, tmp_path / "old.onnx")).io() == NETWORK_IO


def test_what_the_file_leaves_out_comes_from_its_source_or_is_asked_for(tmp_path: Path) -> None:
    model = onnx.load_model(write_onnx_network(tmp_path / "m.onnx").path)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    file = read_onnx(saved(model, tmp_path / "bare.onnx"))
    assert file.io(NETWORK_IO) == NETWORK_IO
    with pytest.raises(ArtifactError, match=r"bare\.onnx: it does not say what 'scores' is"):
        file.io()


@pytest.mark.parametrize("stored", ["raw", "typed"])
@pytest.mark.parametrize(
    ("dtype", "zero"), [("uint8", 200), ("int8", -100), ("int8", 0), (None, 0)]
)
@pytest.mark.parametrize("dims", [(), (1,)])
def test_quantisation_is_read_off_the_first_and_last_nodes(
    tmp_path: Path, stored: str, dtype: str | None, zero: int, dims: tuple[int, ...]
) -> None:
    def constant(name: str, value: Any, kind: str) -> Any:
        array = np.full(dims, value, kind)
        if stored == "raw":
            return onnx.numpy_helper.from_array(array, name)
        return onnx.helper.make_tensor(
            name,
            onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
            dims,
            array.reshape(-1).tolist(),
        )

    kind = dtype or "uint8"
    constants = [constant("s", 0.125, "float32")] + ([constant("z", zero, kind)] if dtype else [])
    operands = [tensor.name for tensor in constants]
    nodes = [
        node("DequantizeLinear", ["x", *operands], ["r"]),
        node("QuantizeLinear", ["r", *operands], ["y"]),
    ]
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    path = saved(model_of(nodes, constants, input=code, output=code), tmp_path / "q.onnx")
    found = read_onnx(path).io()
    assert found.inputs == (TensorSpec("x", (None, 4), kind, 0.125, zero),)
    assert found.outputs == (TensorSpec("y", (None, 4), kind, 0.125, zero),)


@pytest.mark.parametrize(
    "case",
    [
        "used raw too",
        "scale computed",
        "scale per channel",
        "scale zero",
        "scale infinite",
        "other operand",
    ],
)
def test_quantisation_that_is_not_plain_is_not_guessed(tmp_path: Path, case: str) -> None:
    scale = {"scale per channel": [0.5] * 4, "scale zero": 0.0, "scale infinite": np.inf}.get(
        case, 0.5
    )
    constants = [onnx.numpy_helper.from_array(np.array(scale, "float32"), "s")]
    nodes = [node("DequantizeLinear", ["x", "s"], ["y"])]
    if case == "used raw too":
        nodes.append(node("Identity", ["x"], ["other"]))
    elif case == "scale computed":
        nodes.insert(0, node("Identity", ["s"], ["t"]))
        nodes[1] = node("DequantizeLinear", ["x", "t"], ["y"])
    elif case == "other operand":
        nodes = [node("DequantizeLinear", ["c", "s", "x"], ["y"])]
    model = model_of(nodes, constants, input=onnx.TensorProto.UINT8)
    assert read_onnx(saved(model, tmp_path / "q.onnx")).io().inputs[0].scale is None


def hiding_places() -> dict[str, Any]:
    """Every place of a model in which a tensor can say that its numbers lie in another file."""
    tensor = external_tensor("../secret")
    sparse = onnx.SparseTensorProto(values=tensor, indices=tensor, dims=[4])
    inner = onnx.helper.make_graph([], "inner", [], [], [tensor])
    deep = onnx.helper.make_graph(
        [node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)], "deep", [], []
    )
    attribute = onnx.AttributeProto(name="many", type=onnx.AttributeProto.TENSORS, tensors=[tensor])
    graphs = onnx.AttributeProto(name="graphs", type=onnx.AttributeProto.GRAPHS, graphs=[deep])
    several, nested = node("Custom", ["x"], ["y"]), node("Custom", ["x"], ["y"])
    several.attribute.append(attribute)
    nested.attribute.append(graphs)
    plain = [node("Identity", ["x"], ["y"])]
    places = {
        "initializer": model_of(plain, [tensor]),
        "constant": model_of([node("Constant", [], ["y"], value=tensor)], []),
        "list of tensors": model_of([several], []),
        "branch": model_of([node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)], []),
        "list of graphs": model_of([nested], []),
        "sparse constant": model_of([node("Constant", [], ["y"], sparse_value=sparse)], []),
        "sparse initializer": model_of(plain, []),
        "function": model_of(plain, []),
        "function's default": model_of(plain, []),
    }
    places["sparse initializer"].graph.sparse_initializer.append(sparse)
    function = onnx.FunctionProto(
        name="f", domain="d", node=[node("Constant", [], ["y"], value=tensor)]
    )
    places["function"].functions.append(function)
    default = onnx.AttributeProto(name="t", type=onnx.AttributeProto.TENSOR, t=tensor)
    places["function's default"].functions.append(
        onnx.FunctionProto(name="f", domain="d", attribute_proto=[default])
    )
    return places


@pytest.mark.parametrize("place", list(hiding_places()))
def test_weights_in_other_files_are_found_wherever_they_hide(tmp_path: Path, place: str) -> None:
    file = read_onnx(saved(hiding_places()[place], tmp_path / "m.onnx"))
    assert file.external == ("../secret",)
    with pytest.raises(
        ArtifactError, match=r"m\.onnx: its weights are in '\.\./secret', outside its own folder"
    ):
        file.check_external()


def test_a_graph_given_twice_is_looked_at_twice(tmp_path: Path) -> None:
    """Readers of protocol buffers put the two together."""
    path = write_onnx_network(tmp_path / "m.onnx").path
    path.write_bytes(path.read_bytes() + hiding_places()["initializer"].SerializeToString())
    assert "w" in {
        tensor.name for tensor in onnx.load_model(path, load_external_data=False).graph.initializer
    }
    assert read_onnx(path).external == ("../secret",)


def test_a_location_given_twice_is_the_last_one(tmp_path: Path) -> None:
    """Readers of protocol buffers keep the last of several values."""
    content = model_of(
        [node("Identity", ["x"], ["y"])], [external_tensor("a" * 26)]
    ).SerializeToString()
    # Two short values take the place of a long one.
    twice = b"\x12\x06ok.bin" + b"\x12\x12../outside/bin.bin"
    once = b"\x12\x1a" + b"a" * 26
    assert content.count(once) == 1
    assert len(twice) == len(once)
    path = _written(tmp_path / "m.onnx", content.replace(once, twice))
    entries = onnx.load_model(path, load_external_data=False).graph.initializer[0].external_data
    assert [entry.value for entry in entries] == ["0", "../outside/bin.bin"]
    assert read_onnx(path).external == ("../outside/bin.bin",)


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "empty"),
        (b"\x08\x07", "it holds no graph"),
        (b"\x3a\x7f\x0a", "beyond the end"),
        (b"\x3b", "an unknown wire type"),
        (b"\x08" + b"\xff" * 11, "an integer of variable length does not end"),
        (b"\x3a\x02\x5a\x05", "beyond the end"),
        (b"\x38\x01", "a number in the place of a message"),
    ],
)
def test_damaged_files_are_named_in_one_line(tmp_path: Path, content: bytes, cause: str) -> None:
    path = _written(tmp_path / "m.onnx", content)
    with pytest.raises(ArtifactError, match=cause) as caught:
        read_onnx(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_input_without_a_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_onnx_network(path)
    name = NETWORK_IO.inputs[0].name.encode()
    before, field, after = path.read_bytes().rpartition(b"\x0a" + _length(len(name)) + name)
    path.write_bytes(before + b"\x7a" + field[1:] + after)  # a field that nobody knows
    with pytest.raises(ArtifactError, match="a tensor needs a name"):
        read_onnx(path).io()


def test_graphs_nested_without_end_are_refused(tmp_path: Path) -> None:
    graph = b""
    for _ in range(5000):
        # an attribute's graph, a node's attribute, a graph's node
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            graph = tag + _length(len(graph)) + graph
    path = _written(tmp_path / "m.onnx", b"\x3a" + _length(len(graph)) + graph)
    with pytest.raises(ArtifactError, match="nested too deeply"):
        read_onnx(path)


def calling(path: Path, bodies: dict[str, list[str]], start: str) -> Path:
    """Write a model with functions, each of which calls others one after the other."""
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("d", 1)]
    model = model_of([node(start, ["x"], ["y"], domain="d")], [])
    model.opset_import.add(domain="d", version=1)
    for name, kinds in bodies.items():
        places = [f"v{number}" for number in range(len(kinds) + 1)]
        calls = [
            node(kind, [before], [after], domain="d" if kind in bodies else "")
            for kind, before, after in zip(kinds, places, places[1:], strict=False)
        ]
        model.functions.append(
            onnx.helper.make_function("d", name, places[:1], places[-1:], calls, opsets)
        )
    return saved(model, path)


def test_functions_that_call_functions_are_read(tmp_path: Path) -> None:
    path = calling(tmp_path / "m.onnx", {"f": ["g", "Relu", "g"], "g": ["Neg", "Relu"]}, "f")
    assert list(read_onnx(path).inputs) == ["x"]


@pytest.mark.parametrize(
    ("bodies", "cause"),
    [
        (
            {f"f{i}": [f"f{i - 1}" if i else "Relu"] * 10 for i in range(200)},
            "stands for more than 200,000 nodes",
        ),
        (
            {f"f{i}": [f"f{i - 1}" if i else "Relu"] for i in range(3000)},
            "more than 64 levels deep",
        ),
        ({"f0": ["f1"], "f1": ["Relu", "f0"]}, "calls itself"),
    ],
    ids=["multiplying", "deep", "endless"],
)
def test_functions_that_stand_for_too_much_are_refused_at_once(
    tmp_path: Path, bodies: dict[str, list[str]], cause: str
) -> None:
    path = calling(tmp_path / "m.onnx", bodies, f"f{len(bodies) - 1}")
    with pytest.raises(ArtifactError, match=cause) as caught:
        read_onnx(path)
    assert "\n" not in str(caught.value)


def test_a_file_of_weights_that_no_system_can_name_is_refused(tmp_path: Path) -> None:
    path = saved(
        model_of([node("Relu", ["x"], ["y"])], [external_tensor("w\0.bin")]), tmp_path / "m.onnx"
    )
    with pytest.raises(ArtifactError, match=r"'w\\x00.bin'.*cannot be the name of a file"):
        read_onnx(path)


def _length(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def read_or_refused(path: Path) -> None:
    try:
        file = read_onnx(path)
        file.io(NETWORK_IO)
        file.check_external()
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
    path = tmp_path / "m.onnx"
    if not path.exists():
        write_onnx_network(path)
        (tmp_path / "original").write_bytes(path.read_bytes())
    content = bytearray((tmp_path / "original").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(
            st.one_of(
                st.integers(0, len(content) - 1),
                st.integers(0, 400),
                st.integers(len(content) - 400, len(content) - 1),
            )
        )
        new = data.draw(st.binary(min_size=1, max_size=4))
        content[at : at + len(new)] = new
    path.write_bytes(content)
    read_or_refused(path)


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=100))
@example(b"\x3a\x00")
def test_no_bytes_break_the_reader(tmp_path: Path, content: bytes) -> None:
    for whole in (content, b"\x3a" + _length(len(content)) + content):
        read_or_refused(_written(tmp_path / "m.onnx", whole))


def test_the_onnx_projects_own_test_models_are_read_as_its_package_reads_them(
    shared_data: Path, tmp_path: Path
) -> None:
    count = 0
    with tarfile.open(shared_data / "vectors" / "onnx_node_a.tar.gz") as archive:
        for member in archive:
            if not member.name.endswith(".onnx"):
                continue
            handle = archive.extractfile(member)
            assert handle is not None
            content = handle.read()
            model = onnx.load_model(io.BytesIO(content))
            file = read_onnx(_written(tmp_path / "m.onnx", content))
            assert file.inputs == dict(map(_stated, model.graph.input)), member.name
            assert file.outputs == dict(map(_stated, model.graph.output)), member.name
            count += 1
    assert count > 700


def _stated(value: Any) -> tuple[str, tuple[str | None, tuple[int | None, ...] | None]]:
    names = {1: "float32", 8: "string", 10: "float16", 11: "float64", 16: "bfloat16"}
    if value.type.WhichOneof("value") != "tensor_type":
        return value.name, (None, None)
    tensor = value.type.tensor_type
    code = tensor.elem_type
    known = code in (*range(1, 14), 16)
    dtype = names.get(code) or (
        np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)).name if known else None
    )
    if not tensor.HasField("shape"):
        return value.name, (dtype, None)
    shape = tuple(
        axis.dim_value if axis.HasField("dim_value") else None for axis in tensor.shape.dim
    )
    return value.name, (dtype, shape)
