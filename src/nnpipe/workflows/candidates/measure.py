"""Measuring a candidate in a process of its own.

Whatever trained and compiled the model (a framework of half a gigabyte, its
threads) is not in the process that is measured: its memory is that of the
runtime, the model and the samples.  And a runtime that brings its process down
costs one candidate, not the command.

The request and an error travel as JSON; the result is an ordinary result file.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from nnpipe.core.arguments import arguments_of
from nnpipe.core.artifact import Artifact, sidecar_of
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.deployment import RemoteOptions
from nnpipe.core.errors import ArtifactError, NNPipeError
from nnpipe.core.meaning import Preparation, differing
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtimeprotocol import RuntimeProtocol
from nnpipe.core.session import InferenceSession
from nnpipe.measure.benchmark import MeasureOptions, benchmark
from nnpipe.measure.load_options import LoadOptions
from nnpipe.measure.quality import quality_doubts
from nnpipe.measure.run import Run
from nnpipe.workflows.candidates.deployment import Deployment, deployed
from nnpipe.workflows.candidates.source import Source
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.progress import bar
from nnpipe.workflows.verification.claims import declared_claims
from nnpipe.workflows.verification.compare_outputs import Reference, VerifyOptions, not_verified, verified

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


def title_of(wrapper: ModelWrapper, model_path: Path) -> str:
    """Call a candidate that nobody has called: by its class, or by the file's name where the class takes any file."""
    takes_any = any(declared.name == "model_path" for declared in arguments_of(type(wrapper)))
    return model_path.name if takes_any else type(wrapper).__name__


@dataclass(frozen=True)
class Verification:
    """What the compiled model is held against, in a file or as the reason why there is nothing, and how."""

    reference: Path | str
    options: VerifyOptions


def measure_apart(
    candidate: Candidate,
    dataset: Dataset,
    options: MeasureOptions,
    command: Sequence[str],
    output: Path,
    verification: Verification | None = None,
    seconds: float = 0.0,
    load: LoadOptions | None = None,
) -> Run:
    """Measure a candidate on the test split, in a fresh process, and hold a compiled one against its source.

    Parameters
    ----------
    candidate, dataset, options, command
        What to measure, on what, how, and for whom.
    output
        The result file, written as soon as there is a measurement and again with the verdict.
    verification
        What a compiled model is held against, if it is.
    seconds
        How long measuring may take, and how long verifying; 0 for no limit.
    load
        How queries come, if not one after another, and whether to audit.

    Raises
    ------
    NNPipeError
        What the measuring raised, or that its process died or did not end in time.
    """
    what = f"measuring {candidate.title}"
    with contextlib.ExitStack() as stack:
        deployment, protocol = candidate.deployment, None
        if deployment is not None and candidate.runtime is not None:
            protocol = stack.enter_context(deployed(deployment, candidate.runtime))
        request = {
            "do": "measure",
            **request_for(candidate, dataset, protocol),
            "command": list(command),
            "options": options.to_json(),
            "load": (load or LoadOptions()).to_json(),
            "result": str(output),
        }
        worker = stack.enter_context(Worker(f"{__name__}:carry_out", shown=True))
        worker.attempt(what, request, seconds)
        run = Run.read(output)
        if verification is None or candidate.artifact is None:
            _tell(run)
            return run
        run = replace(run, verification=_verification(worker, request, verification, seconds))
    run.write(output)
    _tell(run)
    return run


def request_for(candidate: Candidate, dataset: Dataset, protocol: RuntimeProtocol | None) -> dict[str, Any]:
    """Say in JSON which candidate another process is to open; ``protocol`` leads to the target, if it runs on one."""
    return {
        "title": candidate.title,
        "dataset": dataset.describe(),
        "wrapper": candidate.wrapper.describe(),
        "compilers": [compiler.describe() for compiler in candidate.compilers],
        "runtime": candidate.runtime.describe() if candidate.runtime else None,
        "model_path": str(candidate.model_path),
        "artifact": str(candidate.artifact.path) if candidate.artifact else None,
        "protocol": protocol.describe() if protocol else None,
        "remote": candidate.deployment.remote.to_json() if candidate.deployment else None,
    }


def _verification(
    worker: Worker, request: Mapping[str, Any], verification: Verification, seconds: float
) -> Mapping[str, Any]:
    if isinstance(verification.reference, str):
        return not_verified(verification.reference)
    more = {"do": "verify", "reference": str(verification.reference), "verify_options": verification.options.to_json()}
    try:
        verdict: dict[str, Any] = worker.attempt("verifying it", {**request, **more}, seconds)
    except NNPipeError as error:  # the measurement stands, whatever this says
        return not_verified(error)
    return verdict


@contextmanager
def source_outputs(source: Source, options: VerifyOptions, seconds: float = 0.0) -> Iterator[Verification | None]:
    """Run the source once for all that is made of it; ``None`` if no samples are wanted."""
    if not options.verify_samples:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="nnpipe-") as folder:
        path: Path | str = Path(folder, "reference.npz")
        try:
            source.run(options.verify_samples, Path(path), seconds)
        except NNPipeError as error:  # what is compiled can be measured all the same
            path = str(error)
        yield Verification(path, options)


def _tell(run: Run) -> None:
    told = {"agreement with the source": run.verification} if run.verification else {}
    told |= {f"audit of {name}": audit for name, audit in run.audits.items()}
    for what, found in told.items():
        level = logging.WARNING if found["verdict"] in ("different", "failed", "unknown") else logging.INFO
        log.log(level, "%s: %s (%s)", what, found["verdict"], found["reason"])
    for doubt in quality_doubts(run):
        log.warning("%s: %s", run.title, doubt.reason)
    if run.preparation.get("source") == "description":
        log.info("%s: samples are prepared as %s says", run.title, run.preparation["by"])
    search = run.timing.get("load", {}).get("search")
    if search:
        log.info("%s", search["reason"])


# -- in the other process -----------------------------------------------------------------------------


def carry_out(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Do what :func:`measure_apart` asks for, in this process."""
    if request["do"] == "verify":  # in the process that measured, but afterwards
        return verify_here(request)
    measure_here(request).write(request["result"])
    return None


@dataclass(frozen=True)
class Opening:
    """A candidate in the process that is to run it: what is known before it is loaded, and how to load it."""

    dataset: Dataset
    wrapper: ModelWrapper
    artifact: Artifact | None
    open: Callable[[], InferenceSession]
    preparation: Preparation


def opening(request: Mapping[str, Any]) -> Opening:
    """Make ready in this process what :func:`request_for` describes."""
    dataset = _component(request["dataset"], Dataset)
    dataset.prepare()
    wrapper = _component(request["wrapper"], ModelWrapper)
    model_path = Path(request["model_path"])
    compiled = _compiled(request)
    if compiled is not None:
        wrapper = wrapper.knowing(compiled.exported.io).for_dataset(dataset.spec)
        preparation = _against_weights(wrapper.preparation(), model_path)
        return Opening(dataset, wrapper, compiled, lambda: _opened(request, compiled), preparation)
    wrapper = wrapper.for_dataset(dataset.spec)

    def in_its_own_framework() -> InferenceSession:
        wrapper.load(model_path)
        return wrapper.session()

    artifact = Artifact.read(model_path) if sidecar_of(model_path).is_file() else None
    return Opening(
        dataset, wrapper, artifact, in_its_own_framework, _against_weights(wrapper.preparation(), model_path)
    )


def _against_weights(preparation: Preparation, model_path: Path) -> Preparation:
    """Return where a wrapper prepares samples otherwise than the one that the weights were saved by."""
    if preparation.source != "wrapper" or preparation.meaning is None or not sidecar_of(model_path).is_file():
        return preparation
    said = Artifact.read(model_path, check=False).meaning
    return preparation if said is None else replace(preparation, overridden=differing(said, preparation.meaning))


def measure_here(request: Mapping[str, Any]) -> Run:
    """Measure what a request names, in this process."""
    parts: dict[str, Any] = {"compilers": tuple(_component(item, ModelCompiler) for item in request["compilers"])}
    for role, base in (("runtime", Runtime), ("protocol", RuntimeProtocol)):
        if request[role] is not None:
            parts[role] = _component(request[role], base)
    found = opening(request)
    return benchmark(
        found.open,
        dataset=found.dataset,
        indices=found.dataset.split("test"),
        wrapper=found.wrapper,
        title=request["title"],
        command=request["command"],
        components=parts,
        artifact=found.artifact,
        preparation=found.preparation,
        options=MeasureOptions.from_json(request["options"]),
        load=LoadOptions.from_json(request["load"]),
        progress=bar,
    )


def verify_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """Hold the compiled model that a request names against its source, in this process."""
    artifact = _compiled(request)
    assert artifact is not None
    reference = Reference.read(Path(request["reference"]))
    with _opened(request, artifact) as session:
        options = VerifyOptions.from_json(request["verify_options"])
        return verified(session, reference, options, claims=declared_claims(artifact) or ("float",))


def _compiled(request: Mapping[str, Any]) -> Artifact | None:
    return None if request["artifact"] is None else Artifact.read(request["artifact"])


def _opened(request: Mapping[str, Any], artifact: Artifact) -> InferenceSession:
    """Load a compiled model, here or on the target."""
    if request["protocol"] is not None:
        from nnpipe.protocols.client.session import open_session

        protocol = _component(request["protocol"], RuntimeProtocol)
        return open_session(protocol, artifact, RemoteOptions.from_json(request["remote"]))
    try:
        return _component(request["runtime"], Runtime).load(artifact)
    except ArtifactError as error:
        if request["model_path"] in str(error):
            raise
        # The file that the user gave is named, too.
        raise ArtifactError(f"{error} (it was made from {request['model_path']})") from None


def _component(data: Mapping[str, Any], base: type[C]) -> C:
    return find(data["class"], base).from_json(data["arguments"])
