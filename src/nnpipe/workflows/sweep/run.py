"""Carrying out a sweep: train, compile and measure everything that has not been done yet."""

from __future__ import annotations

import contextlib
import logging
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.artifact import Artifact
from nnpipe.core.closing import Closing
from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.core.files import sha256_of
from nnpipe.measuring.run import Run
from nnpipe.workflows.candidates.measure import Verification, measure_apart, source_outputs
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import suffix, train_once
from nnpipe.workflows.journal import Journal, Outcome, digest_of, said
from nnpipe.workflows.pipeline.file import file_name
from nnpipe.workflows.sweep.file import Model, Point, Sweep
from nnpipe.workflows.verification.compare_outputs import VerifyOptions
from nnpipe.workflows.workers.machine_turns import MachineTurns, turn

log = logging.getLogger("nnpipe")


@dataclass(frozen=True)
class Done:
    """A point with its outcome, and the name of its files.

    Parameters
    ----------
    point, key, outcome, artifact
        The point, the name of its result, the result, and the compiled model.
    share
        The share of a full measurement that the outcome is of.
    stopped
        The reason why it was not measured in full; empty if it was, or failed.
    reference
        The model as trained, on the same samples; ``None`` if it is among the points.
    """

    point: Point
    key: str
    outcome: Outcome
    artifact: Path | None
    share: float = 1.0
    stopped: str = ""
    reference: Run | None = None


def sweep_through(
    sweep: Sweep, command: Sequence[str], *, retrain: bool, retry: bool, only_known: bool = False
) -> tuple[Done, ...]:
    """Carry out every point that has not been done yet, and return all points in the order of the file.

    Models are processed one by one, and the points of each in a random order from the
    seed, so that drift does not favour a compiler or a runtime.
    """
    by_model: dict[str, list[Point]] = defaultdict(list)
    for point in sweep.points:
        by_model[point.model.title].append(point)
    done: dict[str, Done] = {}
    with PointMeasurer(sweep, command, retrain=retrain, retry=retry, only_known=only_known) as measurer:
        for points in by_model.values():
            found = [known for point in points if (known := measurer.known(point, sweep.verify)) is not None]
            if found:
                log.info("%s: %d of %d points are done already", points[0].model.title, len(found), len(points))
            done |= {each.point.title: each for each in found}
            waiting = [point for point in points if point.title not in done]
            random.Random(f"{sweep.seed} {points[0].model.title}").shuffle(waiting)
            for point in waiting:
                log.info("\n[%d/%d] %s", len(done) + 1, len(sweep.points), point.title)
                done[point.title] = measurer.done(point, sweep.verify)
    return tuple(done[point.title] for point in sweep.points)


def not_measured(done: Done) -> Outcome:
    """Raise an error: a second measurement is missing that was made elsewhere."""
    raise ConfigError(f"{done.point.title}: what was measured again on another machine did not come from there")


class PointMeasurer(Closing):
    """Trains, compiles and measures the points of a sweep, each at most once; used in a ``with`` block.

    The processes of one model are open at a time, so points of one model should follow each other.

    Parameters
    ----------
    sweep, command
        The sweep, and the command line for the result files.
    retrain, retry
        Whether to train even if the same training has been done, and to try failed points again.
    turns
        When this process may compile and measure, if others work on this machine, too.
    only_known
        Whether everything has been done, so that an error is raised where a point has not.

    Raises
    ------
    ConfigError
        If the weights of a model are missing.
    """

    def __init__(
        self, sweep: Sweep, command: Sequence[str], *, retrain: bool, retry: bool, turns: MachineTurns | None = None,
        only_known: bool = False,
    ) -> None:  # fmt: skip
        for model in sweep.models:
            if model.training is None and not model.makes_weights and not model.path.is_file():
                raise ConfigError(
                    f"{model.title}: {model.path}: no such file; name the file of its weights as path, or say under "
                    "training how it is trained"
                )
        self._sweep, self._command, self._retrain, self._retry = sweep, command, retrain, retry
        self._turns, self._only_known = turns, only_known
        self._journal = Journal(sweep.output / "results")
        self._weights: dict[str, str] = {}
        self._done: dict[str, Done] = {}
        self._opened = ""
        self._stack = ExitStack()
        self._source: ModelProcess | None = None
        self._verification: tuple[Verification | None] | None = None

    @property
    def points(self) -> tuple[Point, ...]:
        """The points of the sweep."""
        return self._sweep.points

    def known(self, point: Point, verify: VerifyOptions) -> Done | None:
        """Return a point that has been done; ``None`` if it has not, or failed and is to be tried again."""
        key = self.key(point, verify)
        if key not in self._done:
            outcome = self._journal.read(key)
            if outcome is None:
                return None
            if outcome.run is None and self._retry:
                self._journal.forget_failure(key)
                return None
            self._done[key] = Done(point, key, outcome, self.artifact_path(point))
        return self._done[key]

    def done(self, point: Point, verify: VerifyOptions) -> Done:
        """Carry out a point unless that has been done, and return it."""
        if (known := self.known(point, verify)) is not None:
            return known
        if self._only_known:
            raise ConfigError(f"{point.title}: what was measured on another machine did not come from there")
        key = self.key(point, verify)
        outcome = self._carried_out(point, verify, self._journal.working_path(key))
        self._journal.write(key, point.title, outcome)
        self._done[key] = Done(point, key, outcome, self.artifact_path(point))
        return self._done[key]

    def add(self, point: Point, verify: VerifyOptions, outcome: Outcome) -> None:
        """Record the outcome of a point that was carried out elsewhere."""
        self._journal.write(self.key(point, verify), point.title, outcome)

    def measured_again(self, point: Point) -> Outcome:
        """Measure a point once more, whether it has been done or not; nothing is recorded."""
        path = self.artifact_path(point)
        with turn(self._turns):
            artifact = self._compiled(point, path)
        with turn(self._turns, alone=True):
            return measured(self._sweep, point, artifact, self._sweep.output / ".again.json", self._command)

    def close(self) -> None:
        """End the processes."""
        self._stack.close()
        self._opened, self._source, self._verification = "", None, None

    def key(self, point: Point, verify: VerifyOptions) -> str:
        """Return the name of a point's result; its model is trained if needed."""
        return point.key(self._weights_of(point.model), self._sweep.dataset, self._sweep.calibration_samples, verify)

    def _weights_of(self, model: Model) -> str:
        """Return the SHA-256 of a model's weights; train the model if needed."""
        if model.title not in self._weights:
            record = self._sweep.output / "trained" / f"{file_name(model.title)}.training.json"
            train_once(
                model.wrapper, self._sweep.dataset, model.training, model.path, record=record,
                makes=model.makes_weights, retrain=self._retrain,
            )  # fmt: skip
            self._weights[model.title] = sha256_of(model.path)
        return self._weights[model.title]

    def artifact_path(self, point: Point) -> Path | None:
        """Return the path of a point's compiled model; ``None`` if nothing is compiled."""
        if point.way is None:
            return None
        sweep = self._sweep
        name = digest_of(point.made_from(self._weights_of(point.model), sweep.dataset, sweep.calibration_samples))
        return sweep.output / "models" / (name + suffix(point.way, point.compilers))

    def _carried_out(self, point: Point, verify: VerifyOptions, output: Path) -> Outcome:
        path = self.artifact_path(point)
        verification = None
        with turn(self._turns):
            if verify.verify_samples and point.way is not None:
                verification = self._compared_with(self._open(point.model), verify)
            try:
                artifact = self._compiled(point, path)
            except NNPipeError as error:
                log.error("%s failed: %s", point.title, error)
                return Outcome(None, said(error))
        with turn(self._turns, alone=True):
            return measured(self._sweep, point, artifact, output, self._command, verification)

    def _compiled(self, point: Point, path: Path | None) -> Artifact | None:
        with contextlib.suppress(ArtifactError):  # of another point or an earlier stage
            return None if path is None else Artifact.read(path)
        return compiled(self._sweep, point, self._open(point.model), path)

    def _open(self, model: Model) -> ModelProcess:
        if self._source is None or self._opened != model.title:
            self.close()
            self._source = self._stack.enter_context(ModelProcess(model.wrapper, self._sweep.dataset, model.path))
            self._opened = model.title
        return self._source

    def _compared_with(self, source: ModelProcess, verify: VerifyOptions) -> Verification | None:
        """Return the outputs of the source, which runs once for all points of a model."""
        if not verify.verify_samples:
            return None
        if self._verification is None:
            outputs = source_outputs(source, verify, self._sweep.time_limit)
            self._verification = (self._stack.enter_context(outputs),)
        return self._verification[0]


def measured(
    sweep: Sweep, point: Point, artifact: Artifact | None, output: Path, command: Sequence[str],
    verification: Verification | None = None,
) -> Outcome:  # fmt: skip
    """Measure a compiled point; ``output`` is the path of its unfinished result."""
    candidate = CandidateSpec(
        point.title, point.model.wrapper, point.model.path, point.compilers, point.runtime, artifact, point.deployment
    )
    try:
        run = measure_apart(candidate, sweep.dataset, point.measure, command, output, verification, sweep.time_limit)
    except NNPipeError as error:
        log.error("%s failed: %s", point.title, error)
        return Outcome(None, said(error))
    finally:
        output.unlink(missing_ok=True)
    return Outcome(run)


def compiled(sweep: Sweep, point: Point, source: ModelProcess, path: Path | None) -> Artifact | None:
    """Return the compiled model; a file at ``path`` from another point or an earlier attempt is reused."""
    if path is None or point.way is None:
        return None
    try:
        return Artifact.read(path)
    except ArtifactError:
        return source.compile(point.way, point.compilers, path, sweep.calibration_samples, sweep.time_limit)
