"""IREE's modules compute what their ONNX source computes; a compiler that crashes or hangs costs
an error.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from network_contracts import ONNXNetworkContract

from nnpipe.compilers.iree import IREECompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, CompileError, ConfigError, NotSupported
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.formats.onnx import read_onnx
from nnpipe.runtimes.iree import IREERuntime
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network
from nnpipe.testing.session import assert_one_line

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
needs("iree.compiler", "iree.runtime")


@pytest.fixture
def network(tmp_path: Path) -> Artifact:
    return write_onnx_network(tmp_path / "network.onnx")


@pytest.mark.slow
class TestIREECompiler(ONNXNetworkContract):
    @pytest.fixture
    def compiler(self) -> IREECompiler:
        return IREECompiler()

    @pytest.fixture
    def runtime(self) -> IREERuntime:
        return IREERuntime()


class TestAnyProcessorAndOneBatch(TestIREECompiler):
    @pytest.fixture
    def compiler(self) -> IREECompiler:
        return IREECompiler(target="generic", data_tiling=False, fixed_batch=3)

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        return [generate_random_batch(NETWORK_IO, 3, seed) for seed in range(2)]


def bare(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], opset: int = 18
) -> Artifact:
    graph = onnx.helper.make_graph(nodes, "the graph-1", inputs, outputs)
    opsets = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("acme", 1)]
    onnx.save_model(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return Artifact.create(path, "onnx", read_onnx(path).io())


def value(name: str, dtype: str, shape: list[int | str]) -> Any:
    return onnx.helper.make_tensor_value_info(name, getattr(onnx.TensorProto, dtype), shape)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("BOOL", np.array([[True, False]])),
        ("INT64", np.array([[1 << 40, -3]])),
        ("INT8", np.array([[-128, 127]], "int8")),
        ("UINT8", np.array([[255, 0]], "uint8")),
        ("FLOAT16", np.array([[0.5, 2]], "float16")),
        ("DOUBLE", np.array([[1 / 3, 2]])),
        ("FLOAT", np.array(0.5, "float32")),
    ],
)
def test_tensors_of_every_kind_pass(tmp_path: Path, dtype: str, array: np.ndarray) -> None:
    node = onnx.helper.make_node("Where", ["c", "x", "x"], ["y"])
    shape = list(array.shape)
    sides = [value("c", "BOOL", shape), value("x", dtype, shape)], [value("y", dtype, shape)]
    made = IREECompiler().compile(bare(tmp_path / "m.onnx", [node], *sides), tmp_path / "made.vmfb")
    with IREERuntime().load(made) as session:
        found = session.infer({"x": array, "c": np.zeros(array.shape, bool)})
    np.testing.assert_array_equal(found["y"], array, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["UINT8", "UINT64", "DOUBLE"])
def test_elements_keep_their_sign_and_width(tmp_path: Path, dtype: str) -> None:
    node = onnx.helper.make_node("Add", ["x", "z"], ["y"])
    source = bare(
        tmp_path / "m.onnx",
        [node],
        [value("x", dtype, [2]), value("z", dtype, [2])],
        [value("y", dtype, [2])],
    )
    made = IREECompiler().compile(source, tmp_path / "made.vmfb")
    x, z = np.array([200, 1], dtype.lower()), np.array([50, 2], dtype.lower())
    if dtype == "DOUBLE":
        x = x / 3
    with IREERuntime().load(made) as session:
        np.testing.assert_array_equal(session.infer({"x": x, "z": z})["y"], x + z, strict=True)


@pytest.mark.slow
def test_an_old_operator_set_is_brought_up_to_date(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Squeeze", ["x"], ["y"], axes=[1])
    sides = [value("x", "FLOAT", ["n", 1, 3])], [value("y", "FLOAT", ["n", 3])]
    made = IREECompiler().compile(
        bare(tmp_path / "m.onnx", [node], *sides, opset=8), tmp_path / "made.vmfb"
    )
    batch = generate_random_batch(made.io, 4)
    with IREERuntime().load(made) as session:
        np.testing.assert_array_equal(session.infer(batch)["y"], batch["x"][:, 0])


def test_text_is_refused_by_name(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    source = bare(
        tmp_path / "m.onnx", [node], [value("x", "STRING", [2])], [value("y", "STRING", [2])]
    )
    with pytest.raises(CompileError, match=r"m\.onnx: tensor 'x' is string") as caught:
        IREECompiler().compile(source, tmp_path / "made.vmfb")
    assert_one_line(caught.value)


def test_what_iree_would_compute_wrongly_is_refused(tmp_path: Path) -> None:
    node = onnx.helper.make_node("QLinearMatMul", ["a", "s", "n", "b", "s", "n", "s", "n"], ["y"])
    sides = [value(name, "INT8", [2, 2]) for name in "ab"] + [
        value("s", "FLOAT", []),
        value("n", "INT8", []),
    ]
    source = bare(tmp_path / "m.onnx", [node], sides, [value("y", "INT8", [2, 2])])
    with pytest.raises(NotSupported, match="IREE computes QLinearMatMul") as caught:
        IREECompiler().compile(source, tmp_path / "made.vmfb")
    assert_one_line(caught.value)


def test_an_unknown_operation_is_named(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Mystery", ["x"], ["y"], domain="acme")
    source = bare(
        tmp_path / "m.onnx", [node], [value("x", "FLOAT", [2])], [value("y", "FLOAT", [2])]
    )
    with pytest.raises(CompileError, match=r"m\.onnx: .*Mystery") as caught:
        IREECompiler().compile(source, tmp_path / "made.vmfb")
    assert_one_line(caught.value)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            r"iree-compile crashed \(signal 11\)",
        ),
        pytest.param(
            "import time; time.sleep(100)",
            "iree-compile did not end within 20 s; allow more with --compile-timeout",
            marks=pytest.mark.slow,
        ),
        ("raise SystemExit(3)", "iree-compile failed: it did not say why"),
    ],
    ids=["crash", "hang", "silence"],
)
def test_a_compiler_that_crashes_or_hangs_costs_an_error(
    network: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!{sys.executable}\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr("nnpipe.compilers.iree._find_compiler", lambda: str(tool))
    with pytest.raises(CompileError, match=told) as caught:
        IREECompiler(compile_timeout=20).compile(network, tmp_path / "made" / "made.vmfb")
    assert str(network.path) in str(caught.value)
    assert_one_line(caught.value)
    assert not list((tmp_path / "made").iterdir())


@pytest.mark.slow
def test_another_processor_is_compiled_for_and_told(network: Artifact, tmp_path: Path) -> None:
    other = "aarch64" if platform.machine() != "aarch64" else "x86_64"
    made = IREECompiler(target=f"{other}-linux-gnu").compile(network, tmp_path / "made.vmfb")
    assert made.target == f"{other}-linux-gnu"
    with pytest.raises(ArtifactError, match=f"compiled for {other}"):
        IREERuntime().load(made)


def test_a_model_of_processor_needs_its_triple() -> None:
    with pytest.raises(ConfigError, match="needs a triple as --target") as caught:
        IREECompiler(mcpu="cortex-a72")
    assert_one_line(caught.value)


def convolving(path: Path) -> Artifact:
    """Write a convolution of a picture of 8 x 8."""
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [value("x", "FLOAT", ["n", 3, 8, 8])],
        [value("y", "FLOAT", ["n", 4, 8, 8])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    onnx.save_model(
        onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
        ),
        path,
    )
    return Artifact.create(path, "onnx", read_onnx(path).io())


LAYING_OUT = "iree-preprocessing-convert-conv-to-channels-last"


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let iree-compile be called by a script that notes its arguments and refuses to lay
    convolutions out.
    """
    from nnpipe.compilers import iree

    arguments = tmp_path / "arguments"
    tool = tmp_path / "tool"
    tool.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"print(sys.argv[1:], file=open({str(arguments)!r}, 'a'))\n"
        f"if {LAYING_OUT!r} in str(sys.argv): sys.exit('model.mlir:1:1: error: no such pass')\n"
        f"os.execv({iree._find_compiler()!r}, ['iree-compile', *sys.argv[1:]])\n"
    )
    tool.chmod(0o755)
    monkeypatch.setattr(iree, "_find_compiler", lambda: str(tool))
    return arguments


@pytest.mark.slow
def test_convolutions_with_channels_last_give_the_same(tmp_path: Path) -> None:
    source = convolving(tmp_path / "m.onnx")
    batch = {"x": np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype("float32")}
    found = []
    for last in (True, False):
        made = IREECompiler(channels_last=last, fixed_batch=1).compile(
            source, tmp_path / f"{last}.vmfb"
        )
        with IREERuntime().load(made) as session:
            found.append(session.infer(batch)["y"])
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)


def test_what_iree_cannot_lay_out_is_compiled_as_it_is(
    tmp_path: Path, said: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = IREECompiler(fixed_batch=1).compile(
        convolving(tmp_path / "m.onnx"), tmp_path / "made.vmfb"
    )
    assert made.path.stat().st_size
    first, second = said.read_text().splitlines()
    assert LAYING_OUT in first
    assert LAYING_OUT not in second
    assert (
        "without convolutions with channels last, since IREE cannot do it here: iree-compile failed"
        in caplog.text
    )
    assert "error: no such pass" in caplog.text
    assert "--iree-opt-data-tiling" in second


@pytest.mark.slow
def test_what_iree_cannot_tile_is_compiled_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = [
        onnx.helper.make_node("Where", ["mask", "zero", "low"], ["added"]),
        onnx.helper.make_node("MatMul", ["x", "x"], ["scores"]),
        onnx.helper.make_node("Add", ["scores", "added"], ["y"]),
    ]
    constants = {
        "mask": np.tril(np.ones((1, 16, 16), bool)),
        "zero": np.float32(0),
        "low": np.float32(-1e9),
    }
    held = [
        onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    ]
    sides = ([value(name, "FLOAT", ["n", 16, 16])] for name in ("x", "y"))
    graph = onnx.helper.make_graph(nodes, "g", *sides, held)
    path = tmp_path / "m.onnx"
    onnx.save_model(
        onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
        ),
        path,
    )
    made = IREECompiler(fixed_batch=1).compile(
        Artifact.create(path, "onnx", read_onnx(path).io()), tmp_path / "made.vmfb"
    )
    assert (
        "compiled without data tiling, since IREE cannot do it here: iree-compile failed"
        in caplog.text
    )
    x = np.random.default_rng(0).standard_normal((1, 16, 16)).astype("float32")
    with IREERuntime().load(made) as session:
        np.testing.assert_allclose(
            session.infer({"x": x})["y"],
            x @ x + np.where(constants["mask"], 0, -1e9),
            rtol=1e-5,
            atol=1e-5,
        )


def test_without_convolutions_nothing_is_laid_out(tmp_path: Path, said: Path) -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    source = bare(
        tmp_path / "m.onnx", [node], [value("x", "FLOAT", [2])], [value("y", "FLOAT", [2])]
    )
    IREECompiler(fixed_batch=1).compile(source, tmp_path / "made.vmfb")
    assert LAYING_OUT not in said.read_text()


def test_channels_first_are_a_handicap() -> None:
    assert IREECompiler().performance_caveats() == ()
    assert IREECompiler(channels_last=False).performance_caveats() == (
        "convolutions with channels first",
    )
