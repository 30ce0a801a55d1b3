"""ONNX Runtime in a server whose processes tell on SIGUSR1 what they have imported."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from nnpipe.runtimes.onnxruntime import ONNXRuntime


class TellingRuntime(ONNXRuntime):
    """Runs ONNX files as its parent class does."""


def tell(*_: object) -> None:
    """Write the names of all modules, one a line, to a file named after the process."""
    path = Path(os.environ["TELLING"]) / str(os.getpid())
    path.with_suffix(".part").write_text("\n".join(sorted(sys.modules)))
    path.with_suffix(".part").replace(path)


if "TELLING" in os.environ:
    signal.signal(signal.SIGUSR1, tell)
