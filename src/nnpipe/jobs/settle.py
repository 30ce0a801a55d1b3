"""``python -m nnpipe.jobs.settle``: called by a supervisor at the end of a job; with a storage, also now and then."""

from __future__ import annotations

import os
import sys

from nnpipe.core.errors import NNPipeError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.jobs import refresh
from nnpipe.jobs.settling import called, tell_storage


def main() -> int:
    """Tell run database and storage how a job stands; what goes wrong is in its log, and tried again by who looks."""
    try:
        job, address, store = called(os.environ)
        with RunDatabase(address, store=store, create=False) as database:
            tell_storage(refresh(database, database.jobs.get(job)))
    except NNPipeError as error:
        sys.stderr.write(f"nnpipe: what is to be told of the job could not be: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
