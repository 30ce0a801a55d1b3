"""Measuring a candidate in a subprocess.

The framework that trained and compiled the model (half a gigabyte, with its
threads) is not in the measured process, whose memory is that of the runtime, the
model and the samples.  If a runtime crashes, only one candidate is lost, not
the command.

Requests and errors are sent as JSON; the result is an ordinary result file.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from nnpipe.core.arguments import list_arguments
from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import CompileError, NNPipeError, RemoteProtocolError, TransportError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.model import ModelWrapper
from nnpipe.measuring.benchmark import benchmark
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.quality_warnings import check_quality
from nnpipe.measuring.run import Run
from nnpipe.workflows.candidates.model_files import (
    compute_model_size,
    get_built_bytes,
    remove_model,
)
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.explanation.profile_apart import profile_apart
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.isolation.worker_template import POSSIBLE, WorkerTemplate
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.verification.claims import get_declared_claims
from nnpipe.workflows.verification.compare_outputs import (
    Reference,
    VerifyOptions,
    build_unverified_verdict,
    verify_outputs,
)

C = TypeVar("C", bound=Component)
log = logging.getLogger("nnpipe")

# What a measurement on a device imports when it is first needed, and optional packages that it
# looks for.
_NEEDED = (
    "nnpipe.protocols.client.session",
    "nnpipe.measuring.diagnosis",
    "nnpipe.measuring.run_figures",
    "numpy.random",
    "numpy.ma",
    "tqdm",
    "threadpoolctl",
    "pynvml",
    "multiprocessing.synchronize",
    "encodings.idna",
)


def get_default_title(wrapper: ModelWrapper, model_path: Path) -> str:
    """Return the default title of a candidate: its class, or the file's name if the class opens
    any file.
    """
    takes_any = any(declared.name == "model_path" for declared in list_arguments(type(wrapper)))
    return model_path.name if takes_any else type(wrapper).__name__


@dataclass(frozen=True)
class Verification:
    """The source's outputs to compare a compiled model with (a file, or why there is none), and
    the options.
    """

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
    worker: Worker | None = None,
) -> Run:
    """Measure a candidate on the test split in a new subprocess, and compare a compiled one with
    its source.

    Parameters
    ----------
    candidate, dataset, options, command
        The candidate, the data set, the options, and the command line for the result file.
    output
        The result file.  It is written after the measurement, and again with the verdict of the
        comparison and with the times of the layers.
    verification
        The source's outputs; None for no comparison.
    seconds
        The greatest time in seconds for measuring, and for comparing; 0 for no limit.
    load
        The arrival of queries, if not one after another, and whether to audit.
    worker
        The subprocess of :func:`create_device_worker` to use, which may have measured others; by
        default a new one.  With it, a connection that is lost while the outputs are compared is an
        error.

    Raises
    ------
    CompileError
        If the runtime refuses the compiled model, which is then removed.
    NNPipeError
        If measuring fails, or its process crashes or exceeds the time limit.
    """
    try:
        measured = _measure_candidate(
            candidate, dataset, options, command, output, verification, seconds, load, worker
        )
    except CompileError:
        if candidate.artifact is not None:
            remove_model(candidate.artifact.path)
        raise
    if options.profile:
        measured = replace(
            measured, profile=profile_apart(replace(candidate, dataset=dataset), options, seconds)
        )
        measured.write(output)
    _tell(measured)
    return measured


def create_device_worker(template: WorkerTemplate | None = None) -> Worker:
    """Return a subprocess that measures candidates of one device, one after the other.

    What it has loaded does not matter, since models run on the device; and starting it may take
    longer than measuring. With a template of :func:`create_worker_template`, many of them start at
    once."""
    return Worker(f"{__name__}:run_measure_request", template=template)


def create_worker_template(modules: Sequence[str] = ()) -> WorkerTemplate | None:
    """Return what forks the subprocesses of many devices; ``None`` where the system cannot.

    ``modules`` are those of the components that they use.
    """
    if not POSSIBLE:
        return None
    return WorkerTemplate(
        f"{__name__}:run_measure_request",
        [*_NEEDED, *modules],
        "nnpipe.measuring.host:get_framework_versions",
    )


def _measure_candidate(
    candidate: CandidateSpec,
    dataset: Dataset,
    options: MeasureOptions,
    command: Sequence[str],
    output: Path,
    verification: Verification | None,
    seconds: float,
    load: LoadOptions | None,
    worker: Worker | None,
) -> Run:
    of_device = worker is not None
    with contextlib.ExitStack() as stack:
        spec = stack.enter_context(replace(candidate, dataset=dataset).start_server())
        request = {
            "do": "measure",
            "candidate": spec.to_json(),
            "command": list(command),
            "options": options.to_json(),
            "load": (load or LoadOptions()).to_json(),
            "result": str(output),
        }
        if worker is None:
            worker = stack.enter_context(Worker(f"{__name__}:run_measure_request", shown=True))
        worker.attempt(f"measuring {candidate.title}", request, seconds)
        run = Run.read(output)
        if verification is None or candidate.artifact is None:
            return run
        run = replace(
            run, verification=_run_verification(worker, request, verification, seconds, of_device)
        )
    run.write(output)
    return run


def _run_verification(
    worker: Worker,
    request: Mapping[str, Any],
    verification: Verification,
    seconds: float,
    of_device: bool,
) -> Mapping[str, Any]:
    if isinstance(verification.reference, str):
        return build_unverified_verdict(verification.reference)
    more = {
        "do": "verify",
        "reference": str(verification.reference),
        "verify_options": verification.options.to_json(),
    }
    try:
        verdict: dict[str, Any] = worker.attempt("verifying it", {**request, **more}, seconds)
    except NNPipeError as error:  # the measurement is valid in any case
        if of_device and isinstance(error, (TransportError, RemoteProtocolError)):
            raise
        return build_unverified_verdict(error)
    return verdict


@contextmanager
def record_source_outputs(
    source: ModelProcess, options: VerifyOptions, seconds: float = 0.0
) -> Iterator[Verification | None]:
    """Run the source once, for all candidates made from it; yield ``None`` if no samples are
    requested.
    """
    if not options.verify_samples:
        yield None
        return
    with create_temporary_folder() as folder:
        path: Path | str = folder / "reference.npz"
        try:
            source.run(options.verify_samples, Path(path), seconds)
        except NNPipeError as error:  # compiled models can still be measured
            path = str(error)
        yield Verification(path, options)


def _tell(run: Run) -> None:
    told = {"agreement with the source": run.verification} if run.verification else {}
    told |= {f"audit of {name}": audit for name, audit in run.audits.items()}
    for what, found in told.items():
        level = (
            logging.WARNING
            if found["verdict"] in ("different", "failed", "unknown")
            else logging.INFO
        )
        log.log(level, "%s: %s (%s)", what, found["verdict"], found["reason"])
    if (reason := run.profile.get("reason")) is not None:
        log.warning("%s: its layers were not timed: %s", run.title, reason)
    if (reason := run.timing.get("energy", {}).get("reason")) is not None:
        log.warning("%s: its energy was not measured: %s", run.title, reason)
    for doubt in check_quality(run):
        if doubt.kind != "different":  # which has been told
            log.warning("%s: %s", run.title, doubt.reason)
    if run.preparation.get("source") == "description":
        log.info("%s: samples are prepared as %s says", run.title, run.preparation["by"])
    search = run.timing.get("load", {}).get("search")
    if search:
        log.info("%s", search["reason"])


# -- in the subprocess -----------------------------------------------------------------------------


def run_measure_request(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Carry out a request of :func:`measure_apart`, in this process."""
    if request["do"] == "verify":  # in the same process, after measuring
        return verify_here(request)
    measure_here(request).write(request["result"])
    return None


def measure_here(request: Mapping[str, Any]) -> Run:
    """Return the measurement of a request's candidate, in this process."""
    spec = CandidateSpec.from_json(request["candidate"]).fit_wrapper()
    assert spec.dataset is not None
    parts: dict[str, Any] = {"compilers": spec.compilers}
    if spec.runtime is not None:
        parts["runtime"] = spec.runtime
    if spec.deployment is not None:
        parts["protocol"] = spec.deployment.protocol
    model, artifact = spec.wrapper.open(), spec.find_artifact()
    run = benchmark(
        lambda: spec.open(model),
        dataset=spec.dataset,
        indices=spec.dataset.split("test"),
        wrapper=spec.wrapper,
        model=model if spec.runs_itself else None,
        title=spec.title,
        command=request["command"],
        components=parts,
        artifact=artifact,
        preparation=spec.preparation(),
        options=MeasureOptions.from_json(request["options"]),
        load=LoadOptions.from_json(request["load"]),
        progress=show_progress,
    )
    return (
        run
        if artifact is None
        else replace(run, artifact={**run.artifact, **_size_entries(run, artifact)})
    )


def _size_entries(run: Run, artifact: Artifact) -> dict[str, Any]:
    """Return the bytes that the model takes, and of what they are unless they are those of its
    files.
    """
    stats = run.timing.get("session") or {}
    entries: dict[str, Any] = {"size": compute_model_size(artifact, stats)}
    return (
        entries
        if get_built_bytes(stats) is None
        else {**entries, "size_of": "code and constants, as built"}
    )


def verify_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the comparison of a request's compiled model with its source, in this process."""
    spec = CandidateSpec.from_json(request["candidate"])
    assert spec.artifact is not None
    reference = Reference.read(Path(request["reference"]))
    with spec.open() as session:
        options = VerifyOptions.from_json(request["verify_options"])
        claims = reference.with_own_numbers(get_declared_claims(spec.artifact) or ())
        return verify_outputs(session, reference, options, claims=claims)
