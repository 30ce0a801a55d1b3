"""Programs that components run: a missing one is named at once, and tests that need it are
skipped for that reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nnpipe.compilers.tflite import TFLiteCompiler
from nnpipe.compilers.torch_inductor import TorchInductorCompiler
from nnpipe.compilers.tvm import TVMCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.discoverable import CXX
from nnpipe.core.errors import MissingTool
from nnpipe.core.tensors import IOSpec
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.scenarios import info
from nnpipe.scenarios import list as listing
from nnpipe.testing.session import assert_one_line
from nnpipe.training.options import TrainerOptions

NEEDY: dict[str, Component] = {
    "TVM": TVMCompiler(),
    "Inductor": TorchInductorCompiler(),
    "torch.compile": PyTorchRuntime(compile=True),
    "a compiled training": TrainerOptions(compile=True),
}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing on the search path."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("component", NEEDY.values(), ids=NEEDY)
def test_a_missing_compiler_is_named_before_any_work(
    component: Component, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(component), "requires", ())
    with pytest.raises(
        MissingTool, match=r"needs a C\+\+ compiler on the PATH .*apt install g\+\+"
    ) as caught:
        component.check_ready()
    assert_one_line(caught.value)


@pytest.mark.usefixtures("bare")
def test_what_needs_none_goes_on() -> None:
    PyTorchRuntime().check_ready()
    TVMCompiler(target="native").tools()
    assert TFLiteCompiler(target="int8").tools() == ()


@pytest.mark.usefixtures("bare")
def test_compilers_look_before_they_read_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = Artifact(tmp_path / "absent.onnx", "onnx", IOSpec((), ()), "0" * 64)
    monkeypatch.setattr(TVMCompiler, "requires", ())
    with pytest.raises(MissingTool):
        TVMCompiler().compile(absent, tmp_path / "made.so")


@pytest.mark.usefixtures("bare")
def test_another_processors_compiler_is_asked_for_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TVMCompiler, "requires", ())
    with pytest.raises(
        MissingTool, match=r"compiler for x86_64-linux-gnu .*: apt install g\+\+-x86-64-linux-gnu"
    ):
        TVMCompiler(target="x86_64-linux-gnu").check_ready()


@pytest.mark.usefixtures("bare")
def test_the_list_and_the_page_of_a_class_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert listing.main(["compilers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = {
        name.rpartition(".")[2]: state
        for name, state in zip(lines[1::2], lines[2::2], strict=False)
        if "." in name
    }
    assert "a C++ compiler (apt install g++" in told["TorchInductorCompiler"]
    assert "a C++ compiler" not in told["ONNXRuntimeOptimizer"]
    assert info.main(["TVMCompiler"]) == 0
    assert "a C++ compiler on the PATH (one of g++, clang++, c++)" in capsys.readouterr().out


def test_a_compiler_that_is_there_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clang++").write_text("#!/bin/sh\n")
    (tmp_path / "clang++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert CXX.find() == str(tmp_path / "clang++")


TESTS = """
import pytest
from nnpipe.core.discoverable import CXX

@pytest.fixture(scope="module")
def made():
    return CXX.check("It")

def test_by_fixture(made): pass
def test_again(made): pass
def test_by_call(): CXX.check("It")
def test_else(): pass
def test_hidden(monkeypatch):
    monkeypatch.setenv("PATH", "")
    CXX.check("It")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("there", "wanted"), [(False, {"passed": 1, "skipped": 4}), (True, {"passed": 4, "failed": 1})]
)
def test_tests_are_skipped_only_where_the_program_is_missing(
    there: bool, wanted: dict[str, int], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = pytester.mkdir("bin")
    if there:
        (tools / "g++").write_text("#!/bin/sh\n")
        (tools / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_subprocess(
        "-p", "nnpipe.testing.pytest_plugin", "-rs", "-p", "no:cacheprovider"
    )
    done.assert_outcomes(**wanted)
    if not there:
        done.stdout.fnmatch_lines(["*SKIPPED*It needs a C++ compiler on the PATH*"])
