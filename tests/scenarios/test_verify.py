"""``nnpipe verify`` tells models that agree from models that do not, and says where they part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.scenarios.verify import main

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
needs("onnx_ir")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

DIGITS = ("--dataset", "DigitsDataset", "--scale", "16", "--samples", "20")


def write_network(
    path: Path,
    *,
    channels_last: bool = False,
    batch: int | str = "n",
    names: tuple[str, str] = ("image", "scores"),
    swap: bool = False,
    bias: float = 0.0,
    scores: int = 10,
    poison: bool = False,
) -> str:
    """A convolution, an activation and a dense layer, for digits of 8 x 8."""
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    dense = random.standard_normal((6 * 36, scores)) * 0.2
    if swap:
        dense = dense[:, ::-1]
    offset = np.full(scores, bias)
    offset[0] = np.nan if poison else bias
    constants = {"kernel": random.standard_normal((6, 1, 3, 3)), "dense": dense, "offset": offset}
    first, last = names
    nodes = [
        helper.make_node("Conv", ["planes", "kernel"], ["conv"]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("Flatten", ["relu"], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense", "offset"], [last]),
    ]
    shape = [batch, 8, 8, 1] if channels_last else [batch, 1, 8, 8]
    turn = [0, 3, 1, 2] if channels_last else [0, 1, 2, 3]
    nodes.insert(0, helper.make_node("Transpose", [first], ["planes"], perm=turn))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(first, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [batch, scores])],
        [
            numpy_helper.from_array(np.ascontiguousarray(a, np.float32), name)
            for name, a in constants.items()
        ],
    )
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    return str(path)


@pytest.fixture
def source(tmp_path: Path) -> str:
    return write_network(tmp_path / "source.onnx")


def verify(*argv: str, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    out = tmp_path / "figures.json"
    status = main([*argv, *DIGITS, "--output", str(out)])
    return status, json.loads(out.read_text("utf-8"))


@pytest.mark.slow
def test_a_model_agrees_with_itself(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, figures = verify(source, source, "--at-least", "same", tmp_path=tmp_path)
    assert status == 0
    assert figures["verdict"] == "same"
    assert (figures["samples"], figures["same_class"]) == (20, 20)
    assert figures["tensors"][0]["max_absolute"] == 0
    assert "same class: 20 of 20" in capsys.readouterr().out


@pytest.mark.slow
def test_swapped_outputs_are_different_and_the_operation_is_named(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swapped = write_network(tmp_path / "swapped.onnx", swap=True)
    status, figures = verify(source, swapped, tmp_path=tmp_path)
    assert status == 1
    assert figures["verdict"] == "different"
    assert [suspect["level"]["tensor"] for suspect in figures["divergence"]["suspects"]] == [
        "scores"
    ]
    assert figures["divergence"]["compared"] == 5
    assert (
        "1. 'Gemm_4' (Gemm): channels 0 and 1 and 2 and 3 and others hold what belongs"
        in capsys.readouterr().out
    )


@pytest.mark.slow
def test_a_small_difference_is_close_and_not_the_same(source: str, tmp_path: Path) -> None:
    other, eight_bits = write_network(tmp_path / "other.onnx", bias=0.05), ("--claim", "int8")
    assert verify(source, other, *eight_bits, tmp_path=tmp_path)[0] == 0
    status, figures = verify(source, other, *eight_bits, "--at-least", "same", tmp_path=tmp_path)
    assert (status, figures["verdict"]) == (1, "close")


@pytest.mark.slow  # what a verdict follows from is tried quickly in tests/workflows/verification
def test_a_small_difference_is_too_much_for_a_closer_tolerance_and_for_floats(
    source: str, tmp_path: Path
) -> None:
    other, eight_bits = write_network(tmp_path / "other.onnx", bias=0.05), ("--claim", "int8")
    assert (
        verify(source, other, *eight_bits, "--close-tolerance", "0.0005", tmp_path=tmp_path)[0] == 1
    )
    status, figures = verify(source, other, tmp_path=tmp_path)  # floats do not shift by a twentieth
    assert (status, figures["verdict"], figures["claims"]) == (1, "different", ["float"])


@pytest.mark.slow
def test_an_output_that_is_no_number_is_different(source: str, tmp_path: Path) -> None:
    status, figures = verify(
        source, write_network(tmp_path / "nan.onnx", poison=True), tmp_path=tmp_path
    )
    assert (status, figures["verdict"]) == (1, "different")
    assert figures["tensors"][0]["max_absolute"] == "infinite"


@pytest.mark.slow
def test_a_fixed_batch_and_other_names_make_no_difference(source: str, tmp_path: Path) -> None:
    other = write_network(tmp_path / "other.onnx", batch=7, names=("x", "y"))
    status, figures = verify(source, other, "--at-least", "same", tmp_path=tmp_path)
    assert status == 0
    assert figures["samples"] == 20


@pytest.mark.slow
def test_axes_in_another_order_are_asked_for_and_then_taken(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_network(tmp_path / "last.onnx", channels_last=True)
    assert main([source, other, *DIGITS]) == 2
    assert "give --artifact-axes 0 2 3 1" in capsys.readouterr().err
    assert (
        verify(
            source,
            other,
            "--artifact-axes",
            "0",
            "2",
            "3",
            "1",
            "--at-least",
            "same",
            tmp_path=tmp_path,
        )[0]
        == 0
    )


@pytest.mark.slow  # two frameworks more
def test_any_two_runtimes_are_compared(source: str, tmp_path: Path) -> None:
    status, figures = verify(
        source,
        source,
        "--source-runtime",
        "ONNXRuntime",
        "--runtime",
        "ONNXRuntime",
        tmp_path=tmp_path,
    )
    assert (status, figures["run_by"]) == (0, "ONNXRuntime")


@pytest.mark.slow
def test_a_class_takes_its_model_from_model_path(source: str, tmp_path: Path) -> None:
    assert verify("ONNXModel", source, "--model-path", source, tmp_path=tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("{source}", "nowhere.onnx"), "nowhere.onnx: no such model file"),
        (("nowhere.onnx", "{source}"), "nowhere.onnx: no such model file"),
        (("ONNXModel", "{source}"), "--model-path is missing"),
        (("{source}", "{source}", "--model-path", "{source}"), "is a file already"),
        (
            ("NoSuchModel", "{source}", "--model-path", "{source}"),
            "no ModelWrapper is called 'NoSuchModel'",
        ),
        (("{source}", "{odd}"), "nothing tells what it is"),
        (("{source}", "{source}", "--match", "image"), "--match image: give SOURCE=OTHER"),
        (
            ("{source}", "{source}", "--match", "image=picture"),
            "no input 'picture' to go with 'image'",
        ),
        (
            ("{source}", "{source}", "--match", "picture=image"),
            "the source has no tensor 'picture'",
        ),
        (("{source}", "{source}", "--artifact-axes", "0", "0"), "no order of axes"),
        (("{source}", "{source}", "--time-limit", "-1"), "--time-limit"),
        (("{source}", "{source}", "--runtime", "LiteRTRuntime"), "source.onnx"),
        (("{source}", "{broken}"), "broken.onnx"),
        (("{source}", "{fewer}"), "output 'scores' has shape (1, 10) in the source, (1, 9)"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    argv: tuple[str, ...],
    told: str,
    source: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {
        "source": source,
        "odd": str(tmp_path / "model.odd"),
        "broken": str(tmp_path / "broken.onnx"),
    }
    Path(places["odd"]).write_bytes(b"?")
    Path(places["broken"]).write_bytes(Path(source).read_bytes()[:-40])
    places["fewer"] = write_network(tmp_path / "fewer.onnx", scores=9)
    assert main([word.format(**places) for word in argv] + list(DIGITS)) == 2
    error = capsys.readouterr().err
    assert error.startswith("nnpipe verify: ")
    assert told in error
    assert error.count("\n") == 1
