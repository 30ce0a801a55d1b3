from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime import Runtime
from nnpipe.runtimes.iree import IREERuntime
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.runtimes.tvm import TVMRuntime
from nnpipe.workflows.boards.install import TargetSettings, format_options
from nnpipe.workflows.boards.packages import (
    Platform,
    build_pip_command,
    download_packages,
    list_requirements,
    pack_folder,
)


def test_wheels_of_older_libraries_fit_too() -> None:
    board = Platform("aarch64", (3, 11), (2, 19))
    assert board.tags() == (
        "manylinux_2_19_aarch64",
        "manylinux_2_18_aarch64",
        "manylinux_2_17_aarch64",
        "manylinux2014_aarch64",
    )
    assert Platform("armv7l", (3, 12), None).tags() == (
        "musllinux_1_2_armv7l",
        "musllinux_1_1_armv7l",
    )
    command = build_pip_command(board, Path("there"))
    assert command[command.index("--python-version") + 1] == "3.11"
    assert command.count("--platform") == 4
    assert str(board) == "aarch64, glibc 2.19, Python 3.11"


@pytest.mark.parametrize(
    ("runtime", "own"),
    [
        (ONNXRuntime, ["onnxruntime"]),
        (LiteRTRuntime, ["ai-edge-litert"]),
        (IREERuntime, ["iree-base-runtime"]),
        (TVMRuntime, ["apache-tvm-ffi", "apache-tvm", "ml-dtypes"]),
    ],
)
def test_a_target_gets_what_its_runtime_needs_and_no_compilers(
    runtime: type[Runtime], own: list[str]
) -> None:
    base = {"numpy", "psutil", "pyyaml", "tqdm", "xxhash"}
    names = {
        line.partition(">")[0].partition("<")[0].partition("=")[0].lower()
        for line in list_requirements(runtime)
    }
    assert names == base | set(own)
    assert not any(";" in line for line in list_requirements(runtime))


def test_what_a_runtime_of_others_needs_is_asked_for() -> None:
    class OtherRuntime(ONNXRuntime):
        install = ""

    with pytest.raises(ConfigError, match="name them"):
        list_requirements(OtherRuntime)


def test_nnpipe_alone_is_sent_where_the_packages_are_there(tmp_path: Path) -> None:
    download_packages(Platform("aarch64", (3, 11), (2, 36)), (), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["nnpipe"]
    assert (tmp_path / "nnpipe" / "protocols" / "network.py").is_file()
    assert not list(tmp_path.rglob("__pycache__"))


def test_gathering_leaves_extensions_of_python_to_be_compiled_in_the_same_process(
    tmp_path: Path,
) -> None:
    """Looking for pip as a module made PyTorch's compiler fail afterwards, which imports
    setuptools.
    """
    pytest.importorskip("setuptools", reason="setuptools is not installed")
    program = (
        "import subprocess, sys\nfrom pathlib import Path\nfrom types import SimpleNamespace\n"
        "from nnpipe.workflows.boards.packages import Platform, download_packages\n"
        "subprocess.run = lambda *_, **__: SimpleNamespace(returncode=0)\n"
        "download_packages(Platform('aarch64', (3, 11), (2, 36)), ('numpy',), Path(sys.argv[1]))\n"
        "import setuptools\nimport distutils.core\nprint(distutils.core.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False
    )
    assert "_distutils" in done.stdout, done.stderr


def test_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.py").write_text("x = 1")
    first = pack_folder(tmp_path)
    (tmp_path / "a" / "x.py").touch()
    assert pack_folder(tmp_path) == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert archive.getnames() == ["a", "a/x.py"]


def test_options_that_differ_from_their_defaults_are_passed_on() -> None:
    runtime = ONNXRuntime(num_threads=3)
    assert format_options(runtime) == ["--num-threads", "3"]
    words = TargetSettings(runtime).arguments()
    assert words[:2] == ["NetworkProtocol", "nnpipe.runtimes.onnxruntime.ONNXRuntime"]
    assert words[2:] == [
        "--port",
        "12345",
        "--token-file",
        "token",
        "--save-model-path",
        "models",
        "--num-threads",
        "3",
    ]
