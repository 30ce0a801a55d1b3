"""Comparing several uncompiled models, or the candidates of a pipeline file, in one call each."""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import check_apart, check_writable
from nnpipe.core.progress import Progress
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.measuring.result_json import is_result
from nnpipe.workflows.candidates.measure import Verification
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import prepare_dataset
from nnpipe.workflows.comparison.contest import Contest, Entry, on_targets, run_comparison
from nnpipe.workflows.comparison.result import ComparisonResult
from nnpipe.workflows.devices.device import Fleet
from nnpipe.workflows.pipeline.compile import (
    compile_candidate,
    get_file_stem,
    get_time_limit,
    read_pipeline,
    start_verification,
    train_model,
)
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.user_inputs.data import convert_to_arrays
from nnpipe.workflows.user_inputs.inputs import create_working_folder, import_inputs, import_model

log = logging.getLogger("nnpipe")


def compare_models(
    models: Sequence[Any],
    *,
    data: Any,
    titles: Sequence[str] | None = None,
    preparation: Mapping[str, Any] | None = None,
    plan: ComparisonPlan | None = None,
    options: MeasureOptions | None = None,
    class_names: Sequence[str] = (),
    time_limit: float = 3600.0,
    output: str | Path | None = None,
    title: str = "",
    command: Sequence[str] = (),
    progress: Progress = show_progress,
    targets: Fleet | None = None,
) -> ComparisonResult:
    """Measure several uncompiled models side by side, each in its own framework, or on devices.

    Parameters
    ----------
    models
        Two or more models: paths of model files, PyTorch modules, Keras models, wrappers, or
        ``(wrapper, path)``.  The same model twice shows the smallest difference that can be found.
    data
        ``(inputs, labels)`` as arrays or tensors, an iterable of such pairs in batches, or a
        :class:`~nnpipe.core.dataset.Dataset`, whose test split is used.
    titles
        The models' titles; by default the names of their files.
    preparation
        The preprocessing that all models expect, as options of their wrappers: ``{"scale": 255}``.
    plan
        Confidence, precision, greatest duration and order of the measurements.
    options
        Batch size, number of samples, and warm-up.
    class_names
        Names of the classes in order of their number.
    time_limit
        The greatest time of each step in seconds, after which its process is ended; 0 for no limit.
    output
        The result file to write; None for none.
    title
        The title of the comparison.
    command
        The command line, for the result file.
    progress
        Shows the progress.
    targets
        The devices whose servers run the model files, all at the same time; on this machine, a
        model still runs in its own framework.

    Returns
    -------
    ComparisonResult
        The measured models, with quality relative to the first one; ``show()`` prints them.

    Raises
    ------
    ConfigError
        If models and data do not fit together, or fewer than two models can be measured.
    NNPipeError
        If a model cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from nnpipe.core.progress import silent
    >>> from nnpipe.testing.model_files import write_onnx_classifier
    >>> labels = np.arange(60) % 4
    >>> samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = write_onnx_classifier(Path(folder, "model.onnx"), samples, labels)
    ...     plan = ComparisonPlan(max_seconds=1)
    ...     found = compare_models([model, model], data=(samples, labels), plan=plan, progress=silent)
    >>> found.titles, found.accuracy("model.onnx")
    (('model.onnx', 'model.onnx (2)'), 1.0)
    """
    check_call(compare_models, locals())
    if len(models) < (2 if targets is None else 1):
        raise ConfigError(
            "a comparison needs two models or more; give the same one twice to see what chance does"
        )
    if titles is not None and (len(titles) != len(models) or len(set(titles)) != len(titles)):
        raise ConfigError(f"titles should be {len(models)} different ones, one for each model")
    with ExitStack() as stack:
        place = stack.enter_context(create_working_folder())
        samples = (
            None if isinstance(data, Dataset) or data is None else convert_to_arrays(data, progress)
        )
        taken = import_inputs(
            models[0],
            data if samples is None else samples,
            place / "0",
            preparation=preparation,
            calibration_samples=0,
            class_names=class_names,
            progress=progress,
        )
        if taken.dataset is None:
            raise ConfigError("data is missing: samples with their classes, or a data set")
        found = [taken.models[0]]
        found += [
            import_model(each, place / str(n), samples, preparation)[0]
            for n, each in enumerate(models[1:], 1)
        ]
        if output is not None:
            check_apart(output, [path for _, path in found])
        for wrapper, _ in found:
            wrapper.check_installed()
        prepare_dataset(taken.dataset)
        called = list(
            titles
            or create_titles(
                [
                    _get_model_title(each, path)
                    for each, (_, path) in zip(models, found, strict=True)
                ]
            )
        )
        measure = dataclasses.replace(options or MeasureOptions(), measure_seconds=0.0)
        candidates: list[tuple[CandidateSpec, Verification | None]] = [
            (CandidateSpec(name, *opened), None) for name, opened in zip(called, found, strict=True)
        ]
        contest = _build_contest(
            candidates, taken.dataset, measure, time_limit, {}, targets, files=True
        )
        result = _run_contest(contest, plan, output, title, command, progress)
        # a temporary folder is removed together with the result
        weakref.finalize(result, stack.pop_all().close)
    return result


def compare_pipeline(
    settings: str | Path | Mapping[str, Any],
    changes: Sequence[str] = (),
    *,
    plan: ComparisonPlan | None = None,
    retrain: bool = False,
    output: str | Path | None = None,
    title: str = "",
    command: Sequence[str] = (),
    progress: Progress = show_progress,
    targets: Fleet | None = None,
) -> ComparisonResult:
    """Train and compile the models of a pipeline file, then measure its candidates side by side.

    Parameters
    ----------
    settings
        The path of a YAML or JSON file, or its content.
    changes
        Settings to change, such as ``"model.training.num_epochs=3"``.
    plan
        Confidence, precision, greatest duration and order of the measurements.
    retrain
        Whether to train even if the same training has been done.
    output
        The result file; by default ``comparison.json`` in the pipeline's folder.
    title
        The title of the comparison.
    command
        The command line, for the result file.
    progress
        Shows the progress.
    targets
        The devices on which candidates with a runtime are run, each candidate on each device.

    Returns
    -------
    ComparisonResult
        The measured candidates, with quality relative to the first model in its own framework;
        ``show()`` prints them.

    Raises
    ------
    ConfigError
        If the settings are wrong (the message names the place), or fewer than two candidates can be
        measured.
    NNPipeError
        If the data cannot be used, or a training fails.

    Examples
    --------
    Two ways to run one model, each in a process of its own:

    >>> from nnpipe.measuring.paired_comparison import ComparisonPlan
    >>> result = compare_pipeline("digits.yaml", ["measure.measure_samples=20"], plan=ComparisonPlan(max_seconds=1))
    >>> result.titles
    ('as it is', 'again')
    """
    check_call(compare_pipeline, locals())
    if not isinstance(settings, Mapping):
        _refuse_results([str(settings), *changes])
    pipeline = read_pipeline(settings, changes)
    check_writable(pipeline.output, folder=True)
    if pipeline.count < 2 and targets is None:
        place = "" if isinstance(settings, Mapping) else f"{settings}: "
        raise ConfigError(f"{place}a comparison needs two candidates or more")
    prepare_dataset(pipeline.dataset)
    candidates: list[tuple[CandidateSpec, Verification | None]] = []
    failures: dict[str, str] = {}
    limits = []
    with ExitStack() as stack:
        for model in pipeline.models:
            train_model(pipeline, model, retrain)
            source = stack.enter_context(ModelProcess(model.wrapper, pipeline.dataset, model.path))
            verification = stack.enter_context(start_verification(pipeline, model, source))
            for each in model.candidates:
                stem = get_file_stem(pipeline, each, len(candidates) + len(failures) + 1)
                try:
                    made = compile_candidate(pipeline, model, each, source, stem)
                except NNPipeError as error:
                    log.error("%s failed: %s", each.title, error)
                    failures[each.title] = str(error)
                    continue
                candidates.append((made, verification))
                limits.append(get_time_limit(pipeline, each))
            source.close()  # frees threads and memory of the training framework before others run
        measure = dataclasses.replace(pipeline.measure, measure_seconds=0.0)
        # If one step has no limit, the whole has none.
        limit = 0.0 if 0.0 in limits else max(limits, default=0.0)
        contest = _build_contest(candidates, pipeline.dataset, measure, limit, failures, targets)
        return _run_contest(
            contest, plan, output or pipeline.output / "comparison.json", title, command, progress
        )


def _build_contest(
    candidates: Sequence[Entry],
    dataset: Dataset,
    measure: MeasureOptions,
    limit: float,
    failures: Mapping[str, str],
    targets: Fleet | None,
    *,
    files: bool = False,
) -> Contest:
    found = on_targets(candidates, targets, files=files)
    leases = "" if targets is None else targets.leases
    return Contest(
        found.candidates,
        dataset,
        measure,
        limit,
        {**failures, **found.impossible},
        found.devices,
        leases,
    )


def _run_contest(
    contest: Contest,
    plan: ComparisonPlan | None,
    output: str | Path | None,
    title: str,
    command: Sequence[str],
    progress: Progress,
) -> ComparisonResult:
    found, interrupted = run_comparison(
        contest, plan or ComparisonPlan(), title=title, command=command, progress=progress
    )
    if output is not None:
        found.write(output)
    specs = [spec for spec, _ in contest.candidates]
    files = {spec.title: spec.artifact.path if spec.artifact else spec.model_path for spec in specs}
    measured = [run.title for run in found.whole or found.runs]
    reference = next(
        (spec.title for spec in specs if spec.runtime is None and spec.title in measured),
        measured[0],
    )
    return ComparisonResult(
        found, files, reference, interrupted, None if output is None else Path(output)
    )


def _refuse_results(names: Sequence[str]) -> None:
    """Raise :class:`ConfigError` if result files are given: this command measures models."""
    files = [
        name for name in names if Path(name).suffix.lower() == ".json" and Path(name).is_file()
    ]
    if files and all(is_result(Path(name)) for name in files):
        raise ConfigError(
            f"{files[0]} is the result of a measurement, and this command measures: to see results "
            f"beside each other, nnpipe render_report {' '.join(files)} TITLE OUT.html; to judge "
            f"two, nnpipe gate"
        )


def _get_model_title(model: Any, path: Path) -> str:
    return str(path) if isinstance(model, (str, Path, tuple)) else type(model).__name__


def create_titles(files: Sequence[str]) -> list[str]:
    """Return a title for each file: its name, or its path if names are equal, with a number if
    it is repeated.
    """
    names = [Path(file).name for file in files]
    short = [
        file if len({f for f, n in zip(files, names, strict=True) if n == name}) > 1 else name
        for file, name in zip(files, names, strict=True)
    ]
    return [
        f"{title} ({short[:place].count(title) + 1})" if title in short[:place] else title
        for place, title in enumerate(short)
    ]
