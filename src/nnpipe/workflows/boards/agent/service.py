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
from nnpipe.jobs.agent.processes import ProcessIdentity, get_identity, get_process_state, send

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


def find_service_kind() -> str:
    """Return how servers are started here: ``systemd`` if it answers this user, or else
    ``process``.
    """
    return SYSTEMD if _run_systemctl("show-environment").returncode == 0 else PROCESS


def start(folder: Path, kind: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start a server in its folder, with its output appended to a log there.

    Raises
    ------
    OSError
        If it cannot be started.
    """
    if kind == SYSTEMD:
        unit = Path.home() / _UNITS / _get_unit_name(folder)
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.write_text(format_unit_file(folder, command, environment), "utf-8")
        for words in (("daemon-reload",), ("enable", "--now", unit.name)):
            done = _run_systemctl(*words)
            if done.returncode:
                raise OSError(0, f"systemctl {words[0]}: {_get_last_line(done.stderr)}", str(unit))
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
    found = get_identity(process.pid)
    process.returncode = 0  # it continues without this process
    files.write(folder, PID, {} if found is None else found.to_json())


def stop(folder: Path, kind: str, *, forget: bool) -> None:
    """Stop a server and all its processes; with ``forget``, it is not started again with the
    machine either.
    """
    if kind == SYSTEMD:
        _run_systemctl(
            "disable" if forget else "stop", *(("--now",) if forget else ()), _get_unit_name(folder)
        )
        if forget:
            (Path.home() / _UNITS / _get_unit_name(folder)).unlink(missing_ok=True)
            _run_systemctl("daemon-reload")
        return
    who = _process(folder)
    if who is None:
        return
    send(who, signal.SIGTERM)
    limit = time.monotonic() + _PATIENCE
    while get_process_state(who) == "alive" and time.monotonic() < limit:
        time.sleep(_PAUSE)
    if get_process_state(who) == "alive":
        with contextlib.suppress(OSError):
            os.killpg(who.pid, signal.SIGKILL)
    (folder / PID).unlink(missing_ok=True)


def find_process(folder: Path, kind: str) -> int | None:
    """Return the process ID of a server, or None if it does not run."""
    if kind == SYSTEMD:
        shown = _run_systemctl(
            "show", _get_unit_name(folder), "--property=ActiveState,MainPID"
        ).stdout.decode("utf-8", "replace")
        found = dict(line.partition("=")[::2] for line in shown.splitlines())
        runs = found.get("ActiveState") in ("active", "activating", "reloading")
        return int(found.get("MainPID") or 0) if runs else None
    who = _process(folder)
    return who.pid if who is not None and get_process_state(who) == "alive" else None


def ensure_lingering(kind: str) -> bool:
    """Return whether servers go on when the user has logged out, and let them do so if this user
    may.
    """
    if kind != SYSTEMD or shutil.which("loginctl") is None:
        return kind != SYSTEMD
    return (
        subprocess.run(["loginctl", "enable-linger"], capture_output=True, timeout=60).returncode
        == 0
    )


def format_unit_file(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the service as systemd reads it."""
    return _UNIT.format(
        name=_escape_specifiers(folder.name),
        folder=_escape_specifiers(str(folder)),
        log=_escape_specifiers(str(folder / LOG)),
        environment="\n".join(
            f"Environment={_quote_word(f'{name}={value}')}" for name, value in environment.items()
        ),
        command=" ".join(_quote_word(word).replace("$", "$$") for word in command),
    )


def _get_unit_name(folder: Path) -> str:
    return f"nnpipe-{folder.name}.service"


def _escape_specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _quote_word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_escape_specifiers(escaped)}"'


def _process(folder: Path) -> ProcessIdentity | None:
    return ProcessIdentity.from_json(files.read(folder, PID))


def _run_systemctl(*words: str) -> subprocess.CompletedProcess[bytes]:
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


def _get_last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it did not say why")
