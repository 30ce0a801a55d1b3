"""The requests that a board answers: what it is, which servers it has, and changes of these."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from nnpipe.jobs.agent import files
from nnpipe.workflows.boards.agent import service

SETTINGS, TOKEN, PACKAGES = "settings.json", "token", "packages"
SERVED = " is served at "
"""What a server prints when it can be reached."""

_FOLDER = ".nnpipe/targets"  # relative to the user's home
_NEW, _LOG_MOST = ".new", 1 << 20
_PAUSE = 0.1


class RequestRefused(Exception):
    """A request cannot be carried out; the text gives the reason."""


def handle_request(asked: Mapping[str, Any], stream: IO[bytes]) -> dict[str, Any]:
    """Carry out a request, and return the answer, or the reason under ``refused``."""
    try:
        return _ACTIONS[asked["action"]](asked, stream)
    except RequestRefused as error:
        return {"refused": str(error)}
    except (OSError, tarfile.TarError, EOFError) as error:
        where = getattr(error, "filename", None)
        said = getattr(error, "strerror", None) or str(error)
        return {"refused": f"{where}: {said}" if where else said}


def describe_board(asked: Mapping[str, Any], stream: IO[bytes]) -> dict[str, Any]:
    """Return what the board is, as far as it matters for packages and services."""
    name, version = platform.libc_ver()
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "python": list(sys.version_info[:3]),
        "executable": sys.executable,
        "libc": [name, version],
        "service": service.find_service_kind(),
        "free": shutil.disk_usage(Path.home()).free,
        "targets": [path.name for path in _list_targets()],
    }


def install(asked: Mapping[str, Any], stream: IO[bytes]) -> dict[str, Any]:
    """Unpack the packages of a server, and start it; a server of that name is replaced."""
    settings = dict(asked["settings"])
    folder = _get_root_folder() / settings["name"]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    new = folder / (PACKAGES + _NEW)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    _unpack(stream, new, asked["sha256"])
    before = files.read(folder, SETTINGS)
    if before is not None:
        service.stop(folder, before["service"], forget=True)
    shutil.rmtree(folder / PACKAGES, ignore_errors=True)
    os.replace(new, folder / PACKAGES)
    _write_secret(folder / TOKEN, asked["token"])
    (folder / "models").mkdir(exist_ok=True)
    files.write(folder, SETTINGS, settings | {"python": sys.executable})
    return _start(folder, float(asked["seconds"]))


def start(asked: Mapping[str, Any], stream: IO[bytes]) -> dict[str, Any]:
    """Start a server that is installed; one that runs is left alone."""
    return _start(_find_target_folder(asked), float(asked["seconds"]))


def stop(asked: Mapping[str, Any], stream: IO[bytes]) -> dict[str, Any]:
    """Stop a server."""
    folder = _find_target_folder(asked)
    service.stop(folder, _read_settings(folder)["service"], forget=False)
    return {"targets": [_describe_server(folder)]}


def uninstall(asked: Mapping[str, Any], stream: IO[bytes]) -> dict[str, Any]:
    """Stop a server, and remove all that was installed for it."""
    folder = _find_target_folder(asked)
    service.stop(folder, _read_settings(folder)["service"], forget=True)
    shutil.rmtree(folder)
    for parent in (folder.parent, folder.parent.parent):
        with contextlib.suppress(OSError):  # jobs or other servers are there
            parent.rmdir()
    return {}


def list_states(asked: Mapping[str, Any], stream: IO[bytes]) -> dict[str, Any]:
    """Return the state of all servers, or of one."""
    return {
        "targets": [
            _describe_server(path)
            for path in ([_find_target_folder(asked)] if asked.get("name") else _list_targets())
        ]
    }


def _unpack(stream: IO[bytes], folder: Path, sha256: str) -> None:
    """Unpack an archive; what is cut short may look like a whole one, so that its hash is
    compared.
    """
    archive = folder.with_name(folder.name + ".tar.gz")
    found = hashlib.sha256()
    try:
        with open(archive, "wb") as handle:
            while block := stream.read(1 << 20):
                found.update(block)
                handle.write(block)
        if found.hexdigest() != sha256:
            raise RequestRefused("the packages did not arrive as they were sent")
        with tarfile.open(archive) as opened:
            opened.extractall(folder)
    finally:
        archive.unlink(missing_ok=True)


def _start(folder: Path, seconds: float) -> dict[str, Any]:
    settings = _read_settings(folder)
    if service.find_process(folder, settings["service"]) is not None:
        return {"targets": [_describe_server(folder)], "lingers": True}
    log = folder / service.LOG
    with contextlib.suppress(OSError):
        if log.stat().st_size > _LOG_MOST:
            os.replace(log, log.with_name("log.1.txt"))
    begin = log.stat().st_size if log.exists() else 0
    packages = str(folder / PACKAGES)
    command = [settings["python"], "-s", "-m", "nnpipe", "inference_server", *settings["arguments"]]
    service.start(folder, settings["service"], command, {"PYTHONPATH": packages})
    limit = time.monotonic() + seconds
    while SERVED not in (told := _log(folder, begin)):
        if service.find_process(folder, settings["service"]) is None and SERVED not in (
            told := _log(folder, begin)
        ):
            service.stop(folder, settings["service"], forget=True)
            raise RequestRefused(
                f"the server ended at once: {_get_last_line(told) or f'{log} is empty'}"
            )
        if time.monotonic() > limit:
            raise RequestRefused(
                f"the server has not said within {seconds:g} s that it is ready; look at {log}"
            )
        time.sleep(_PAUSE)
    return {
        "targets": [_describe_server(folder)],
        "lingers": service.ensure_lingering(settings["service"]),
    }


def _describe_server(folder: Path) -> dict[str, Any]:
    settings = _read_settings(folder)
    pid = service.find_process(folder, settings["service"])
    told = {
        name: settings.get(name) for name in ("runtime", "address", "service", "nnpipe", "since")
    }
    return {
        "name": folder.name,
        "pid": pid,
        "folder": str(folder),
        "last": _get_last_line(_log(folder, 0)),
        **told,
    }


def _get_root_folder() -> Path:
    return Path.home() / _FOLDER


def _list_targets() -> list[Path]:
    return sorted(path.parent for path in _get_root_folder().glob(f"*/{SETTINGS}"))


def _find_target_folder(asked: Mapping[str, Any]) -> Path:
    folder = _get_root_folder() / str(asked["name"])
    if not (folder / SETTINGS).is_file():
        there = ", ".join(path.name for path in _list_targets())
        raise RequestRefused(
            f"no target is called {asked['name']!r} there; "
            f"{f'there are {there}' if there else 'it has none'}"
        )
    return folder


def _read_settings(folder: Path) -> dict[str, Any]:
    found = files.read(folder, SETTINGS)
    if found is None:
        raise RequestRefused(f"{folder / SETTINGS} cannot be read; install the target again")
    return found


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
    ) as handle:
        handle.write(text)


def _log(folder: Path, begin: int) -> str:
    size = (folder / service.LOG).stat().st_size if (folder / service.LOG).exists() else 0
    return files.read_piece(folder, service.LOG, max(begin, size - (1 << 16)), 1 << 16)[0].decode(
        "utf-8", "replace"
    )


def _get_last_line(told: str) -> str:
    return next((line.strip() for line in reversed(told.splitlines()) if line.strip()), "")


_ACTIONS: dict[str, Callable[[Mapping[str, Any], IO[bytes]], dict[str, Any]]] = {
    "facts": describe_board,
    "install": install,
    "start": start,
    "stop": stop,
    "uninstall": uninstall,
    "status": list_states,
}


def main() -> None:
    """Answer the request that the rest of standard input holds, after its length in the first
    line.
    """
    stream = sys.stdin.buffer
    asked = json.loads(stream.read(int(stream.readline())))
    told = handle_request(asked, stream)
    sys.stdout.buffer.write(files.REPLY + json.dumps(told).encode())
    sys.stdout.buffer.flush()
