"""The Edge TPU's own compiler, an external command."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from nnpipe.core.errors import CompileError, MissingDependency

_COMMAND = "edgetpu_compiler"
_SECONDS = 1800


def edgetpu_command() -> str:
    """Give the path of the Edge TPU compiler.

    Raises
    ------
    MissingDependency
        If it is not on the search path.
    """
    command = shutil.which(_COMMAND)
    if command is None:
        raise MissingDependency(
            f"the target edgetpu needs the command {_COMMAND}, which is not on the PATH; "
            "see https://coral.ai/docs/edgetpu/compiler/ for how to install it"
        )
    return command


def compile_for_edgetpu(command: str, model: bytes) -> bytes:
    """Let the Edge TPU compiler map an int8 TensorFlow Lite model.

    Raises
    ------
    CompileError
        With the command's last words, if it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "model.tflite")
        source.write_bytes(model)
        try:
            done = subprocess.run(
                [command, "-o", folder, str(source)],
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
