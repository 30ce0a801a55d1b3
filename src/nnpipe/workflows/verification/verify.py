"""Comparing a model with its source, in one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nnpipe.analysis.agreement import Agreement, Tolerances, Verdict
from nnpipe.analysis.classification import wilson_interval
from nnpipe.analysis.weight_changes import WeightComparison
from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.artifact import Artifact, Claim, normalize_claims
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.core.foreign_text import show_text
from nnpipe.core.messages import format_one_line
from nnpipe.core.model import ModelWrapper
from nnpipe.core.progress import Progress
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.modelwrappers.files.file_formats import format_of
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import prepare_dataset
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.user_inputs.data import Arrays, convert_inputs
from nnpipe.workflows.user_inputs.inputs import create_working_folder, import_inputs, import_model
from nnpipe.workflows.verification.first_difference import Divergence, update_verdict
from nnpipe.workflows.verification.subprocess_tasks import TASKS

_RANK: dict[Verdict, int] = {"same": 2, "close": 1, "changed on purpose": 1, "different": 0}


@dataclass(frozen=True)
class VerifyResult:
    """How much a model differs from its source.

    Parameters
    ----------
    source, artifact
        The files that were compared.
    source_run_by, run_by
        The runtimes or frameworks that ran them.
    data
        The class of the data set.
    verdict, reason
        Whether the two agree, and why.
    claims, claims_by
        The claims of the conversion, and their origin.
    agreement
        The errors of each output.
    tolerances
        The tolerances for the verdicts ``same`` and ``close``.
    worst_sample
        The index of the sample with the largest relative error.
    divergence
        The comparison by operations, or why there is none.
    weights
        The comparison by weights, or why there is none.

    Examples
    --------
    Of the example of :func:`nnpipe.verify`:


    >>> found.agrees("close"), found.agreement.samples
    (True, 60)
    """

    source: Path
    source_run_by: str
    artifact: Path
    run_by: str
    data: str
    verdict: Verdict
    reason: str
    claims: tuple[Claim, ...]
    claims_by: str
    agreement: Agreement
    tolerances: Tolerances
    worst_sample: int
    divergence: Divergence | str
    weights: WeightComparison | str

    def agrees(self, at_least: Literal["same", "close"] = "close") -> bool:
        """Return whether the verdict is at least this good; "changed on purpose" counts as "close".

        Raises
        ------
        ConfigError
            If ``at_least`` is neither.
        """
        check_call(VerifyResult.agrees, {"at_least": at_least})
        return _RANK[self.verdict] >= _RANK[at_least]

    def show(self) -> None:
        """Print the errors of each output, the suspected operations and weights, and the
        verdict.
        """
        show_text(str(self))

    def __str__(self) -> str:
        """Return the errors of each output, the suspected operations and weights, and the
        verdict as text.
        """
        return "\n".join(
            [*self._describe_comparison(), *_format_table(self.agreement), *self._describe_inside()]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON can hold it."""
        inside = {"divergence": self.divergence, "weights": self.weights}
        return {
            **self.agreement.to_json(self.tolerances, self.claims),
            "verdict": self.verdict,
            "reason": self.reason,
            "worst_sample": self.worst_sample,
            "claims_by": self.claims_by,
            "artifact": str(self.artifact),
            "run_by": self.run_by,
            **{
                key: found if isinstance(found, str) else found.to_json()
                for key, found in inside.items()
            },
        }

    def _describe_comparison(self) -> Iterator[str]:
        yield f"source:   {self.source} ({self.source_run_by})"
        yield f"artifact: {self.artifact} ({self.run_by})"
        yield f"claims:   {', '.join(self.claims)} ({self.claims_by})"
        yield f"compared: {self.agreement.samples} test samples of {self.data}\n"

    def _describe_inside(self) -> Iterator[str]:
        same, samples = self.agreement.same_class, self.agreement.samples
        if same is not None:
            low, high = wilson_interval(same, samples)
            yield (
                f"same class: {same} of {samples} samples (95 % interval {100 * low:.1f} to "
                f"{100 * high:.1f} %)"
            )
        where, weights = self.divergence, self.weights
        if isinstance(where, str):
            yield f"no intermediate values to compare: {where}"
        elif where.adopted or self.verdict in ("same", "close", "different"):
            yield str(where)
        if weights != where:
            yield (
                str(weights)
                if isinstance(weights, WeightComparison)
                else f"no weights to compare: {weights}"
            )
        yield f"verdict: {self.verdict} ({self.reason})"


def _format_table(agreement: Agreement) -> Iterator[str]:
    width = max(6, *(len(format_one_line(tensor.name)) for tensor in agreement.tensors))
    heads = ("mean", "max", "50 %", "90 %", "99 %")
    yield f"{'output':<{width}}  {'error':<8}" + "".join(f"{head:>11}" for head in heads)
    for tensor in agreement.tensors:
        for kind in ("absolute", "relative"):
            figures = [getattr(tensor, f"mean_{kind}"), getattr(tensor, f"max_{kind}")]
            figures += getattr(tensor, f"{kind}_quantiles").values()
            name = format_one_line(tensor.name) if kind == "absolute" else ""
            yield f"{name:<{width}}  {kind:<8}" + "".join(f"{figure:>11.3g}" for figure in figures)
    yield "(quantiles are of each sample's largest error)\n"


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
    progress: Progress = show_progress,
) -> VerifyResult:
    """Compare the outputs of two models that should compute the same, on real samples.

    Each model runs in a subprocess.  If both give access to their weights and
    intermediate values, these are compared, too, to find the place of a fault.

    Parameters
    ----------
    source
        The path of a model file (``.onnx``, ``.tflite``, ``.keras``, ``.h5``, ``.pt2``), an
        ``nn.Module`` of PyTorch, a model of Keras, a :class:`~nnpipe.core.live_model.LiveModel`, or
        ``(wrapper, path)``.
    artifact
        The model to compare with it: the path of a model file, an
        :class:`~nnpipe.core.artifact.Artifact`, an ``nn.Module``, or a Keras model.
    data
        Samples, without labels or with them: an array or tensor, a dict of them by input,
        ``(inputs, labels)``, a PyTorch ``DataLoader``, a ``tf.data.Dataset``; or a
        :class:`~nnpipe.core.dataset.Dataset`, whose test split is used.
    samples
        Number of samples to compare, drawn with a fixed seed.
    source_runtime, runtime
        The runtimes of the source and of the artifact, or their names; by default the source's
        framework, and a runtime for the artifact's format.
    match
        Names of the artifact's tensors by those of the source's; required if names differ and there
        are several tensors.
    artifact_axes
        The order of the source's axes in the artifact's inputs: ``(0, 2, 3, 1)`` if only the
        artifact has channels last.
    claims
        The claims of the conversion; by default those of the description beside the artifact, or
        else those that follow from its numbers.
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
    told = normalize_claims(claims) if claims else ()
    made, source_made = _create_runtime(runtime), _create_runtime(source_runtime)
    bounds = tolerances or Tolerances()
    with create_working_folder() as folder:
        taken = data if isinstance(data, Dataset) else convert_inputs(data, progress)
        other = _check_file(
            artifact, folder / "artifact", None if isinstance(taken, Dataset) else taken
        )
        if isinstance(source, (str, Path)):
            _check_there(Path(source))
        ready = import_inputs(source, taken, folder, preparation=preparation, calibration_samples=0)
        (wrapper, path), dataset = ready.models[0], ready.dataset
        _check_there(path)
        assert dataset is not None
        prepare_dataset(dataset)
        reference = folder / "reference.npz"
        with ModelProcess(wrapper, dataset, path, judged=False) as running:
            running.run(samples, reference, time_limit, source_made)
        task = {
            "reference": str(reference),
            "artifact": str(other),
            "source": str(path),
            "runtime": None if made is None else made.describe(),
            "claims": list(told),
            "pairs": dict(match or {}),
            "axes": list(artifact_axes),
            "tolerances": bounds.to_json(),
        }
        found = _run_comparison(task, time_limit)
        candidate = CandidateSpec(path.name, wrapper, path, dataset=dataset, judged=False)
        divergence, weights = _compare_inside(task, candidate, found, time_limit)
    found |= update_verdict(
        found,
        None if isinstance(divergence, str) else divergence,
        None if isinstance(weights, str) else weights,
    )
    return VerifyResult(
        source=path,
        source_run_by=type(source_made or wrapper).__name__,
        artifact=other,
        run_by=found["run_by"],
        data=type(dataset).__name__,
        verdict=found["verdict"],
        reason=found["reason"],
        claims=normalize_claims(found["claims"]),
        claims_by=found["claims_by"],
        agreement=Agreement.from_json(found),
        tolerances=bounds,
        worst_sample=found["worst_sample"],
        divergence=divergence,
        weights=weights,
    )


def _create_runtime(runtime: str | Runtime | None) -> Runtime | None:
    made = find(runtime, Runtime)() if isinstance(runtime, str) else runtime
    if made is not None:
        made.check_installed()
    return made


def _check_file(artifact: Any, folder: Path, samples: Arrays | None) -> Path:
    """Return the file to compare with the source, checked before anything slow begins."""
    if isinstance(artifact, ModelWrapper):
        raise ConfigError(
            "verify: artifact takes a file or a model of a framework; export the wrapper's model "
            "first"
        )
    if isinstance(artifact, Artifact):
        path = artifact.path
    elif isinstance(artifact, (str, Path)):
        path = Path(artifact)
    else:
        path = import_model(artifact, folder, samples)[0][1]
    _check_there(path)
    format_of(path)
    return path


def _check_there(path: Path) -> None:
    if not path.exists():
        raise ArtifactError(f"{path}: no such model file")


def _run_comparison(task: Mapping[str, Any], seconds: float) -> dict[str, Any]:
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


def _compare_inside(
    task: Mapping[str, Any], candidate: CandidateSpec, found: Mapping[str, Any], seconds: float
) -> tuple[Divergence | str, WeightComparison | str]:
    """Return the comparison by operations and by weights, or the reasons why there is none."""
    request = {
        **{key: task[key] for key in ("reference", "artifact", "source")},
        "told": task["claims"],
        "candidate": candidate.to_json(),
        "binding": found["binding"],
        "sample": found["worst_sample"],
        "claims": found["claims"],
    }
    try:
        with Worker(f"{TASKS}:look_inside") as worker:
            inside = worker.attempt("showing them", request, seconds)
    except NNPipeError as error:  # the verdict is valid without it
        return str(error), str(error)
    where, weights = inside["divergence"], inside["weights"]
    return (
        where if isinstance(where, str) else Divergence.from_json(where),
        weights if isinstance(weights, str) else WeightComparison.from_json(weights),
    )
