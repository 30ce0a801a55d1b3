"""The command ``python -m nnpipe.jobs.collect_results_command``, which a supervisor runs at the end
of a job.

For a job with a storage, it is also run from time to time during the job.
"""

from __future__ import annotations

import os
import sys

from nnpipe.core.errors import NNPipeError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.jobs import refresh
from nnpipe.jobs.publishing import read_call_variables, tell_storage


def main() -> int:
    """Record a job's state in the run database and the storage; errors are logged, and the next
    check tries again.
    """
    try:
        job, address, store = read_call_variables(os.environ)
        with RunDatabase(address, store=store, create=False) as database:
            tell_storage(refresh(database, database.jobs.get(job)))
    except NNPipeError as error:
        sys.stderr.write(f"nnpipe: cannot record the result of the job: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
