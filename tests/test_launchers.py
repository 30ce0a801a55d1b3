"""The examples for SkyPilot and Ray are what these launchers take, and what they launch works."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SKY, RAY = ROOT / "examples" / "skypilot.yaml", ROOT / "examples" / "ray_trainings.py"


@pytest.fixture
def task() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SKY.read_text("utf-8"))
    return found


def test_the_task_has_what_skypilot_knows(task: dict[str, Any]) -> None:
    # https://docs.skypilot.co/en/latest/reference/yaml-spec.html
    assert set(task) == {"name", "workdir", "resources", "envs", "setup", "run"}
    assert set(task["resources"]) == {"cpus", "memory", "use_spot"}
    assert all(isinstance(value, str) for value in task["envs"].values())


def test_skypilot_itself_takes_the_task() -> None:
    sky = pytest.importorskip("sky", reason="SkyPilot is not installed")
    found = sky.Task.from_yaml(str(SKY))
    assert found.envs["NNPIPE_STORAGE"].startswith("s3://")
    assert all(resources.use_spot for resources in found.resources)


@pytest.mark.parametrize("part", ["setup", "run"])
def test_a_shell_can_read_the_task(task: dict[str, Any], part: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    done = subprocess.run(
        [bash, "-n"], input=task[part], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_task_that_lost_its_machine_goes_on_at_another(
    task: dict[str, Any], tmp_path: Path
) -> None:
    """What SkyPilot would run there is run here, with a folder as the storage, and killed while
    it trains.
    """
    for package in ("torch", "onnx", "onnxruntime", "onnxscript", "jinja2"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nnpipe").write_text(f'#!/bin/sh\nexec {sys.executable} -m nnpipe "$@"\n')
    (tools / "nnpipe").chmod(0o755)
    environment = (
        os.environ
        | task["envs"]
        | {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT / "src"),
            "NNPIPE_STORAGE": str(tmp_path / "store"),
            "PUBLISH_EVERY": "0.3",
            "OMP_NUM_THREADS": "1",
            "EPOCHS": "30",
        }
    )
    published = tmp_path / "store" / "training-progress" / "digits" / "checkpoints" / "last.state"

    def begin(machine: str) -> subprocess.Popen[str]:
        (tmp_path / machine).mkdir()
        return subprocess.Popen(
            ["bash", "-c", task["run"]],
            cwd=tmp_path / machine,
            env=environment,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    with begin("first") as first:
        while not published.exists() and first.poll() is None:
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)
        assert first.stdout is not None
        told = first.stdout.read()
    assert published.exists(), told
    assert not (tmp_path / "first" / "digits.pt").exists(), (
        "it was through before it could be killed"
    )
    with begin("second") as second:
        told, _ = second.communicate(timeout=280)
    assert second.returncode == 0, told
    epochs = (
        (tmp_path / "second" / "runs" / "digits" / "tables" / "epochs.txt")
        .read_text("utf-8")
        .splitlines()
    )
    assert [line.split()[1] for line in epochs] == [f"{n}/30" for n in range(1, 31)]
    assert "epoch 1/30" not in told, "it began anew"
    results = tmp_path / "store" / "training-results" / "digits"
    assert {path.name for path in results.iterdir()} >= {
        "digits.pt",
        "digits.onnx",
        "int8.json",
        "report.html",
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trainings_are_spread_by_ray(tmp_path: Path) -> None:
    for package in ("ray", "torch"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "HOME": str(tmp_path),
    }
    words = ["--storage", str(tmp_path / "store"), "--rates", "0.002", "0.008", "--epochs", "1"]
    done = subprocess.run(
        [sys.executable, str(RAY), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert "best: rate " in done.stdout
    results = tmp_path / "store" / "training-results" / "ray"
    assert sorted(path.relative_to(results).as_posix() for path in results.rglob("*.pt")) == [
        "rate-0.002/model.pt",
        "rate-0.008/model.pt",
    ]
