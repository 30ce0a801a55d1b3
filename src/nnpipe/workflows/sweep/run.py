"""Carrying out a sweep: train, compile and measure everything that has not been done yet."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.core.files import sha256_of
from nnpipe.workflows.candidates.measure import Verification, measure_apart, source_outputs
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import suffix, train_once
from nnpipe.workflows.journal import Journal, Outcome, digest_of, said
from nnpipe.workflows.pipeline.file import file_name
from nnpipe.workflows.sweep.file import Model, Point, Sweep

log = logging.getLogger("nnpipe")


@dataclass(frozen=True)
class Done:
    """A point with its outcome, and the name of its files."""

    point: Point
    key: str
    outcome: Outcome
    artifact: Path | None


def sweep_through(sweep: Sweep, command: Sequence[str], *, retrain: bool, retry: bool) -> tuple[Done, ...]:
    """Carry out every point that has not been done yet, and return all points in the order of the file.

    Models are processed one by one, and the points of each in a random order from the
    seed, so that drift does not favour a compiler or a runtime.
    """
    for model in sweep.models:
        if model.training is None and not model.makes_weights and not model.path.is_file():
            raise ConfigError(
                f"{model.title}: {model.path}: no such file; name the file of its weights as path, or say under "
                "training how it is trained"
            )
    by_model: dict[str, list[Point]] = defaultdict(list)
    for point in sweep.points:
        by_model[point.model.title].append(point)
    done: dict[str, Done] = {}
    for model in sweep.models:
        if by_model[model.title]:
            found = _all_of(sweep, model, by_model[model.title], command, len(done), retrain, retry)
            done |= {each.point.title: each for each in found}
    return tuple(done[point.title] for point in sweep.points)


def _all_of(
    sweep: Sweep, model: Model, points: Sequence[Point], command: Sequence[str], before: int, retrain: bool, retry: bool
) -> list[Done]:
    record = sweep.output / "trained" / f"{file_name(model.title)}.training.json"
    train_once(
        model.wrapper, sweep.dataset, model.training, model.path, record=record, makes=model.makes_weights,
        retrain=retrain,
    )  # fmt: skip
    journal, weights = Journal(sweep.output / "results"), sha256_of(model.path)
    keys = {p.title: p.key(weights, sweep.dataset, sweep.calibration_samples, sweep.verify) for p in points}
    known = {point.title: _known(journal, keys[point.title], retry) for point in points}
    found = {title: outcome for title, outcome in known.items() if outcome is not None}
    waiting = [point for point in points if point.title not in found]
    random.Random(f"{sweep.seed} {model.title}").shuffle(waiting)
    if found:
        log.info("%s: %d of %d points are done already", model.title, len(found), len(points))
    with ExitStack() as stack:
        source = stack.enter_context(ModelProcess(model.wrapper, sweep.dataset, model.path))
        verification = None
        if any(point.way is not None for point in waiting):
            verification = stack.enter_context(source_outputs(source, sweep.verify, sweep.time_limit))
        for number, point in enumerate(waiting, before + len(found) + 1):
            log.info("\n[%d/%d] %s", number, len(sweep.points), point.title)
            outcome = _carried_out(
                sweep, point, source, weights, journal.working_path(keys[point.title]), command, verification
            )
            journal.write(keys[point.title], point.title, outcome)
            found[point.title] = outcome
    return [Done(p, keys[p.title], found[p.title], _artifact_path(sweep, p, weights)) for p in points]


def measured(
    sweep: Sweep, point: Point, artifact: Artifact | None, output: Path, command: Sequence[str],
    verification: Verification | None = None,
) -> Outcome:  # fmt: skip
    """Measure a compiled point; ``output`` is the path of its unfinished result."""
    candidate = CandidateSpec(
        point.title, point.model.wrapper, point.model.path, point.compilers, point.runtime, artifact
    )
    try:
        run = measure_apart(candidate, sweep.dataset, point.measure, command, output, verification, sweep.time_limit)
    except NNPipeError as error:
        log.error("%s failed: %s", point.title, error)
        return Outcome(None, said(error))
    finally:
        output.unlink(missing_ok=True)
    return Outcome(run)


def _known(journal: Journal, key: str, retry: bool) -> Outcome | None:
    outcome = journal.read(key)
    if outcome is not None and outcome.run is None and retry:
        journal.forget_failure(key)
        return None
    return outcome


def _carried_out(
    sweep: Sweep, point: Point, source: ModelProcess, weights: str, output: Path, command: Sequence[str],
    verification: Verification | None,
) -> Outcome:  # fmt: skip
    try:
        artifact = compiled(sweep, point, source, _artifact_path(sweep, point, weights))
    except NNPipeError as error:
        log.error("%s failed: %s", point.title, error)
        return Outcome(None, said(error))
    return measured(sweep, point, artifact, output, command, verification)


def compiled(sweep: Sweep, point: Point, source: ModelProcess, path: Path | None) -> Artifact | None:
    """Return the compiled model; a file at ``path`` from another point or an earlier attempt is reused."""
    if path is None or point.way is None:
        return None
    try:
        return Artifact.read(path)
    except ArtifactError:
        return source.compile(point.way, point.compilers, path, sweep.calibration_samples, sweep.time_limit)


def _artifact_path(sweep: Sweep, point: Point, weights: str) -> Path | None:
    if point.way is None:
        return None
    name = digest_of(point.made_from(weights, sweep.dataset, sweep.calibration_samples))
    return sweep.output / "models" / (name + suffix(point.way, point.compilers))
