"""Nothing that nnpipe runs reports to anybody: no look-up of a foreign host, no file of a
telemetry client at home.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from installed import needs

from nnpipe.core.telemetry import SWITCHES
from nnpipe.testing.model_files import write_onnx_network
from nnpipe.workflows.recipes import AS_IS, recipes

_SOURCE = Path(__file__).resolve().parents[1] / "src"
_OWN = re.compile(
    r"AF_INET, sin_port=\w+\(\d+\), "
    r'sin_addr=inet_addr\("(127\.|0\.0\.0\.0)|AF_INET6.*"(::1|::ffff:127\.)'
)
# packages report nothing under them
_CI = ("CI", "TF_BUILD", "JENKINS_URL", "GITHUB_ACTIONS", "PYTEST_CURRENT_TEST")

_SESSION = """
import sys
from nnpipe.core.artifact import Artifact
from nnpipe.runtimes.onnxruntime import ONNXRuntime
with ONNXRuntime().load(Artifact.read(sys.argv[1])):
    pass
"""

_COMPARISON = """
import sys
import numpy as np
import nnpipe
rng = np.random.default_rng(0)
inputs = {"image": rng.standard_normal((40, 1, 8, 8)), "extra": rng.standard_normal((40, 3))}
data = {name: array.astype("float32") for name, array in inputs.items()}, rng.integers(0, 5, 40)
options = dict(max_seconds=1, calibration_samples=8, preparation={"result_output": "scores"})
if __name__ == "__main__":
    found = nnpipe.compare(sys.argv[1], data=data, ways=[sys.argv[2]], **options)
    print(sorted(found.failures), len(found.titles))
"""

_TRAINING = """
from pathlib import Path
from nnpipe.testing import trainings
from nnpipe.training.callbacks.tracking import MlflowLog
if __name__ == "__main__":
    here = Path("training").absolute()
    trainings.keras_training(here, [MlflowLog("mlflow")])
"""


def foreign_calls(script: str, arguments: Sequence[str], folder: Path) -> list[str]:
    """Run a script under strace; return the calls by which it, or what it started, spoke to
    another host.
    """
    log = folder / "network.log"
    (folder / "script.py").write_text(script)
    watched = [
        "strace",
        "-f",
        "-qq",
        "-s",
        "200",
        "--seccomp-bpf",
        "-e",
        "trace=connect,sendto,sendmsg,sendmmsg",
    ]
    done = subprocess.run(
        [*watched, "-o", str(log), sys.executable, "script.py", *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (folder / "said").write_text(done.stdout)
    calls = [line for line in log.read_text().splitlines() if "AF_INET" in line]
    return [line for line in calls if not _OWN.search(line)]


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a user who has set nothing, with a home of its own."""
    (folder / "home").mkdir(exist_ok=True)
    left_out = {*SWITCHES, *_CI, "XDG_CACHE_HOME", "XDG_CONFIG_HOME"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "HOME": str(folder / "home"), "PYTHONPATH": str(_SOURCE)}


def traces_of_telemetry(home: Path) -> list[str]:
    """Return the files at home by which packages recognise a machine again."""
    names = (
        "Microsoft",
        "DeveloperTools",
        "deviceid",
        "intel",
        "openvino_ga_cid",
        "mlflow_telemetry",
    )
    return [str(path) for path in home.rglob("*") if path.name in names]


@pytest.fixture
def strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: apt install strace")


def test_a_session_of_onnx_runtime_leaves_no_identity_of_the_machine(tmp_path: Path) -> None:
    needs("onnxruntime", "onnx")
    model = write_onnx_network(tmp_path / "network.onnx")
    command = [sys.executable, "-c", _SESSION, str(model.path)]
    subprocess.run(command, env=environment(tmp_path), check=True, timeout=300)
    assert traces_of_telemetry(tmp_path / "home") == []


def test_the_switches_are_set_before_any_package_is_imported() -> None:
    """Whatever of nnpipe is imported, its first line of all sets them."""
    first = ast.parse((_SOURCE / "nnpipe" / "__init__.py").read_text()).body
    imports = [node for node in first if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = [getattr(node, "module", None) or node.names[0].name for node in imports]
    assert modules == ["os", "sys", "nnpipe.core.telemetry"]
    asked = (
        "import os, sys; import nnpipe.core.messages; print([os.environ.get(name) for name in "
        "sys.argv[1:]])"
    )
    kept = {name: value for name, value in os.environ.items() if name not in SWITCHES}
    command = [sys.executable, "-c", asked, *SWITCHES]
    told = subprocess.run(
        command,
        env={**kept, "PYTHONPATH": str(_SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ast.literal_eval(told.stdout) == list(SWITCHES.values())


def test_an_import_of_openvino_leaves_no_identity_of_the_machine(tmp_path: Path) -> None:
    needs("openvino")
    command = [sys.executable, "-c", "import nnpipe, openvino"]
    subprocess.run(command, env=environment(tmp_path), check=True, timeout=300)
    assert traces_of_telemetry(tmp_path / "home") == []


def test_a_switch_that_the_user_has_set_is_left_alone() -> None:
    asked = "import os, nnpipe; print(os.environ['RAY_USAGE_STATS_ENABLED'])"
    given = {**os.environ, "PYTHONPATH": str(_SOURCE), "RAY_USAGE_STATS_ENABLED": "1"}
    told = subprocess.run(
        [sys.executable, "-c", asked], env=given, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "1"


def test_the_documentation_lists_every_switch() -> None:
    text = (_SOURCE.parent / "docs" / "defaults.md").read_text()
    assert [name for name in SWITCHES if f"`{name}" not in text] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("way", [way for way in recipes() if way not in (AS_IS, "keras")])
def test_no_way_looks_up_a_foreign_host(way: str, tmp_path: Path) -> None:
    """The uncompiled model takes part in each comparison; Keras runs no ONNX files, and is
    watched as it trains.
    """
    needs("onnx", "onnxruntime")
    # TFLite quantises weights of 1,024 and more
    model = write_onnx_network(tmp_path / "network.onnx", channels=24)
    assert foreign_calls(_COMPARISON, [str(model.path), way], tmp_path) == []
    assert (tmp_path / "said").read_text().split() == ["[]", "2"]
    assert traces_of_telemetry(tmp_path / "home") == []


@pytest.mark.slow
@pytest.mark.usefixtures("strace")
def test_a_training_that_is_followed_in_mlflow_looks_up_no_foreign_host(tmp_path: Path) -> None:
    needs("tensorflow", "mlflow")
    assert foreign_calls(_TRAINING, [], tmp_path) == []


@pytest.mark.slow
@pytest.mark.usefixtures("strace")
def test_the_watch_sees_a_foreign_host(tmp_path: Path) -> None:
    """Without this, the tests above could pass since the watch is blind."""
    script = (
        "import socket\ns = socket.socket(socket.AF_INET, "
        "socket.SOCK_DGRAM)\ns.connect(('192.0.2.1', 9))\n"
    )
    assert len(foreign_calls(script, [], tmp_path)) == 1
