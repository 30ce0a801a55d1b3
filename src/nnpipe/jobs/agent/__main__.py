"""The agent's commands for other processes: ``python agent.pyz COMMAND FOLDER [JSON]``, which
answers in JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.control import Refused, cancel, resume, run_sent_job, start
from nnpipe.jobs.agent.status import look
from nnpipe.jobs.agent.supervisor import run


def main(arguments: list[str]) -> int:
    """Run one command; ``-`` instead of JSON reads it from standard input."""
    command, folder, *rest = arguments
    path = Path(folder).expanduser().absolute()
    if command == "run":
        for handle in map(int, rest):
            os.set_inheritable(handle, False)
        run(path, int(rest[0]) if rest else None)
    if command == "carry":
        run_sent_job(path)
    if command == "give":
        return _send_file(path, json.loads(rest[0]))
    text = sys.stdin.read() if rest == ["-"] else "".join(rest) or "{}"
    try:
        answer = _execute_command(command, path, json.loads(text))
    except Refused as error:
        answer = {"refused": str(error)}
    except OSError as error:
        answer = {"refused": f"{error.filename or path}: {error.strerror or error}"}
    sys.stdout.buffer.write(files.REPLY + json.dumps(answer).encode())
    return 0


def _send_file(folder: Path, name: str) -> int:
    """Write a file of the job's directory to standard output."""
    job = files.read(folder, files.JOB) or {}
    with open(Path(str(job.get("directory"))).expanduser() / name, "rb") as handle:
        sys.stdout.buffer.write(files.REPLY)
        shutil.copyfileobj(handle, sys.stdout.buffer)
    return 0


def _execute_command(command: str, folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    program = [sys.executable, "-E", str(Path(sys.argv[0]).resolve())]
    if command == "look":
        return look(folder, **asked)
    if command == "cancel":
        return cancel(folder, asked.get("grace"))
    if command == "start":
        start(folder, asked["job"], program)
    elif command == "resume":
        resume(
            folder, asked["command"], int(asked["attempt"]), program, asked.get("environment", {})
        )
    else:
        raise Refused(f"no command is called {command!r}")
    return look(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
