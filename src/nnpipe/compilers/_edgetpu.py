"""The Edge TPU compiler, an external command."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from nnpipe.core.errors import CompileError
from nnpipe.core.external_tools import Tool

_COMMAND = "edgetpu_compiler"
EDGETPU = Tool(
    "the Edge TPU compiler", (_COMMAND,), "see https://coral.ai/docs/edgetpu/compiler/ for how to install it"
)
_SECONDS = 1800


def compile_for_edgetpu(model: bytes) -> bytes:
    """Return an int8 TensorFlow Lite model compiled for the Edge TPU.

    Raises
    ------
    CompileError
        If the command fails; the message contains the end of its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "model.tflite")
        source.write_bytes(model)
        try:
            done = subprocess.run(
                [_COMMAND, "-o", folder, str(source)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileError(f"{_COMMAND} did not run: {error}") from None
        if done.returncode:
            said = " / ".join(done.stdout.split("\n")[-6:]).strip(" /")
            raise CompileError(f"{_COMMAND} ended with status {done.returncode}: {said or 'it said nothing'}")
        result = Path(folder, "model_edgetpu.tflite")
        if not result.is_file():
            raise CompileError(f"{_COMMAND} wrote no {result.name}")
        return result.read_bytes()
