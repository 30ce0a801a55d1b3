"""What is wrong in a file of which only bytes and outputs are known."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.analysis.compiled_weights import Kernel, held_in
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.workflows.verification.compare_outputs import outputs_of
from nnpipe.workflows.verification.file_content import content_of
from nnpipe.workflows.verification.first_difference import Divergence
from nnpipe.workflows.verification.opaque_case import OpaqueCase
from nnpipe.workflows.verification.opaque_files import explained, turned_among

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
needs("onnx_ir")

RANDOM = np.random.default_rng(5)
WIDTHS = (3, 8, 8, 8)


def network() -> Any:
    """Three convolutions with biases of their own and activations, then a matrix."""
    nodes, weights, tensor = [], {}, "image"
    for n, (taken, given) in enumerate(pairwise(WIDTHS)):
        weights[f"k{n}"] = RANDOM.standard_normal((given, taken, 3, 3)).astype(np.float32) / 5
        weights[f"b{n}"] = RANDOM.standard_normal((given, 1, 1)).astype(np.float32)
        nodes += [
            onnx.helper.make_node("Conv", [tensor, f"k{n}"], [f"c{n}"], f"conv{n}", pads=[1, 1, 1, 1]),
            onnx.helper.make_node("Add", [f"c{n}", f"b{n}"], [f"a{n}"], f"add{n}"),
            onnx.helper.make_node("Relu", [f"a{n}"], [f"r{n}"], f"relu{n}"),
        ]
        tensor = f"r{n}"
    weights["last"] = RANDOM.standard_normal((8, 5)).astype(np.float32)
    nodes += [
        onnx.helper.make_node("GlobalAveragePool", [tensor], ["pooled"], "pool"),
        onnx.helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        onnx.helper.make_node("MatMul", ["flat", "last"], ["scores"], "matrix"),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes, "net",
        [onnx.helper.make_tensor_value_info("image", kind, ["n", 3, 8, 8])],
        [onnx.helper.make_tensor_value_info("scores", kind, ["n", 5])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


NETWORK = network()


def opened(path: Path) -> LiveModel:
    return find("ONNXModel", ModelWrapper).from_json({"model_path": str(path)}).open(path)


def told(folder: Path, spoil: Callable[[Any], None], different: bool = True, network: Any = NETWORK) -> Divergence:
    """Spoil a copy, and ask of it as of a file that shows nothing."""
    good, bad, model = folder / "good.onnx", folder / "bad.onnx", onnx.ModelProto()
    model.CopyFrom(network)
    onnx.save(model, good)
    spoil(model)
    onnx.save(model, bad)
    source, other = opened(good), opened(bad)
    shape = (1, *(length or 1 for length in source.io.inputs[0].shape[1:]))
    samples = [{"image": RANDOM.standard_normal(shape).astype(np.float32)} for _ in range(12)]
    with source.session() as one, other.session() as two:
        ours, theirs = (list(outputs_of(session, source.io, samples)) for session in (one, two))
    return explained(source, bad, samples, ours, theirs, ("float",), different)


def of_sequences() -> Any:
    """Places and a type are added to six tokens; then there are two matrices."""
    node = onnx.helper.make_node
    nodes = [
        node("Add", ["image", "place"], ["placed"], "places"),
        node("Add", ["placed", "type"], ["sum"], "types"),
        node("MatMul", ["sum", "m0"], ["p0"], "matrix0"),
        node("Relu", ["p0"], ["r0"], "relu0"),
        node("MatMul", ["r0", "m1"], ["p1"], "matrix1"),
        node("ReduceSum", ["p1", "tokens"], ["scores"], "sum", keepdims=0),
    ]
    shapes = {"place": (6, 16), "type": (16,), "m0": (16, 16), "m1": (16, 5)}
    weights = {name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes, "net",
        [onnx.helper.make_tensor_value_info("image", kind, ["n", 6, 16])],
        [onnx.helper.make_tensor_value_info("scores", kind, ["n", 5])],
        [onnx.numpy_helper.from_array(a, name) for name, a in {**weights, "tokens": np.array([1])}.items()],
    )  # fmt: skip
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


SEQUENCES = of_sequences()


def weights_changed(name: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    def spoil(model: Any) -> None:
        for tensor in model.graph.initializer:
            if tensor.name == name:
                array = onnx.numpy_helper.to_array(tensor).copy()
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(change(array)), name))

    return spoil


def exchanged(array: Any) -> Any:
    array[[1, 6]] = array[[6, 1]]
    return array


def silenced(array: Any) -> Any:
    array[4] = 0
    return array


def noisy(array: Any) -> Any:
    # Of its own: the order of tests, which the noise must not depend on, differs from run to run.
    return array + 0.1 * np.random.default_rng(1).standard_normal(array.shape).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "change", "operation", "words"),
    [
        ("k1", exchanged, "conv1", "weights of channels 1 and 6 are those of channels 6 and 1"),
        ("k2", silenced, "conv2", "weights of channel 4 are 0"),
        ("k1", noisy, "conv1", "its weights are not in the file"),
        ("k2", lambda array: array.transpose(0, 1, 3, 2), "conv2", "height and width of its kernel are exchanged"),
        ("b1", np.zeros_like, "add1", "its bias is missing"),
        ("b0", lambda array: 2 * array, "add0", "its bias is added once too often"),
    ],
)
def test_the_culprit_comes_first(
    tmp_path: Path, name: str, change: Callable[[Any], Any], operation: str, words: str
) -> None:
    found = told(tmp_path, weights_changed(name, change))
    assert found.suspects[0].name == operation
    assert words in found.suspects[0].told
    assert "by its weights and its outputs" in str(found)


def test_an_operation_that_is_computed_twice_is_named(tmp_path: Path) -> None:
    def twice(model: Any) -> None:
        nodes = list(model.graph.node)
        again = onnx.helper.make_node("Conv", ["c1", "k1"], ["again"], "again", pads=[1, 1, 1, 1])
        nodes[4].input[0] = "again"
        del model.graph.node[:]
        model.graph.node.extend([*nodes[:4], again, *nodes[4:]])

    found = told(tmp_path, twice)
    assert (found.suspects[0].name, found.suspects[0].told) == ("conv1", "it is computed twice")


def test_nothing_is_suspected_of_a_sound_file(tmp_path: Path) -> None:
    found = told(tmp_path, lambda model: None, different=False)
    assert found.suspects == ()
    assert "nothing tells" in str(found)


def test_a_constant_that_moves_into_another_one_is_no_fault(tmp_path: Path) -> None:
    moved = 0.5 * RANDOM.standard_normal(16).astype(np.float32)

    def fold(model: Any) -> None:
        weights_changed("place", lambda array: array + moved)(model)
        weights_changed("type", lambda array: array - moved)(model)

    assert not told(tmp_path, fold, False, SEQUENCES).suspects
    half = weights_changed("place", lambda array: array + moved)
    assert told(tmp_path, half, True, SEQUENCES).suspects[0].name == "places"


def test_a_table_is_no_kernel_of_what_takes_entries_of_it(tmp_path: Path) -> None:
    """As the table of relative positions, of which compilers keep only the entries, in the order of their use."""
    table, picked = RANDOM.standard_normal((4, 8)).astype(np.float32), RANDOM.integers(0, 4, 6)
    nodes = [
        onnx.helper.make_node("Gather", ["table", "picked"], ["entries"], "gather"),
        onnx.helper.make_node("Add", ["x", "entries"], ["sum"], "add"),
        onnx.helper.make_node("MatMul", ["sum", "m"], ["scores"], "matrix"),
    ]
    kind, weights = onnx.TensorProto.FLOAT, {"table": table, "m": RANDOM.standard_normal((8, 5)).astype(np.float32)}
    graph = onnx.helper.make_graph(
        nodes, "net",
        [onnx.helper.make_tensor_value_info("x", kind, ["n", 6, 8])],
        [onnx.helper.make_tensor_value_info("scores", kind, ["n", 6, 5])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
        + [onnx.numpy_helper.from_array(picked, "picked")],
    )  # fmt: skip
    path = tmp_path / "net.onnx"
    onnx.save_model(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    source = find("ONNXModel", ModelWrapper).from_json({"model_path": str(path)}).open(path)
    samples = [{"x": RANDOM.standard_normal((1, 6, 8)).astype(np.float32)} for _ in range(2)]
    with source.session() as session:
        values = list(outputs_of(session, source.io, samples))
    case = OpaqueCase.of(source, samples, values, values)
    assert list(case.kernels()) == ["matrix"]


def test_channels_of_a_matrix_that_takes_sequences_are_in_their_places(tmp_path: Path) -> None:
    def swap(array: Any) -> Any:
        array[:, [2, 9]] = array[:, [9, 2]]
        return array

    first = told(tmp_path, weights_changed("m0", swap), True, SEQUENCES).suspects[0]
    assert first.name == "matrix0"
    assert "weights of channels 2 and 9 are those of channels 9 and 2" in first.told


def test_a_channel_that_nobody_hears_may_round_to_nothing(tmp_path: Path) -> None:
    def deaf(array: Any) -> Any:
        array[:, 4] /= 1000
        return array

    assert told(tmp_path, weights_changed("k1", silenced), False).suspects[0].name == "conv1"
    quiet = onnx.ModelProto()
    quiet.CopyFrom(NETWORK)
    weights_changed("k2", deaf)(quiet)
    assert not told(tmp_path, weights_changed("k1", silenced), False, quiet).suspects


def test_of_two_kernels_the_one_with_the_width_first_is_turned() -> None:
    kernels = [np.random.default_rng(n).standard_normal((6, 4, 3, 3)).astype(np.float32) for n in range(2)]
    wanted = {f"op{n}": Kernel(f"op{n}", kernel, (0,)) for n, kernel in enumerate(kernels)}
    content = kernels[0].tobytes() + kernels[1].transpose(0, 1, 3, 2).tobytes()
    assert turned_among(wanted, held_in(content, list(wanted.values()))) == ["op1"]


@pytest.mark.parametrize("channels_last", [False, True])
def test_three_axes_of_one_length_are_told_apart_by_other_kernels(channels_last: bool) -> None:
    shapes = [(8, 3, 3, 3), (6, 8, 3, 3), (4, 6, 3, 3)]
    kernels = [np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n, shape in enumerate(shapes)]
    content = b"".join(kernel.tobytes() for kernel in kernels)
    source = [kernel.transpose(2, 3, 1, 0) if channels_last else kernel for kernel in kernels]
    wanted = {f"op{n}": Kernel(f"op{n}", kernel, (3 if channels_last else 0,)) for n, kernel in enumerate(source)}
    assert turned_among(wanted, held_in(content, list(wanted.values()))) == []
    content = kernels[0].transpose(0, 1, 3, 2).tobytes() + content[kernels[0].nbytes :]
    assert turned_among(wanted, held_in(content, list(wanted.values()))) == ["op0"]


def test_archives_are_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one", b"x" * 100)
        archive.writestr("two", b"y" * 8)
    content = content_of(tmp_path / "a.zip")
    assert content.startswith(b"x" * 100)
    assert b"y" * 8 in content
    assert len(content) % 16 == 0
