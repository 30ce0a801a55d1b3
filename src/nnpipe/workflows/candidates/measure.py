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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from nnpipe.core.arguments import arguments_of
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import NNPipeError
from nnpipe.core.model import ModelWrapper
from nnpipe.measuring.benchmark import benchmark
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.quality_doubts import quality_doubts
from nnpipe.measuring.run import Run
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.progress import bar
from nnpipe.workflows.verification.claims import declared_claims
from nnpipe.workflows.verification.compare_outputs import Reference, VerifyOptions, not_verified, verified

C = TypeVar("C", bound=Component)
log = logging.getLogger("nnpipe")


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
    candidate: CandidateSpec,
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
        spec = stack.enter_context(replace(candidate, dataset=dataset).served())
        request = {
            "do": "measure",
            "candidate": spec.to_json(),
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
def source_outputs(source: ModelProcess, options: VerifyOptions, seconds: float = 0.0) -> Iterator[Verification | None]:
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


def measure_here(request: Mapping[str, Any]) -> Run:
    """Measure what a request names, in this process."""
    spec = CandidateSpec.from_json(request["candidate"]).fitted()
    assert spec.dataset is not None
    parts: dict[str, Any] = {"compilers": spec.compilers}
    if spec.runtime is not None:
        parts["runtime"] = spec.runtime
    if spec.deployment is not None:
        parts["protocol"] = spec.deployment.protocol
    model = spec.wrapper.open()
    return benchmark(
        lambda: spec.open(model),
        dataset=spec.dataset,
        indices=spec.dataset.split("test"),
        wrapper=spec.wrapper,
        model=model if spec.runs_itself else None,
        title=spec.title,
        command=request["command"],
        components=parts,
        artifact=spec.known_artifact(),
        preparation=spec.preparation(),
        options=MeasureOptions.from_json(request["options"]),
        load=LoadOptions.from_json(request["load"]),
        progress=bar,
    )


def verify_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """Hold the compiled model that a request names against its source, in this process."""
    spec = CandidateSpec.from_json(request["candidate"])
    assert spec.artifact is not None
    reference = Reference.read(Path(request["reference"]))
    with spec.open() as session:
        options = VerifyOptions.from_json(request["verify_options"])
        return verified(session, reference, options, claims=declared_claims(spec.artifact) or ("float",))
