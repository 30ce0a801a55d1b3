"""TVM's libraries compute what their ONNX or PyTorch source computes, tuned or not."""

from __future__ import annotations

import functools
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from installed import needs

from nnpipe.compilers import tvm as _tvm_tuning
from nnpipe.compilers.tvm import TuningResult, TVMCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, CompileError, ConfigError, NotSupported
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.formats.sealed import read_sealed
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.runtimes.tvm import TVMRuntime
from nnpipe.testing.compiler import ModelCompilerContract, run_compiled
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network, write_torch_network
from nnpipe.testing.session import assert_one_line

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
needs("tvm")

CompileOnce = Callable[[TVMCompiler], Artifact]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_onnx_network(tmp_path_factory.mktemp("source") / "network.onnx")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return write_torch_network(tmp_path_factory.mktemp("source") / "network.pt2")


@pytest.mark.slow
class TestTVMCompiler(ModelCompilerContract):
    @pytest.fixture
    def compiler(self) -> TVMCompiler:
        return TVMCompiler(target="generic")

    @pytest.fixture
    def artifact(self, network: Artifact) -> Artifact:
        return network

    @pytest.fixture
    def runtime(self) -> TVMRuntime:
        return TVMRuntime()

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        return [generate_random_batch(NETWORK_IO, size, seed=size) for size in (1, 5)]

    @pytest.fixture
    def expected(self, artifact: Artifact, batches: Sequence[Batch]) -> Sequence[Batch]:
        source = ONNXRuntime() if artifact.format == "onnx" else PyTorchRuntime()
        return run_compiled(source, artifact, artifact.io, batches)


class TestPyTorchPrograms(TestTVMCompiler):
    @pytest.fixture
    def compiler(self) -> TVMCompiler:
        return TVMCompiler(fixed_batch=2)

    @pytest.fixture
    def artifact(self, program: Artifact) -> Artifact:
        return program

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        return [generate_random_batch(NETWORK_IO, 2, seed) for seed in range(3)]


@pytest.mark.timeout(900)
class TestTuned(TestTVMCompiler):
    """A search takes minutes, so what compiles anew is left out."""

    arguments = {"tune_trials": 8, "fixed_batch": 1, "tune_seed": 1}

    @pytest.fixture
    def compiler(self) -> TVMCompiler:
        return TVMCompiler(**self.arguments)

    @pytest.fixture
    def compiled(self, compiler: TVMCompiler, tune_once: CompileOnce) -> Artifact:
        return tune_once(compiler)

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        return [generate_random_batch(NETWORK_IO, 1, seed) for seed in range(3)]

    def test_compiling_anew_to_an_awkward_path_gives_an_equal_model(self) -> None:  # type: ignore[override]
        pytest.skip(
            "measuring decides which schedules are best, so that two searches may end differently"
        )


@pytest.fixture(scope="module")
def tune_once(network: Artifact, tmp_path_factory: pytest.TempPathFactory) -> CompileOnce:
    @functools.cache
    def compiled(compiler: TVMCompiler) -> Artifact:
        return compiler.compile(network, tmp_path_factory.mktemp("tuned") / "network.so")

    return compiled


class WatchedHandler(logging.Handler):
    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tuning_leaves_log_handlers_alone(network: Artifact, tmp_path: Path) -> None:
    handler = WatchedHandler()
    TVMCompiler(tune_trials=1, fixed_batch=1).compile(network, tmp_path / "network.so")
    assert not handler.closed
    tvms = [name for name in logging.root.manager.loggerDict if name.startswith("tvm")]
    assert not [name for name in tvms if logging.getLogger(name).handlers]


@pytest.mark.slow
def test_a_pytorch_program_keeps_its_free_batch(program: Artifact, tmp_path: Path) -> None:
    made = TVMCompiler().compile(program, tmp_path / "made.so")
    batches = [generate_random_batch(NETWORK_IO, size, size) for size in (3, 1)]
    found, expected = (
        run_compiled(runtime, artifact, NETWORK_IO, batches)
        for runtime, artifact in ((TVMRuntime(), made), (PyTorchRuntime(), program))
    )
    for one, other in zip(found, expected, strict=True):
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_another_processor_is_compiled_for_and_told(network: Artifact, tmp_path: Path) -> None:
    made = TVMCompiler(target="aarch64-linux-gnu", mcpu="cortex-a72").compile(
        network, tmp_path / "arm.so"
    )
    assert made.target == "aarch64-linux-gnu"
    assert read_sealed(made.path, "tvm").content[18] == 183  # EM_AARCH64
    if read_sealed(made.path, "tvm").notes["machine"] != os_machine():
        with pytest.raises(ArtifactError, match="compiled for aarch64"):
            TVMRuntime().load(made)


def os_machine() -> str:
    import platform

    return platform.machine()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"tune_trials": 1, "target": "generic"},
            "--tune-trials measures on this machine and needs --target native",
        ),
        (
            {"tune_seconds": 1, "target": "generic"},
            "--tune-seconds measures on this machine and needs --target native",
        ),
        ({"mcpu": "cortex-a72"}, "needs a triple as --target"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(
    arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        TVMCompiler(**arguments)
    assert_one_line(caught.value)


@pytest.mark.parametrize(
    ("arguments", "marks", "variant"),
    [
        ({}, ("TVM without tuning",), "untuned"),
        ({"target": "generic"}, ("code for any processor", "TVM without tuning"), "untuned"),
        ({"tune_trials": 9}, (), "tuned9"),
        ({"tune_seconds": 60}, (), "tuned-60s"),
    ],
)
def test_what_is_not_tuned_is_marked(
    arguments: dict[str, Any], marks: tuple[str, ...], variant: str
) -> None:
    assert TVMCompiler(**arguments).performance_caveats() == marks
    assert TVMCompiler(**arguments).variant() == variant


@pytest.mark.slow
@pytest.mark.parametrize("faster", ["tuned", "untuned"])
def test_the_faster_library_is_kept_and_told(
    faster: str, network: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tvm

    module = "nnpipe.compilers.tvm"
    monkeypatch.setattr(
        f"{module}.tuned",
        lambda artifact, batch, module, target, *_: TuningResult(
            tvm.compile(module, target=target), 4.2, 7
        ),
    )
    monkeypatch.setattr(f"{module}.fastest", lambda executables, io: faster)
    made = TVMCompiler(tune_seconds=5, fixed_batch=1).compile(network, tmp_path / "made.so")
    assert read_sealed(made.path, "tvm").notes["schedules"] == faster
    with TVMRuntime().load(made) as session:
        assert session.stats()["schedules"] == faster
        assert session.stats()["tuning"]["trials"] == 7
    assert Artifact.read(made.path).outcome["tuning"]["seconds"] == 4.2
    marks = ("TVM untuned: 7 trials in 4 s found nothing faster",) if faster == "untuned" else ()
    assert Artifact.read(made.path).performance_caveats() == marks


ENDLESS = """
import pathlib, subprocess, sys, time
builder = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1], "../endless.pid").resolve().write_text(str(builder.pid))
{then}
time.sleep(600)
"""


@pytest.fixture
def endless_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put in the place of the search one that has started a builder and never ends; return where
    its number stands.
    """

    def planted(then: str = "") -> Path:
        (tmp_path / "endless_search.py").write_text(ENDLESS.format(then=then))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr("nnpipe.compilers.tvm._SEARCH", "endless_search")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        return tmp_path / "endless.pid"

    return planted


@pytest.mark.slow
def test_the_budget_holds_whatever_the_search_does(
    network: Artifact, tmp_path: Path, endless_search: Callable[[str], Path]
) -> None:
    builder = endless_search()
    began = time.monotonic()
    TVMCompiler(fixed_batch=1).compile(network, tmp_path / "plain.so")
    plain = time.monotonic() - began
    seconds = 3 * plain + 5  # enough for it to start
    began = time.monotonic()
    made = TVMCompiler(tune_seconds=seconds, fixed_batch=1).compile(network, tmp_path / "made.so")
    assert time.monotonic() - began < seconds + 3 * plain + 30  # it would go on for ten minutes
    assert read_sealed(made.path, "tvm").notes["schedules"] == "untuned"
    assert made.performance_caveats() == (f"TVM untuned: {seconds:g} s were too few for one trial",)
    assert ended(int(builder.read_text()))


@pytest.mark.slow
def test_a_search_that_dies_costs_no_model(
    network: Artifact, tmp_path: Path, endless_search: Callable[[str], Path]
) -> None:
    builder = endless_search("sys.exit('no luck')")
    made = TVMCompiler(tune_trials=4, fixed_batch=1).compile(network, tmp_path / "made.so")
    assert made.performance_caveats() == ("TVM untuned: the search ended with status 1: no luck",)
    assert ended(int(builder.read_text()))
    with TVMRuntime().load(made) as session:
        session.infer(generate_random_batch(NETWORK_IO, 1))


def ended(pid: int) -> bool:
    """Return whether a process is gone; one that was killed and that nobody waits for is."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_half_a_record_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "records").write_bytes(b"[1]\n[2]\n[3, ")
    _tvm_tuning._remove_incomplete_line(tmp_path / "records")
    assert (tmp_path / "records").read_bytes() == b"[1]\n[2]\n"


@pytest.mark.slow
def test_the_search_ends_when_its_time_is_up(network: Artifact, tmp_path: Path) -> None:
    # without, it never would
    made = TVMCompiler(tune_seconds=1, fixed_batch=1).compile(network, tmp_path / "made.so")
    assert read_sealed(made.path, "tvm").notes["schedules"] in ("tuned", "untuned")


@pytest.mark.slow
def test_tuning_asks_for_fixed_shapes(network: Artifact, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="--fixed-batch") as caught:
        TVMCompiler(tune_trials=4).compile(network, tmp_path / "made.so")
    assert_one_line(caught.value)


def test_an_unknown_operation_is_named(tmp_path: Path) -> None:
    helper = onnx.helper
    sides = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])] for name in ("x", "y")
    ]
    graph = helper.make_graph(
        [helper.make_node("Mystery", ["x"], ["y"], domain="acme")], "g", *sides
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    onnx.save_model(
        helper.make_model(graph, opset_imports=opsets, ir_version=9), str(tmp_path / "m.onnx")
    )
    from nnpipe.formats.onnx import read_onnx

    source = Artifact.create(tmp_path / "m.onnx", "onnx", read_onnx(tmp_path / "m.onnx").io())
    with pytest.raises(CompileError, match=r"m\.onnx: .*Mystery") as caught:
        TVMCompiler().compile(source, tmp_path / "made.so")
    assert_one_line(caught.value)


def node_model(path: Path, node: Any, inputs: list[Any], outputs: list[Any]) -> Artifact:
    from nnpipe.formats.onnx import read_onnx

    graph = onnx.helper.make_graph([node], "g", inputs, outputs)
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    onnx.save_model(model, str(path))
    return Artifact.create(path, "onnx", read_onnx(path).io())


def value(name: str, shape: list[int], dtype: str = "FLOAT") -> Any:
    return onnx.helper.make_tensor_value_info(name, getattr(onnx.TensorProto, dtype), shape)


@pytest.mark.parametrize(
    ("node", "outputs", "told"),
    [
        (("IsInf", ["x"], ["y"], {"detect_negative": 0}), [("y", [2, 3], "BOOL")], "IsInf"),
        (
            ("LayerNormalization", ["x", "w"], ["y", "mean"], {}),
            [("y", [2, 3], "FLOAT"), ("mean", [2, 1], "FLOAT")],
            r"output 'mean' as float32 \(\), the file says float32 \(2, 1\)",
        ),
    ],
)
def test_what_tvm_would_compute_wrongly_is_refused(
    tmp_path: Path, node: Any, outputs: Any, told: str
) -> None:
    kind, takes, gives, attributes = node
    source = node_model(
        tmp_path / "m.onnx",
        onnx.helper.make_node(kind, takes, gives, **attributes),
        [value(name, [2, 3] if name == "x" else [3]) for name in takes],
        [value(*output) for output in outputs],
    )
    with pytest.raises((CompileError, NotSupported), match=told) as caught:
        TVMCompiler().compile(source, tmp_path / "made.so")
    assert_one_line(caught.value)


def test_tensors_without_axes_pass(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Add", ["x", "z"], ["y"])
    source = node_model(
        tmp_path / "m.onnx", node, [value("x", [2]), value("z", [])], [value("y", [2])]
    )
    made = TVMCompiler(target="generic").compile(source, tmp_path / "made.so")
    with TVMRuntime().load(made) as session:
        found = session.infer({"x": np.ones(2, "float32"), "z": np.array(0.5, "float32")})
    np.testing.assert_array_equal(found["y"], np.full(2, 1.5, "float32"))


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("llvm -mcpu=core-avx2", "say --mcpu core-avx2 beside the triple"),
        (
            "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
            "say --target aarch64-linux-gnu, --mcpu cortex-a72",
        ),
        ("llvm", "say native, generic or a triple"),
    ],
)
def test_a_target_in_the_words_of_tvms_tools_is_answered_with_ours(target: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TVMCompiler(target=target)
