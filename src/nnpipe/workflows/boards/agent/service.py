"""Start and stop a server on this machine: as a service of the user's systemd, or as a plain
process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.processes import ProcessIdentity, identity, send, state_of

SYSTEMD, PROCESS = "systemd", "process"
LOG = "log.txt"
PID = "process.json"

_UNITS = Path(".config/systemd/user")  # relative to the user's home (man systemd.unit)
_PAUSE = 0.05
_PATIENCE = 15.0  # seconds in which a server ends by itself
_UNIT = """[Unit]
Description=nnpipe serves {name}

[Service]
WorkingDirectory={folder}
{environment}
ExecStart={command}
StandardOutput=append:{log}
StandardError=append:{log}
Restart=on-failure
NoNewPrivileges=true

[Install]
WantedBy=default.target
"""


def kind_here() -> str:
    """Return how servers are started here: ``systemd`` if it answers this user, or else
    ``process``.
    """
    return SYSTEMD if _systemctl("show-environment").returncode == 0 else PROCESS


def start(folder: Path, kind: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start a server in its folder, with its output appended to a log there.

    Raises
    ------
    OSError
        If it cannot be started.
    """
    if kind == SYSTEMD:
        unit = Path.home() / _UNITS / _unit(folder)
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.write_text(unit_file(folder, command, environment), "utf-8")
        for words in (("daemon-reload",), ("enable", "--now", unit.name)):
            done = _systemctl(*words)
            if done.returncode:
                raise OSError(0, f"systemctl {words[0]}: {_last(done.stderr)}", str(unit))
        return
    with open(folder / LOG, "ab") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    found = identity(process.pid)
    process.returncode = 0  # it continues without this process
    files.write(folder, PID, {} if found is None else found.to_json())


def stop(folder: Path, kind: str, *, forget: bool) -> None:
    """Stop a server and all its processes; with ``forget``, it is not started again with the
    machine either.
    """
    if kind == SYSTEMD:
        _systemctl("disable" if forget else "stop", *(("--now",) if forget else ()), _unit(folder))
        if forget:
            (Path.home() / _UNITS / _unit(folder)).unlink(missing_ok=True)
            _systemctl("daemon-reload")
        return
    who = _process(folder)
    if who is None:
        return
    send(who, signal.SIGTERM)
    limit = time.monotonic() + _PATIENCE
    while state_of(who) == "alive" and time.monotonic() < limit:
        time.sleep(_PAUSE)
    if state_of(who) == "alive":
        with contextlib.suppress(OSError):
            os.killpg(who.pid, signal.SIGKILL)
    (folder / PID).unlink(missing_ok=True)


def alive(folder: Path, kind: str) -> int | None:
    """Return the process ID of a server, or None if it does not run."""
    if kind == SYSTEMD:
        shown = _systemctl("show", _unit(folder), "--property=ActiveState,MainPID").stdout.decode(
            "utf-8", "replace"
        )
        found = dict(line.partition("=")[::2] for line in shown.splitlines())
        runs = found.get("ActiveState") in ("active", "activating", "reloading")
        return int(found.get("MainPID") or 0) if runs else None
    who = _process(folder)
    return who.pid if who is not None and state_of(who) == "alive" else None


def outlives_logout(kind: str) -> bool:
    """Return whether servers go on when the user has logged out, and let them do so if this user
    may.
    """
    if kind != SYSTEMD or shutil.which("loginctl") is None:
        return kind != SYSTEMD
    return (
        subprocess.run(["loginctl", "enable-linger"], capture_output=True, timeout=60).returncode
        == 0
    )


def unit_file(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the service as systemd reads it."""
    return _UNIT.format(
        name=_specifiers(folder.name),
        folder=_specifiers(str(folder)),
        log=_specifiers(str(folder / LOG)),
        environment="\n".join(
            f"Environment={_quoted(f'{name}={value}')}" for name, value in environment.items()
        ),
        command=" ".join(_quoted(word).replace("$", "$$") for word in command),
    )


def _unit(folder: Path) -> str:
    return f"nnpipe-{folder.name}.service"


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_specifiers(escaped)}"'


def _process(folder: Path) -> ProcessIdentity | None:
    return ProcessIdentity.from_json(files.read(folder, PID))


def _systemctl(*words: str) -> subprocess.CompletedProcess[bytes]:
    """Call the user's systemd, also from a session without a bus of its own."""
    runtime = Path(f"/run/user/{os.getuid()}")
    more = (
        {}
        if "XDG_RUNTIME_DIR" in os.environ or not runtime.is_dir()
        else {"XDG_RUNTIME_DIR": str(runtime)}
    )
    command = ["systemctl", "--user", *words]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, env={**os.environ, **more})
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, b"", str(error).encode())


def _last(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it did not say why")
