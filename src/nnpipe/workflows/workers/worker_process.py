"""What a worker's process is told when it starts, and the script that it runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import FULL, write_text
from nnpipe.core.leases import redirect_temporary_files
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.agent.processes import get_identity
from nnpipe.jobs.agent.supervisor import OWNER
from nnpipe.workflows.isolation.signals import handle_end_signals

VARIABLE = "NNPIPE_WORKER"
"""The environment variable with a :class:`WorkerTask`.

It is not an option, since addresses may contain passwords, which must not appear on a command line.
"""

SETTINGS = "settings.json"
"""The file beside the script with the settings of the search or the sweep."""

USER_ERROR = 2
"""The exit status of a worker that met an error that the user can mend."""

_SCRIPT = '''"""A worker that nnpipe has started."""

import sys

if __name__ == "__main__":
    from {module} import work
    from nnpipe.workflows.workers.worker_process import run_worker

    sys.exit(run_worker(work, __file__))
'''


@dataclass(frozen=True)
class WorkerTask:
    """What a worker works on.

    Parameters
    ----------
    worker
        Its name.
    address, store
        The run database, whose address may hold a password, and the folder of its artifacts.
    search
        The identity of the run whose trials it carries out.
    directory
        Its working directory; empty for the folder of the script.
    storage
        The storage for artifacts; empty without one.
    """

    worker: str
    address: str = field(repr=False)
    store: str | None
    search: str
    directory: str = ""
    storage: str = ""

    def to_environment(self) -> dict[str, str]:
        """Return the variables with which the worker's process finds this.

        On this machine it also finds the same modules, and ends with this process.
        """
        found = {VARIABLE: json.dumps(asdict(self))}
        if self.directory:
            owner = get_identity(os.getpid())
            found[OWNER] = json.dumps(None if owner is None else owner.to_json())
            found["PYTHONPATH"] = os.pathsep.join(
                str(Path(entry).absolute()) for entry in sys.path if entry
            )
        return found

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> WorkerTask:
        """Return the task of a worker's process."""
        try:
            return cls(**json.loads(environment[VARIABLE]))
        except (KeyError, ValueError, TypeError):
            raise ConfigError(f"{VARIABLE} does not say what to work on") from None

    def database(self) -> RunDatabase:
        """Open the run database."""
        return RunDatabase(self.address, store=self.store, create=False)


def write_script(folder: Path, module: str, settings: Mapping[str, object]) -> Path:
    """Write the script of workers and the settings beside it; return the script's path.

    Parameters
    ----------
    folder
        Where they are written.
    module
        Has the function ``work``, which is called with a :class:`WorkerTask`, the settings and the
        script's folder.
    settings
        The settings in the form of JSON.
    """
    # it may hold addresses with passwords
    write_text(folder / SETTINGS, json.dumps(settings), private=True)
    script = folder / "worker.py"
    write_text(script, _SCRIPT.format(module=module))
    return script


def run_worker(work: object, script: str) -> int:
    """Carry out a worker's task in this process; return the exit status."""
    folder = Path(script).absolute().parent
    assert callable(work)
    try:
        task = WorkerTask.from_environment(os.environ)
        os.chdir(task.directory or folder)
        with handle_end_signals() as signals, redirect_temporary_files():
            work(task, json.loads((folder / SETTINGS).read_text("utf-8")), folder)
    except NNPipeError as error:
        sys.stderr.write(f"{error}\n")
        return USER_ERROR
    except OSError as error:
        if error.errno not in FULL:
            raise
        sys.stderr.write(f"{error.filename or folder}: {error.strerror}\n")
        return USER_ERROR
    except KeyboardInterrupt:
        return signals.status
    return 0
