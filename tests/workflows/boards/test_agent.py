"""What a board does, without a way to it: the requests are carried out in this process, in
another home.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nnpipe.workflows.boards.agent import main as agent
from nnpipe.workflows.boards.agent import service
from nnpipe.workflows.boards.packages import pack_folder

SERVES = "import signal\nprint('Fake is served at 127.0.0.1:7', flush=True)\nsignal.pause()\n"
SETTINGS = {
    "name": "fake",
    "arguments": ["--flag"],
    "runtime": "Fake",
    "address": "127.0.0.1:7",
    "service": "process",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def install(folder: Path, text: str, **more: Any) -> dict[str, Any]:
    package = folder / "made" / "nnpipe"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(text)
    return send(pack_folder(folder / "made"), **more)


def send(
    payload: bytes, whole: bytes | None = None, token: str = "secret", **more: Any
) -> dict[str, Any]:
    sha256 = hashlib.sha256(payload if whole is None else whole).hexdigest()
    asked = {"settings": {**SETTINGS, **more}, "token": token, "sha256": sha256, "seconds": 30.0}
    return agent.handle_request({"action": "install", **asked}, io.BytesIO(payload))


def ask(action: str, name: str = "fake") -> dict[str, Any]:
    return agent.handle_request({"action": action, "name": name, "seconds": 30.0}, io.BytesIO())


def test_a_plain_process_is_started_stopped_and_removed(home: Path, tmp_path: Path) -> None:
    state = install(tmp_path, SERVES)["targets"][0]
    assert state["last"] == "Fake is served at 127.0.0.1:7"
    assert ask("status")["targets"][0]["pid"] == state["pid"]
    assert ask("start")["targets"][0]["pid"] == state["pid"], "it runs already"
    again = install(tmp_path, SERVES)["targets"][0]
    assert again["pid"] != state["pid"]
    assert ask("stop")["targets"][0]["pid"] is None
    assert ask("uninstall") == {}
    assert not list(home.iterdir())


def test_a_process_that_only_has_the_number_of_the_server_is_let_be(
    home: Path, tmp_path: Path
) -> None:
    install(tmp_path, SERVES)
    folder = home / ".nnpipe/targets/fake"
    ask("stop")
    other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        told = {"pid": other.pid, "started": 1.0, "boot": "another", "host": "here"}
        (folder / service.PID).write_text(json.dumps(told))
        assert ask("status")["targets"][0]["pid"] is None
        ask("uninstall")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_server_that_ends_at_once_is_told_with_its_last_line(home: Path, tmp_path: Path) -> None:
    found = install(tmp_path, "raise SystemExit('the port is taken')")
    assert found == {"refused": "the server ended at once: the port is taken"}
    assert ask("status")["targets"][0]["pid"] is None


def test_what_is_cut_short_on_its_way_replaces_nothing(home: Path, tmp_path: Path) -> None:
    pid = install(tmp_path, SERVES)["targets"][0]["pid"]
    whole = pack_folder(tmp_path / "made")
    found = send(whole[: len(whole) // 2], whole, token="other")
    assert found == {"refused": "the packages did not arrive as they were sent"}
    assert ask("status")["targets"][0]["pid"] == pid
    assert (home / ".nnpipe/targets/fake/token").read_text() == "secret"
    ask("uninstall")


def test_names_that_are_not_there(home: Path) -> None:
    assert ask("status", "") == {"targets": []}
    assert ask("stop", "other") == {"refused": "no target is called 'other' there; it has none"}


SYSTEMCTL = """#!{python}
import json, os, subprocess, sys
home = os.environ["HOME"]
with open(home + "/calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + chr(10))
action = sys.argv[2]
if action == "enable":
    lines = open(home + "/.config/systemd/user/" + sys.argv[-1])
    unit = dict(line.strip().split("=", 1) for line in lines if "=" in line)
    with open(unit["StandardOutput"].removeprefix("append:"), "ab") as log:
        child = subprocess.Popen(["/bin/sh", "-c", "exec env " + unit["Environment"] + " " + unit["ExecStart"]],
            stdout=log, stderr=log)
    open(home + "/pid", "w").write(str(child.pid))
elif action == "show":
    print("ActiveState=" + ("active" if os.path.exists(home + "/pid") else "inactive"))
    print("MainPID=" + (open(home + "/pid").read() if os.path.exists(home + "/pid") else "0"))
elif action in ("stop", "disable") and os.path.exists(home + "/pid"):
    os.kill(int(open(home + "/pid").read()), 15)
    os.unlink(home + "/pid")
"""


def test_where_the_user_has_systemd_the_server_is_its_service(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for name, text in {
        "systemctl": SYSTEMCTL.format(python=sys.executable),
        "loginctl": "#!/bin/sh\nexit 1\n",
    }.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    assert service.find_service_kind() == "systemd"
    found = install(tmp_path, SERVES, service="systemd")
    assert (found["lingers"], found["targets"][0]["pid"]) == (
        False,
        int((home / "pid").read_text()),
    )
    assert ask("uninstall") == {}
    calls = (home / "calls").read_text().splitlines()
    changed = [line for line in calls if "show" not in line]
    assert changed == [
        "--user daemon-reload",
        "--user enable --now nnpipe-fake.service",
        "--user disable --now nnpipe-fake.service",
        "--user daemon-reload",
    ]
    assert not (home / ".config/systemd/user/nnpipe-fake.service").exists()


def test_the_service_is_what_systemd_reads(tmp_path: Path) -> None:
    folder = tmp_path / "50% of it"
    folder.mkdir()
    text = service.format_unit_file(
        folder, [sys.executable, "-c", 'print("$HOME", "%h", "\\\\")'], {"PYTHONPATH": "/a b/c"}
    )
    assert 'Environment="PYTHONPATH=/a b/c"' in text
    assert '"print(\\"$$HOME\\", \\"%%h\\", \\"\\\\\\\\\\")"' in text
    assert f"append:{tmp_path}/50%% of it/log.txt" in text
    if shutil.which("systemd-analyze") is not None:
        unit = tmp_path / "nnpipe-x.service"
        unit.write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "--man=no", "verify", unit], capture_output=True, text=True
        )
        assert "nnpipe-x" not in done.stderr, done.stderr
