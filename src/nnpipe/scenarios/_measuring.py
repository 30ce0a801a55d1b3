"""Measuring a candidate in a process of its own.

Whatever trained and compiled the model (a framework of half a gigabyte, its
threads) is not in the process that is measured: its memory is that of the
runtime, the model and the samples.  And a runtime that brings its process down
costs one candidate, not the command.

The request and an error travel as JSON; the result is an ordinary result file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nnpipe.core import errors
from nnpipe.core.artifact import Artifact, sidecar_of
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, NNPipeError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.measure.benchmark import MeasureOptions, benchmark
from nnpipe.measure.run import Run
from nnpipe.scenarios._progress import bar

C = TypeVar("C", bound=Component)


@dataclass(frozen=True)
class Candidate:
    """One way to run a model; without a runtime, in its own framework.

    ``artifact`` is the compiled model, as :meth:`Artifact.read` finds it.
    """

    title: str
    wrapper: ModelWrapper
    model_path: Path
    compilers: tuple[ModelCompiler, ...] = ()
    runtime: Runtime | None = None
    artifact: Artifact | None = None


def measure_apart(candidate: Candidate, dataset: Dataset, options: MeasureOptions, command: Sequence[str]) -> Run:
    """Measure a candidate on the test split, in a fresh process.

    Raises
    ------
    NNPipeError
        What the measuring raised, or that its process died and of what.
    """
    with tempfile.TemporaryDirectory(prefix="nnpipe-") as folder:
        result = Path(folder, "run.json")
        request = {
            "title": candidate.title,
            "command": list(command),
            "dataset": dataset.describe(),
            "wrapper": candidate.wrapper.describe(),
            "compilers": [compiler.describe() for compiler in candidate.compilers],
            "runtime": candidate.runtime.describe() if candidate.runtime else None,
            "model_path": str(candidate.model_path),
            "artifact": str(candidate.artifact.path) if candidate.artifact else None,
            "options": options.to_json(),
            "result": str(result),
        }
        # The child finds the same modules, wherever this process found them.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-m", __name__], input=json.dumps(request).encode(), stdout=subprocess.PIPE,
            env=environment, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return Run.read(result)
        raise _failure(candidate.title, done.returncode, done.stdout)


def _failure(title: str, status: int, output: bytes) -> NNPipeError:
    if status == 2:
        told = json.loads(output)
        kind = getattr(errors, told["kind"], NNPipeError)
        return kind(told["message"])
    if status == 130:
        raise KeyboardInterrupt
    if status < 0:
        name = signal.Signals(-status).name
        return NNPipeError(f"the process that ran {title} was ended by {name}; the runtime or the model crashed it")
    return NNPipeError(f"the process that ran {title} ended with status {status}; see its traceback above")


def measure_here(request: Mapping[str, Any]) -> Run:
    """Do what a request asks for, in this process."""
    dataset = _component(request["dataset"], Dataset)
    dataset.prepare()
    wrapper = _component(request["wrapper"], ModelWrapper)
    compilers = tuple(_component(item, ModelCompiler) for item in request["compilers"])
    model_path = Path(request["model_path"])
    runtime = None if request["runtime"] is None else _component(request["runtime"], Runtime)
    artifact = None
    if request["artifact"] is not None:
        artifact = Artifact.read(request["artifact"])
    elif sidecar_of(model_path).is_file():
        artifact = Artifact.read(model_path)
    if runtime is not None and artifact is not None:
        wrapper = wrapper.knowing(_as_exported(artifact).io)
    wrapper = wrapper.for_dataset(dataset.spec)

    def open_session() -> InferenceSession:
        if runtime is not None and artifact is not None:
            return _loaded(runtime, artifact, model_path)
        wrapper.load(model_path)
        return wrapper.session()

    parts: dict[str, Any] = {"compilers": compilers}
    if runtime is not None:
        parts["runtime"] = runtime
    return benchmark(
        open_session,
        dataset=dataset,
        indices=dataset.split("test"),
        wrapper=wrapper,
        title=request["title"],
        command=request["command"],
        components=parts,
        artifact=artifact,
        options=MeasureOptions.from_json(request["options"]),
        progress=bar,
    )


def _as_exported(artifact: Artifact) -> Artifact:
    """Give the artifact that a chain of compilers started from."""
    while artifact.parent is not None:
        artifact = artifact.parent
    return artifact


def _loaded(runtime: Runtime, artifact: Artifact, model_path: Path) -> InferenceSession:
    """Load a compiled model; an error names the file that the user gave, too."""
    try:
        return runtime.load(artifact)
    except ArtifactError as error:
        if str(model_path) in str(error):
            raise
        raise ArtifactError(f"{error} (it was made from {model_path})") from None


def _component(data: Mapping[str, Any], base: type[C]) -> C:
    return find(data["class"], base).from_json(data["arguments"])


def main() -> int:
    """Read a request from standard input and carry it out."""
    request = json.load(sys.stdin)
    try:
        measure_here(request).write(request["result"])
    except NNPipeError as error:
        print(json.dumps({"kind": type(error).__name__, "message": str(error)}))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
