"""Components that misbehave at a place and in a way of one's choice; otherwise they do what ONNX
Runtime does.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.live_model import LiveModel
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.runtimes.onnxruntime import ONNXRuntime

GARBAGE = b'{"value": 1}\n'  # looks like a reply


def misbehave(deed: str, note: Path | None = None) -> None:
    """Do it; ``note`` gets the number of a process that is left behind."""
    if deed == "print":
        print(GARBAGE.decode())
        os.write(1, GARBAGE)
    if deed == "abort":
        print("\nlast words", file=sys.stderr, flush=True)
        os.abort()
    if deed == "hang":
        ctypes.PyDLL(None).sleep(600)  # without letting any other thread of Python run
    if deed == "leave":
        os._exit(3)
    if deed == "exit":
        sys.exit(4)
    if deed == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "raise":
        raise KeyError("nobody foresaw this")
    if deed == "spawn and leave":
        child = subprocess.Popen(["sleep", "600"])
        if note is not None:
            note.write_text(str(child.pid))
        os._exit(3)
    if deed == "fork and leave":  # the copy holds every pipe open
        pid = os.fork()
        if pid == 0:
            ctypes.PyDLL(None).sleep(600)
        if note is not None:
            note.write_text(str(pid))
        os._exit(3)


def chore(request: dict[str, Any]) -> str:
    """Misbehave as a task of a worker."""
    misbehave(request["deed"], Path(request["note"]) if "note" in request else None)
    return "done"


class PlantedCompiler(ModelCompiler):
    """Copies a model, if it comes to that."""

    accepts, produces, suffix = ("onnx",), "onnx", ".onnx"
    deed: str = argument("", help="what to do")

    def _compile(self, artifact: Artifact, path: Path, calibration: Any) -> Artifact:
        misbehave(self.deed)
        shutil.copyfile(artifact.path, path)
        return Artifact.create(path, "onnx", artifact.io, producer=self.describe(), parent=artifact)


class PlantedRuntime(Runtime):
    """Runs a model, if it comes to that."""

    accepts = ("onnx",)
    deed: str = argument("", help="what to do")
    place: Literal["load", "run", "verify"] = argument("load", help="when to do it")
    loads: ClassVar[list[Artifact]] = []

    def _load(self, artifact: Artifact) -> InferenceSession:
        self.loads.append(artifact)
        # In one process a model is loaded to be measured first, and to be verified then.
        verifying = len(self.loads) > 1
        if self.place == "load" or (self.place == "verify" and verifying):
            misbehave(self.deed)
        return _Planted(ONNXRuntime().load(artifact), self.deed if self.place == "run" else "")


class _Planted(InferenceSession):
    def __init__(self, straight: InferenceSession, deed: str) -> None:
        self.io, self.straight, self.deed = straight.io, straight, deed

    def _put(self, batch: Any) -> None:
        self.straight.put(batch)

    def _run(self) -> None:
        misbehave(self.deed)
        self.straight.run()

    def _get(self) -> Any:
        return self.straight.get()


class PlantedModel(ONNXModel):
    """An ONNX model that may be loaded and exported, but whose running is another matter."""

    deed: str = argument("", help="what to do")
    place: Literal["load", "run", "export"] = argument("run", help="when to do it")

    def load(self, live: LiveModel, path: Any) -> None:
        """Load, perhaps."""
        if self.place == "load":
            misbehave(self.deed)
        super().load(live, path)

    def session(self, live: LiveModel) -> InferenceSession:
        """Open a session, perhaps."""
        if self.place == "run":
            misbehave(self.deed)
        return super().session(live)

    def export(self, live: LiveModel, path: Any, format: str) -> Artifact:
        """Export, perhaps."""
        if self.place == "export":
            misbehave(self.deed)
        return super().export(live, path, format)
