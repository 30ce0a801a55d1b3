"""Comparing a model with its source, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.analysis.agreement import Agreement, Tolerances
from nnpipe.analysis.weight_changes import Weighing
from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim, checked
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.progress import Progress
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.modelwrappers.files.file_formats import format_of
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import prepared
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.progress import bar
from nnpipe.workflows.user_inputs.data import Arrays, inputs_of
from nnpipe.workflows.user_inputs.inputs import given, opened_by, working_folder
from nnpipe.workflows.verification.first_difference import Divergence, judged
from nnpipe.workflows.verification.subprocess_tasks import TASKS
from nnpipe.workflows.verification.verify_result import VerifyResult


def verify(
    source: Any,
    artifact: Any,
    *,
    data: Any,
    samples: int = 64,
    source_runtime: str | Runtime | None = None,
    runtime: str | Runtime | None = None,
    match: Mapping[str, str] | None = None,
    artifact_axes: Sequence[int] = (),
    claims: Sequence[Claim] = (),
    tolerances: Tolerances | None = None,
    preparation: Mapping[str, Any] | None = None,
    time_limit: float = 3600.0,
    progress: Progress = bar,
) -> VerifyResult:
    """Compare the outputs of two models that should compute the same, on real samples.

    Each model runs in a subprocess.  If both give access to their weights and
    intermediate values, these are compared, too, to find the place of a fault.

    Parameters
    ----------
    source
        The path of a model file (``.onnx``, ``.tflite``, ``.keras``, ``.h5``, ``.pt2``), an ``nn.Module`` of PyTorch,
        a model of Keras, a :class:`~nnpipe.core.live_model.LiveModel`, or ``(wrapper, path)``.
    artifact
        The model to compare with it: the path of a model file, an :class:`~nnpipe.core.artifact.Artifact`, an
        ``nn.Module``, or a Keras model.
    data
        Samples, without labels or with them: an array or tensor, a dict of them by input, ``(inputs, labels)``, a
        PyTorch ``DataLoader``, a ``tf.data.Dataset``; or a :class:`~nnpipe.core.dataset.Dataset`, whose test split is
        used.
    samples
        Number of samples to compare, drawn with a fixed seed.
    source_runtime, runtime
        The runtimes of the source and of the artifact, or their names; by default the source's framework, and a runtime
        for the artifact's format.
    match
        Names of the artifact's tensors by those of the source's; required if names differ and there are
        several tensors.
    artifact_axes
        The order of the source's axes in the artifact's inputs: ``(0, 2, 3, 1)`` if only the artifact has
        channels last.
    claims
        The claims of the conversion; by default those of the description beside the artifact, or else those that follow
        from its numbers.
    tolerances
        The tolerances for the verdicts ``same`` and ``close``.
    preparation
        The preprocessing that the source expects, as options of its wrapper: ``{"scale": 255}``.
    time_limit
        The greatest time of each step in seconds, after which its process is ended; 0 for no limit.
    progress
        Shows the progress of reading the data.

    Returns
    -------
    VerifyResult
        The comparison; ``verdict`` and ``agrees()`` summarise it and ``show()`` prints it.

    Raises
    ------
    ArtifactError
        If a file is missing or damaged, or its format is not known.
    ConfigError
        If the two models and the data do not fit together; the message proposes an argument.
    NNPipeError
        If one of the models cannot be run.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from nnpipe.testing.model_files import write_onnx_classifier
    >>> labels = np.arange(60) % 4
    >>> inputs = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = write_onnx_classifier(Path(folder, "model.onnx"), inputs, labels)
    ...     found = verify(model, model, data=inputs, runtime="ONNXRuntime")
    >>> found.verdict, found.agrees("same")
    ('same', True)
    """
    check_call(verify, locals())
    check_range("verify: samples", samples, 1)
    check_range("verify: time_limit", time_limit, 0)
    for axis in artifact_axes:
        check_range("verify: artifact_axes", axis, 0)
    told = checked(claims) if claims else ()
    made, source_made = _made(runtime), _made(source_runtime)
    bounds = tolerances or Tolerances()
    with working_folder() as folder:
        taken = data if isinstance(data, Dataset) else inputs_of(data, progress)
        other = _file(artifact, folder / "artifact", None if isinstance(taken, Dataset) else taken)
        if isinstance(source, (str, Path)):
            _check_there(Path(source))
        ready = given(source, taken, folder, preparation=preparation, calibration_samples=0)
        (wrapper, path), dataset = ready.models[0], ready.dataset
        _check_there(path)
        assert dataset is not None
        prepared(dataset)
        reference = folder / "reference.npz"
        with ModelProcess(wrapper, dataset, path, judged=False) as running:
            running.run(samples, reference, time_limit, source_made)
        task = {
            "reference": str(reference), "artifact": str(other), "source": str(path),
            "runtime": None if made is None else made.describe(), "claims": list(told),
            "pairs": dict(match or {}), "axes": list(artifact_axes), "tolerances": bounds.to_json(),
        }  # fmt: skip
        found = _compared(task, time_limit)
        candidate = CandidateSpec(path.name, wrapper, path, dataset=dataset, judged=False)
        divergence, weights = _inside(task, candidate, found, time_limit)
    found |= judged(
        found,
        None if isinstance(divergence, str) else divergence,
        None if isinstance(weights, str) else weights,
    )
    return VerifyResult(
        source=path, source_run_by=type(source_made or wrapper).__name__, artifact=other, run_by=found["run_by"],
        data=type(dataset).__name__, verdict=found["verdict"], reason=found["reason"],
        claims=checked(found["claims"]), claims_by=found["claims_by"], agreement=Agreement.from_json(found),
        tolerances=bounds, worst_sample=found["worst_sample"], divergence=divergence, weights=weights,
    )  # fmt: skip


def _made(runtime: str | Runtime | None) -> Runtime | None:
    made = find(runtime, Runtime)() if isinstance(runtime, str) else runtime
    if made is not None:
        made.check_installed()
    return made


def _file(artifact: Any, folder: Path, samples: Arrays | None) -> Path:
    """Return the file to compare with the source, checked before anything slow begins."""
    if isinstance(artifact, ModelWrapper):
        raise ConfigError("verify: artifact takes a file or a model of a framework; export the wrapper's model first")
    if isinstance(artifact, Artifact):
        path = artifact.path
    elif isinstance(artifact, (str, Path)):
        path = Path(artifact)
    else:
        path = opened_by(artifact, folder, samples)[0][1]
    _check_there(path)
    format_of(path)
    return path


def _check_there(path: Path) -> None:
    if not path.exists():
        raise ArtifactError(f"{path}: no such model file")


def _compared(task: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Run the artifact on the same samples in a subprocess, and return the comparison."""
    artifact = str(task["artifact"])
    try:
        with Worker(f"{TASKS}:run_artifact") as worker:
            found: dict[str, Any] = worker.attempt(f"running {artifact}", task, seconds)
    except NNPipeError as error:
        if artifact in str(error):
            raise
        raise type(error)(f"{artifact}: {error}") from None
    return found


def _inside(
    task: Mapping[str, Any], candidate: CandidateSpec, found: Mapping[str, Any], seconds: float
) -> tuple[Divergence | str, Weighing | str]:
    """Return the comparison by operations and by weights, or the reasons why there is none."""
    request = {
        **{key: task[key] for key in ("reference", "artifact", "source")},
        "told": task["claims"], "candidate": candidate.to_json(), "binding": found["binding"],
        "sample": found["worst_sample"], "claims": found["claims"],
    }  # fmt: skip
    try:
        with Worker(f"{TASKS}:look_inside") as worker:
            inside = worker.attempt("showing them", request, seconds)
    except NNPipeError as error:  # the verdict is valid without it
        return str(error), str(error)
    where, weights = inside["divergence"], inside["weights"]
    return (
        where if isinstance(where, str) else Divergence.from_json(where),
        weights if isinstance(weights, str) else Weighing.from_json(weights),
    )
