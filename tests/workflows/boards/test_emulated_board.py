"""A server is put on a whole emulated ARM machine, which is reached by SSH as a board is, and
has Python alone.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.tools.arm_linux import emulated

from nnpipe.scenarios.devices import main as devices
from nnpipe.scenarios.target import main as target

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_a_server_on_an_emulated_arm_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ssh = subprocess.run(
        ["which", "ssh"], capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "user"], check=True
    )
    monkeypatch.chdir(tmp_path)
    words = ["machine", "--key", str(tmp_path / "user.pub")]
    with emulated("qemu-system-aarch64", "a machine with SSH", words, tmp_path) as (port, line):
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {line.partition('its key is ')[2]}")
        (tmp_path / "config").write_text(
            f"Host *\n  IdentityFile {tmp_path / 'user'}\n  IdentitiesOnly yes\n  IdentityAgent "
            f"none\n"
            f"  UserKnownHostsFile {tmp_path / 'known'}\n"
        )
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "ssh").write_text(
            f'#!/bin/sh\nexec {ssh} -F {tmp_path / "config"} "$@"\n'
        )
        (tmp_path / "bin" / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        board = f"root@127.0.0.1:{port}"
        assert target(["install", board, "ONNXRuntime", "--seconds", "2400"]) == 0
        told = capsys.readouterr().out
        assert f"{board}: aarch64, glibc 2.36, Python 3.11" in told
        Path("devices.yaml").write_text(
            "devices:\n" + told.rpartition("devices.yaml:\n")[2].replace('"port"', _SLOWLY)
        )
        assert devices(["test"]) == 0
        assert "inferences of onnx are right" in capsys.readouterr().out
        assert target(["uninstall", board, "ONNXRuntime"]) == 0


_SLOWLY = '"timeout": 600, "port"'
"""An emulated machine that is given little time answers late."""
