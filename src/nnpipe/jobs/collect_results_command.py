"""``python -m nnpipe.jobs.collect_results_command``, which a supervisor calls at the end of a job.

Of a job with a storage it is called from time to time while the job runs, too.
"""

from __future__ import annotations

import os
import sys

from nnpipe.core.errors import NNPipeError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.collect_results import called, tell_storage
from nnpipe.jobs.jobs import refresh


def main() -> int:
    """Tell run database and storage how a job stands; what goes wrong is in its log, and tried again by who looks."""
    try:
        job, address, store = called(os.environ)
        with RunDatabase(address, store=store, create=False) as database:
            tell_storage(refresh(database, database.jobs.get(job)))
    except NNPipeError as error:
        sys.stderr.write(f"nnpipe: cannot record the result of the job: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
