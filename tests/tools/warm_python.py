"""An interpreter that has imported frameworks already; each script runs in a fork of it, as in a
new interpreter.

Importing TensorFlow and PyTorch takes five seconds of the processor, which a test of many scripts
pays once.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType


class WarmPython:
    """Runs scripts in forks of one process.

    Parameters
    ----------
    modules
        What the process imports before it forks; what is not installed is left out.  None of them
        may start threads, which a fork would lack.
    environment
        The environment variables of the process and the scripts.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self.modules, self.environment = tuple(modules), dict(environment)
        self._process: subprocess.Popen[str] | None = None

    def run(self, script: Path, folder: Path, seconds: int) -> subprocess.CompletedProcess[str]:
        """Run a script in a folder; return its status, which is negative for a signal, and what it
        printed.

        It is ended by a signal after ``seconds``.
        """
        out, err = folder / f"{script.stem}.out", folder / f"{script.stem}.err"
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, *self.modules],
                env=self.environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(
            json.dumps([str(script), str(folder), seconds, str(out), str(err)]),
            file=self._process.stdin,
            flush=True,
        )
        status = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(
            [str(script)], status, out.read_text("utf-8"), err.read_text("utf-8")
        )

    def __enter__(self) -> WarmPython:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.communicate()  # which closes its input, and that ends it


def _next_job() -> tuple[str, str, int, str, str]:
    """Fork for each job that is asked for; return in the forks, and exit where no more are."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what frameworks print is no answer
    for line in sys.stdin:
        child = os.fork()
        if not child:
            answers.close()
            script, folder, seconds, out, err = json.loads(line)
            return script, folder, seconds, out, err
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    sys.exit()


def _become(script: str, folder: str, seconds: int, out: str, err: str) -> None:
    """Take the folder, the arguments, the output and the time limit of a job."""
    signal.alarm(seconds)
    os.chdir(folder)
    sys.argv = [script]
    sys.path[0] = str(Path(script).parent)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, out, os.O_WRONLY),
        (2, err, os.O_WRONLY),
    ):
        file = os.open(path, flags | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            import_module(name)
        except ImportError:
            continue
    gc.collect()
    gc.freeze()
    job = _next_job()
    _become(*job)
    runpy.run_path(job[0], run_name="__main__")
