"""``python -m nnpipe.jobs.settle``: called by a job's supervisor when the job has ended."""

from __future__ import annotations

import os
import sys

from nnpipe.core.errors import NNPipeError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.jobs import refresh
from nnpipe.jobs.settling import called


def main() -> int:
    """Tell the run database of the end of a job; what goes wrong is in the job's log, and tried again by who looks."""
    try:
        job, address, store = called(os.environ)
        with RunDatabase(address, store=store, create=False) as database:
            refresh(database, database.jobs.get(job))
    except NNPipeError as error:
        sys.stderr.write(f"nnpipe: what follows the end of the job could not be done: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
