"""Measuring every combination of models, compilers, runtimes and batch sizes, and choosing one,
in one call.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.core.files import check_writable, write_text
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.report.inputs.candidate import create_candidates
from nnpipe.report.render import report_on
from nnpipe.report.result_files import read_report_subject
from nnpipe.workflows.candidates.stages import prepare_dataset
from nnpipe.workflows.journal import Outcome, lock_folder
from nnpipe.workflows.pipeline.entries import build_from_settings
from nnpipe.workflows.reporting import write_document
from nnpipe.workflows.sweep.across_devices import DeviceSweep
from nnpipe.workflows.sweep.budget import BudgetUse
from nnpipe.workflows.sweep.confirm import Confirmation, remeasure_winner
from nnpipe.workflows.sweep.distribute import SweepWorkers
from nnpipe.workflows.sweep.estimates import test_samples
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.race import SuccessiveHalving
from nnpipe.workflows.sweep.run import FinishedPoint, PointMeasurer, raise_not_measured, run_points
from nnpipe.workflows.sweep.select import (
    EvaluatedPoint,
    evaluate_points,
    find_ties,
    rank_candidates,
)
from nnpipe.workflows.sweep.summary import build_certificate, build_summary, find_cheapest
from nnpipe.workflows.sweep.sweep_result import SweepResult, get_certificate_path
from nnpipe.workflows.workers.worker_options import WorkerOptions

log = logging.getLogger("nnpipe")


def read_sweep(settings: str | Path | Mapping[str, Any], changes: Sequence[str] = ()) -> Sweep:
    """Return the sweep of a file, or of its content, with some settings changed.

    Parameters
    ----------
    settings
        The path of a YAML or JSON file, or its content.
    changes
        Settings to change, such as ``"batch_sizes=[1]"``.

    Returns
    -------
    Sweep
        Its ``points`` are the combinations to measure; ``impossible`` has the reasons why others
        are not possible.

    Raises
    ------
    NNPipeError
        If a setting is wrong; the message names the place, and the file if there is one.

    Examples
    --------
    >>> planned = read_sweep("sweep.yaml", ["batch_sizes=[1, 8]"])
    >>> len(planned.points), planned.impossible
    (2, {})
    """
    check_call(read_sweep, locals())
    return build_from_settings(settings, changes, Sweep.from_settings)


def sweep(
    settings: str | Path | Mapping[str, Any],
    changes: Sequence[str] = (),
    *,
    retrain: bool = False,
    retry_failed: bool = False,
    command: Sequence[str] = (),
    workers: WorkerOptions | None = None,
    database: RunDatabase | None = None,
) -> SweepResult:
    """Measure every combination of models, compilers, runtimes and batch sizes, and choose one.

    The chosen candidate is measured again before it is certified.  Call it again to
    resume a sweep that was interrupted in any way.

    Parameters
    ----------
    settings
        The path of a YAML or JSON file, or its content: what to combine, constraints, and the
        metric to choose by.
    changes
        Settings to change, such as ``"batch_sizes=[1]"``.
    retrain
        Whether to train even if the same training has been done.
    retry_failed
        Whether to try failed combinations again.
    command
        The command line, for the result files.
    workers
        Where processes that train and measure are started; by default this one does it.
    database
        The run database through which workers learn what is to be done; needed for them.

    Returns
    -------
    SweepResult
        The candidates and the chosen one; results, Pareto front, report and certificate are in the
        folder ``output`` of the settings.  ``show()`` prints them.

    Raises
    ------
    ConfigError
        If the settings are wrong (the message names the place), or no combination could be
        measured.
    NNPipeError
        If the data cannot be used, or a training fails.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from nnpipe.datasets.arrays import write_arrays
    >>> from nnpipe.testing.model_files import write_onnx_classifier
    >>> labels = np.arange(120) % 4
    >>> samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (120, 6)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = write_onnx_classifier(Path(folder, "model.onnx"), samples, labels)
    ...     found = sweep({
    ...         "output": f"{folder}/out",
    ...         "dataset": write_arrays(Path(folder, "data"), {"image": samples}, labels),
    ...         "models": [{
    ...             "title": "m", "class": "ONNXModel", "arguments": {"model_path": model, "scale": 1},
    ...         }],
    ...         "runtimes": ["ONNXRuntime"],
    ...         "as_trained": False,
    ...         "batch_sizes": [1, 8],
    ...         "constraints": ["size <= 1 MB"],
    ...         "choose": "latency_median",
    ...     })
    >>> found.chosen in [each.title for each in found.judged], len(found.judged), found.failures
    (True, 2, {})
    """
    check_call(sweep, locals())
    wanted = read_sweep(settings, changes)
    prepare_dataset(wanted.dataset)
    if workers is None:
        return run_sweep(wanted, command, retrain=retrain, retry_failed=retry_failed)
    if database is None:
        raise ConfigError("workers: they learn from a run database what is to be done; give one")
    content = build_from_settings(settings, changes, dict)

    def create_workers(final: Sweep) -> SweepWorkers:
        return SweepWorkers(
            final, content, command, database, workers, retrain=retrain, retry=retry_failed
        )

    return run_sweep(
        wanted, command, retrain=retrain, retry_failed=retry_failed, distributed=create_workers
    )


def run_sweep(
    wanted: Sweep,
    command: Sequence[str] = (),
    *,
    retrain: bool = False,
    retry_failed: bool = False,
    first: int = 1,
    only_known: bool = False,
    distributed: Callable[[Sweep], SweepWorkers] | None = None,
) -> SweepResult:
    """Carry out a sweep whose data are prepared, and return its result; see :func:`sweep`.

    Parameters
    ----------
    wanted
        The sweep.
    command, retrain, retry_failed
        As for :func:`sweep`.
    first
        With a budget: the stage in which every point is measured at first.
    only_known
        Whether everything has been measured, on another machine, so that nothing may be measured
        here.
    distributed
        Returns the workers that measure the points elsewhere; by default they are measured here.
    """
    wanted = wanted.with_task(wanted.dataset.task)
    check_writable(wanted.output, folder=True)
    if wanted.targets.devices:
        if distributed is not None or only_known:
            raise ConfigError(
                "targets: devices are measured from this machine; leave out workers and other "
                "places"
            )
        return _on_devices(wanted, command, retrain=retrain, retry=retry_failed)
    with lock_folder(wanted.output), ExitStack() as stack:
        spent: BudgetUse | None = None
        measure_again: Callable[[FinishedPoint], Outcome] | None = (
            raise_not_measured if only_known else None
        )
        if distributed is not None:
            many = stack.enter_context(distributed(wanted))
            done, measure_again = many.run_points(), many.measure_again
        elif wanted.budget is None:
            done = run_points(
                wanted, command, retrain=retrain, retry=retry_failed, only_known=only_known
            )
        else:
            with PointMeasurer(
                wanted, command, retrain=retrain, retry=retry_failed, only_known=only_known
            ) as measurer:
                race = SuccessiveHalving(wanted, measurer.run_point, first)
                done, spent = race.run(), race.spent
        judged = evaluate_points(wanted, done)
        _check_measured(done, judged)
        found = remeasure_winner(
            wanted,
            rank_candidates(wanted, judged),
            command,
            retry=retry_failed,
            again=measure_again,
        )
        _write(wanted, done, judged, found, spent)
        report = _report(wanted, wanted.output / "report.rst")
    return SweepResult(wanted, tuple(done), tuple(judged), found, report, spent)


def _on_devices(
    wanted: Sweep, command: Sequence[str], *, retrain: bool, retry: bool
) -> SweepResult:
    """Carry out a sweep with targets: each device is judged by itself, and the cheapest that
    will do is chosen.
    """
    with lock_folder(wanted.output):
        with DeviceSweep(wanted, command, retrain=retrain, retry=retry) as devices:
            found = devices.results()
        done = tuple({each.point.title: each for one in found for each in one.done}.values())
        judged = tuple({each.title: each for one in found for each in one.judged}.values())
        _check_measured(done, judged)
        best, _ = find_cheapest(found)
        refuted = {
            title: reason for one in found for title, reason in one.confirmed.refuted.items()
        }
        chosen = replace(
            Confirmation(None, None, ()) if best is None else best.confirmed, refuted=refuted
        )
        for one in found:
            _write_certificate(
                one.sweep,
                one.judged,
                one.confirmed,
                one.spent,
                get_certificate_path(wanted, one.device),
            )
        part = wanted if best is None else best.sweep
        spent = None if best is None else best.spent
        _write_certificate(
            part,
            judged if best is None else best.judged,
            chosen,
            spent,
            wanted.output / "certificate.json",
        )
        _dump(
            wanted.output / "sweep.json", build_summary(wanted, done, judged, chosen, spent, found)
        )
        report = _report(wanted, wanted.output / "report.rst")
    return SweepResult(wanted, done, judged, chosen, report, spent, found)


def _check_measured(done: Sequence[FinishedPoint], judged: Sequence[EvaluatedPoint]) -> None:
    """Raise :class:`ConfigError` if nothing could be measured."""
    if not judged:
        reasons = "; ".join(f"{each.point.title}: {each.outcome.reason}" for each in done[:3])
        raise ConfigError(f"not one of {len(done)} points could be measured: {reasons}")


def _write(
    sweep: Sweep,
    done: Sequence[FinishedPoint],
    judged: Sequence[EvaluatedPoint],
    found: Confirmation,
    spent: BudgetUse | None,
) -> None:
    _write_certificate(sweep, judged, found, spent, sweep.output / "certificate.json")
    _dump(sweep.output / "sweep.json", build_summary(sweep, done, judged, found, spent))


def _write_certificate(
    sweep: Sweep,
    judged: Sequence[EvaluatedPoint],
    found: Confirmation,
    spent: BudgetUse | None,
    place: Path,
) -> None:
    """Write the certificate of the chosen candidate, or remove that of an earlier one."""
    if found.chosen is None:
        place.unlink(missing_ok=True)
        return
    level = find_ties(sweep, found.chosen, judged)
    _dump(place, build_certificate(sweep, found.chosen, found, level, test_samples(sweep), spent))


def _report(sweep: Sweep, output: Path) -> Path | None:
    """Write the report from the files in the folder and return its path; ``None`` if it cannot
    be written.
    """
    found = read_report_subject([sweep.output / "sweep.json"])
    candidates = create_candidates(found.runs, found.sources)
    try:
        write_document(
            report_on(candidates, sweep.title, before=found.sections, measured=found.measured),
            candidates,
            output,
        )
    except MissingDependency as error:
        log.warning("no report: %s", error)
        return None
    return output


def _dump(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
