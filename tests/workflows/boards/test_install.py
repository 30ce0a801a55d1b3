"""Servers are put on a machine that is reached by OpenSSH's own client and server."""

from __future__ import annotations

import json
import os
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.openssh import SshServer, ssh_server

from nnpipe.scenarios.devices import main as devices
from nnpipe.scenarios.target import main as target
from nnpipe.workflows.boards.agent import service

HERE = ("--python", sys.executable)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with (
        ssh_server(tmp_path_factory.mktemp("ssh")) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PATH", str(server.client), prepend=":")
        yield server
        for path in server.home.glob(f".nnpipe/targets/*/{service.PID}"):  # of a test that failed
            service.stop(path.parent, service.PROCESS, forget=True)


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def processes(port: str) -> list[str]:
    shown = subprocess.run(
        ["ps", "-wweo", "args"], capture_output=True, text=True, check=True
    ).stdout
    return [
        line
        for line in shown.splitlines()
        if "inference_server" in line and f"--port {port}" in line
    ]


@pytest.mark.slow
def test_a_server_from_its_installation_to_its_removal(
    machine: SshServer, port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    install = ["install", machine.address, "ONNXRuntime", "--port", port, "--no-packages", *HERE]
    assert target([*install, "--dry-run"]) == 0
    assert "token     127.0.0.1.token, which is made" in capsys.readouterr().out
    assert not (machine.home / ".nnpipe").exists()
    assert not Path("127.0.0.1.token").exists()

    assert target([*install, "--", "--num-threads", "2", "--idle-timeout", "9"]) == 0
    told = capsys.readouterr().out
    assert f"ONNXRuntime is served at 127.0.0.1:{port} of {machine.address}" in told
    folder = machine.home / ".nnpipe/targets/ONNXRuntime"
    assert Path("127.0.0.1.token").read_text().strip() == (folder / "token").read_text()
    for path in (Path("127.0.0.1.token"), folder / "token"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(processes(port)) >= 1
    assert "--num-threads 2" in processes(port)[0]
    assert "--idle-timeout 9" in processes(port)[0]

    # What it tells for the file of devices is what the other commands take.
    Path("devices.yaml").write_text("devices:\n" + told.rpartition("devices.yaml:\n")[2])
    assert devices(["test"]) == 0
    assert "inferences of onnx are right" in capsys.readouterr().out

    (tmp_path / "wrong").write_text("not the token of that board")
    settings = json.loads(told.rpartition("  - ")[2])
    settings["remote"]["token_file"] = "wrong"
    Path("others.yaml").write_text(json.dumps({"devices": [settings]}))
    assert devices(["ping", "--devices", "others.yaml"]) == 1
    assert "token" in capsys.readouterr().out

    assert target(["stop", machine.address, "ONNXRuntime", *HERE]) == 0
    assert not processes(port)
    assert target(["status", machine.address, *HERE]) == 1
    assert "stopped" in capsys.readouterr().out
    assert devices(["ping"]) == 1
    assert "no server answers" in capsys.readouterr().out
    assert target(["start", machine.address, "ONNXRuntime", *HERE]) == 0
    assert devices(["ping"]) == 0

    assert target(install) == 0  # a second time, with the token that is there
    assert "which is replaced" in capsys.readouterr().out
    assert devices(["ping"]) == 0
    assert target(["uninstall", machine.address, "ONNXRuntime", *HERE]) == 0
    assert not processes(port)
    assert not (machine.home / ".nnpipe").exists()


@pytest.mark.slow
def test_what_does_not_start_is_told_and_not_left_running(
    machine: SshServer, port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    with socket.create_server(("127.0.0.1", int(port))):
        assert (
            target(
                ["install", machine.address, "ONNXRuntime", "--port", port, "--no-packages", *HERE]
            )
            == 2
        )
    told = capsys.readouterr().err
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use" in told
    assert told.count("\n") == 1
    assert target(["uninstall", machine.address, "ONNXRuntime", *HERE]) == 0
    assert target(["uninstall", machine.address, "ONNXRuntime", *HERE]) == 2
    assert "no target is called 'ONNXRuntime' there; it has none" in capsys.readouterr().err


@pytest.mark.slow
def test_packages_are_gathered_here_and_the_board_needs_none(
    machine: SshServer, port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = ("--python", str(bare / "bin" / "python"))
    assert subprocess.run([python[1], "-c", "import numpy"], capture_output=True).returncode
    status = target(["install", machine.address, "ONNXRuntime", "--port", port, *python])
    told = capsys.readouterr()
    if status and "packages for" in told.err:
        pytest.skip(f"no index of packages here: {told.err}")
    assert status == 0
    Path("devices.yaml").write_text("devices:\n" + told.out.rpartition("devices.yaml:\n")[2])
    assert devices(["test"]) == 0
    assert target(["uninstall", machine.address, "ONNXRuntime", *python]) == 0


def test_words_that_cannot_be(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in {
        "status me@-x": "'me@-x': expected HOST, USER@HOST or USER@HOST:PORT",
        "status box:70000": "expected HOST",
        "install box": "install: name the board and the runtime",
        "stop box": "stop: name the board and the target",
        "stop box x -- --num-threads 2": "nothing may follow --",
        "install box ONNXRuntime --name ../x": "name '../x'",
        "install box Nothing": "Nothing",
        "install box ONNXRuntime -- --insecure": "--insecure",
        "install box ONNXRuntime -- --token-file x": "--token-file: a target has its own",
        "install box ONNXRuntime -- --num-thread 2": "--num-thread",
        "install box ONNXRuntime --no-packages --package x": "give one of the two",
        "install box ONNXRuntime --token-file no/where": "there is no folder",
        "bundle new ONNXRuntime --python-version three": "--python-version",
        "install box ONNXRuntime --port 0": "--port",
    }.items():
        assert target(shlex.split(words)) == 2, words
        said = capsys.readouterr().err
        assert said.count("\n") == 1, words
        assert told in said, words


def test_a_machine_that_is_not_there_is_told_in_one_line(
    port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\necho 'ssh: connect to host box port 22: No route to host' >&2\nexit 255\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    assert target(["status", "box"]) == 2
    said = capsys.readouterr().err
    assert (
        said
        == "nnpipe target: box: cannot be reached: ssh: connect to host box port 22: No route to host\n"
    )
