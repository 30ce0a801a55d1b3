"""Measuring a candidate in a process of its own.

Whatever trained and compiled the model (a framework of half a gigabyte, its
threads) is not in the process that is measured: its memory is that of the
runtime, the model and the samples.  And a runtime that brings its process down
costs one candidate, not the command.

The request and an error travel as JSON; the result is an ordinary result file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from nnpipe.core import errors
from nnpipe.core.artifact import Artifact, sidecar_of
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.deployment import RemoteOptions
from nnpipe.core.errors import ArtifactError, NNPipeError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtimeprotocol import RuntimeProtocol
from nnpipe.core.session import InferenceSession
from nnpipe.measure.benchmark import MeasureOptions, benchmark
from nnpipe.measure.run import Run
from nnpipe.scenarios._deploying import Deployment, deployed
from nnpipe.scenarios._progress import bar
from nnpipe.scenarios._verifying import Reference, VerifyOptions, not_verified, reference_of, verified

C = TypeVar("C", bound=Component)
log = logging.getLogger("nnpipe")


@dataclass(frozen=True)
class Candidate:
    """One way to run a model; without a runtime, in its own framework.

    ``artifact`` is the compiled model, as :meth:`Artifact.read` finds it;
    with ``deployment`` the runtime runs it on a target.
    """

    title: str
    wrapper: ModelWrapper
    model_path: Path
    compilers: tuple[ModelCompiler, ...] = ()
    runtime: Runtime | None = None
    artifact: Artifact | None = None
    deployment: Deployment | None = None


@dataclass(frozen=True)
class Verification:
    """What the compiled model is held against, in a file or as the reason why there is nothing, and how."""

    reference: Path | str
    options: VerifyOptions

    def to_json(self) -> dict[str, Any]:
        """Give it as a request holds it."""
        known = isinstance(self.reference, Path)
        return {"reference" if known else "reason": str(self.reference), "options": self.options.to_json()}


def measure_apart(
    candidate: Candidate,
    dataset: Dataset,
    options: MeasureOptions,
    command: Sequence[str],
    verification: Verification | None = None,
) -> Run:
    """Measure a candidate on the test split, in a fresh process, and hold a compiled one against its source.

    Raises
    ------
    NNPipeError
        What the measuring raised, or that its process died and of what.
    """
    with contextlib.ExitStack() as stack:
        result = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnpipe-")), "run.json")
        deployment, protocol = candidate.deployment, None
        if deployment is not None and candidate.runtime is not None:
            protocol = stack.enter_context(deployed(deployment, candidate.runtime))
        request = {
            "title": candidate.title,
            "command": list(command),
            "dataset": dataset.describe(),
            "wrapper": candidate.wrapper.describe(),
            "compilers": [compiler.describe() for compiler in candidate.compilers],
            "runtime": candidate.runtime.describe() if candidate.runtime else None,
            "model_path": str(candidate.model_path),
            "artifact": str(candidate.artifact.path) if candidate.artifact else None,
            "protocol": protocol.describe() if protocol else None,
            "remote": deployment.remote.to_json() if deployment else None,
            "options": options.to_json(),
            "verification": verification.to_json() if verification and candidate.artifact else None,
            "result": str(result),
        }
        # The child finds the same modules, wherever this process found them.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-m", __name__], input=json.dumps(request).encode(), stdout=subprocess.PIPE,
            env=environment, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            run = Run.read(result)
            _tell(run)
            return run
        raise _failure(f"{candidate.title} ({candidate.model_path})", done.returncode, done.stdout)


@contextmanager
def source_outputs(wrapper: ModelWrapper, dataset: Dataset, options: VerifyOptions) -> Iterator[Verification | None]:
    """Run the source once, here where its framework is, for all that is made of it; ``None`` if no samples are wanted.

    ``wrapper`` knows the data set and holds its weights.
    """
    if not options.verify_samples:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="nnpipe-") as folder:
        path: Path | str = Path(folder, "reference.npz")
        try:
            reference_of(wrapper, dataset, options.verify_samples).write(Path(path))
        except NNPipeError as error:  # what is compiled can be measured all the same
            path = str(error)
        yield Verification(path, options)


def _tell(run: Run) -> None:
    if run.verification:
        verdict = run.verification["verdict"]
        level = logging.WARNING if verdict in ("different", "unknown") else logging.INFO
        log.log(level, "agreement with the source: %s (%s)", verdict, run.verification["reason"])


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

    protocol = None if request["protocol"] is None else _component(request["protocol"], RuntimeProtocol)

    def open_session() -> InferenceSession:
        if protocol is not None and artifact is not None:
            from nnpipe.protocols.remote import open_session

            return open_session(protocol, artifact, RemoteOptions.from_json(request["remote"]))
        if runtime is not None and artifact is not None:
            return _loaded(runtime, artifact, model_path)
        wrapper.load(model_path)
        return wrapper.session()

    parts: dict[str, Any] = {"compilers": compilers}
    if runtime is not None:
        parts["runtime"] = runtime
    if protocol is not None:
        parts["protocol"] = protocol
    run = benchmark(
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
    # Afterwards, so that neither memory nor caches are other than they would be without.
    return replace(run, verification=_verification(request["verification"], open_session))


def _verification(request: Mapping[str, Any] | None, open_session: Callable[[], InferenceSession]) -> dict[str, Any]:
    if request is None:
        return {}
    if "reference" not in request:
        return not_verified(request["reason"])
    try:
        with open_session() as session:
            reference = Reference.read(Path(request["reference"]))
            return verified(session, reference, VerifyOptions.from_json(request["options"]))
    except NNPipeError as error:  # the measurement stands, whatever this says
        return not_verified(error)


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
