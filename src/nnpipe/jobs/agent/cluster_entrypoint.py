"""Run a job on a cluster that starts and stops processes itself, such as Ray."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.folder_lock import take
from nnpipe.jobs.agent.supervisor import run

TASK = "task.json"
SENT, REPORTS = "\0sent", "\0progress"
"""The placeholders of the script and the progress file in a command, until their paths are known."""


def carry(sent: Path) -> None:
    """Run the job that was sent to a folder, and exit with status 0 if it is completed."""
    job = json.loads((sent / TASK).read_bytes())
    folder = Path(tempfile.mkdtemp(prefix="nnpipe-job-"))
    places = {SENT: str(sent / job["file"]), REPORTS: str(folder / files.PROGRESS)}
    job["command"] = [places.get(word, word) for word in job["command"]]
    if take(folder) is None:
        sys.exit(f"nnpipe: {folder} cannot be locked")
    files.write(folder, files.JOB, job)
    run(folder, None, relayed=True)
