"""Carrying out the points of a sweep: train, compile and measure what has not been done yet."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.artifact import Artifact
from nnpipe.core.closing import Closing
from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.core.files import compute_sha256
from nnpipe.measuring.run import Run
from nnpipe.workflows.candidates.measure import Verification, measure_apart, record_source_outputs
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import get_file_suffix, train_once
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.journal import Journal, Outcome, compute_digest, get_error_message
from nnpipe.workflows.pipeline.file import make_file_name
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Model, Point
from nnpipe.workflows.verification.compare_outputs import VerifyOptions
from nnpipe.workflows.workers.machine_turns import MachineTurns, acquire_turn

log = logging.getLogger("nnpipe")

MeasurePoint = Callable[
    [Sweep, Point, Artifact | None, Path, Sequence[str], Verification | None], Outcome
]
"""Measures a compiled point: with the path of its unfinished result, the command, and what to
compare it with.
"""


@dataclass(frozen=True)
class FinishedPoint:
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


class PointMeasurer(Closing):
    """Trains, compiles and measures the points of a sweep, each at most once; used in a ``with``
    block.

    The processes of one model are open at a time, so points of one model should follow each other.

    Parameters
    ----------
    sweep, command
        The sweep, and the command line for the result files.
    retrain, retry
        Whether to train even if the same training has been done, and to try failed points again.
    turns
        When this process may compile and measure here, if others work on this machine, too.  What
        is compiled already, and what is measured on another device, waits for nobody.
    measure
        Measures a compiled point, by default :func:`measure_point`.  If it raises an error, nothing
        is recorded.
    shared
        Whether several threads use it, each for a device of its own: it keeps what belongs to a
        model until :meth:`release`, and compiles one model at a time.
    only_known
        Whether everything has been done, so that an error is raised where a point has not.

    Raises
    ------
    ConfigError
        If the weights of a model are missing.
    """

    def __init__(
        self,
        sweep: Sweep,
        command: Sequence[str],
        *,
        retrain: bool,
        retry: bool,
        turns: MachineTurns | None = None,
        only_known: bool = False,
        measure: MeasurePoint | None = None,
        shared: bool = False,
    ) -> None:
        for model in sweep.models:
            if model.training is None and not model.makes_weights and not model.path.is_file():
                raise ConfigError(
                    f"{model.title}: {model.path}: no such file; name the file of its weights as "
                    f"path, or say under "
                    "training how it is trained"
                )
        self._sweep, self._command, self._retrain, self._retry = sweep, command, retrain, retry
        self._turns, self._only_known = turns, only_known
        self._measure, self._shared = measure or measure_point, shared
        self._journal = Journal(sweep.output / "results")
        self._weights: dict[str, str] = {}
        self._done: dict[str, FinishedPoint] = {}
        self._opened = ""
        self._source: ModelProcess | None = None
        self._outputs: dict[str, tuple[ExitStack, Verification | None]] = {}
        self._compiling = threading.Lock()
        self._closed = False

    @property
    def points(self) -> tuple[Point, ...]:
        """The points of the sweep."""
        return self._sweep.points

    def train(self) -> None:
        """Train the models of all points, if needed."""
        for model in {point.model.title: point.model for point in self.points}.values():
            self._get_weights_hash(model)

    def find_finished(self, point: Point, verify: VerifyOptions) -> FinishedPoint | None:
        """Return a point that has been done; ``None`` if it has not, or failed and is to be
        tried again.
        """
        key = self.key(point, verify)
        if key not in self._done:
            outcome = self._journal.read(key)
            if outcome is None:
                return None
            if outcome.run is None and self._retry:
                self._journal.remove_failure(key)
                return None
            self._done[key] = FinishedPoint(point, key, outcome, self.get_artifact_path(point))
        return self._done[key]

    def run_point(self, point: Point, verify: VerifyOptions) -> FinishedPoint:
        """Carry out a point unless that has been done, and return it."""
        if (known := self.find_finished(point, verify)) is not None:
            return known
        if self._only_known:
            raise ConfigError(
                f"{point.title}: what was measured on another machine did not come from there"
            )
        key = self.key(point, verify)
        outcome = self._measure_point(point, verify, self._journal.get_working_path(key))
        if self._closed:  # by another thread, which has ended the processes
            raise NNPipeError(f"{point.title}: the sweep was stopped")
        self._journal.write(key, point.title, outcome)
        self._done[key] = FinishedPoint(point, key, outcome, self.get_artifact_path(point))
        return self._done[key]

    def add(self, point: Point, verify: VerifyOptions, outcome: Outcome) -> None:
        """Record the outcome of a point that was carried out elsewhere."""
        self._journal.write(self.key(point, verify), point.title, outcome)

    def remeasure_point(self, point: Point, first: Run | None = None) -> Outcome:
        """Measure a point once more, whether it has been done or not; nothing is recorded.

        Parameters
        ----------
        point
            The point.
        first
            Its first measurement; if the compiled model is not that one any more, it is compared
            with its source.
        """
        artifact, verification = self.artifact(point), None
        if (
            first is not None
            and artifact is not None
            and artifact.sha256 != first.artifact.get("sha256")
        ):
            verification = self._record_source_outputs(point.model, self._sweep.verify)
        output = self._sweep.output / f".again-{make_file_name(point.title)}.json"
        with self._get_turn(point):
            return self._measure(self._sweep, point, artifact, output, self._command, verification)

    def artifact(self, point: Point) -> Artifact | None:
        """Return the compiled model of a point, which is compiled if it is not there; ``None``
        if nothing is.
        """
        path = self.get_artifact_path(point)
        with contextlib.suppress(ArtifactError):  # of another point or an earlier stage
            return None if path is None else Artifact.read(path)
        with self._compiling, acquire_turn(self._turns):
            return compile_point(self._sweep, point, self._open(point.model), path)

    def release(self, model: Model) -> None:
        """Remove what was kept for the points of a model."""
        with self._compiling:
            stack, _ = self._outputs.pop(model.title, (ExitStack(), None))
            stack.close()

    def close(self) -> None:
        """End the processes, and remove what was kept; other threads record nothing any more."""
        self._closed = True
        self._close_source()
        for model in self._sweep.models:
            self.release(model)

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()
        self._opened, self._source = "", None

    def _get_turn(self, point: Point) -> AbstractContextManager[None]:
        """Return the turn in which a point is measured; on another device, nothing of this
        machine has to wait.
        """
        return nullcontext() if point.remote else acquire_turn(self._turns, alone=True)

    def key(self, point: Point, verify: VerifyOptions) -> str:
        """Return the name of a point's result; its model is trained if needed."""
        return point.key(
            self._get_weights_hash(point.model),
            self._sweep.dataset,
            self._sweep.calibration_samples,
            verify,
        )

    def _get_weights_hash(self, model: Model) -> str:
        """Return the SHA-256 of a model's weights; train the model if needed."""
        if model.title not in self._weights:
            record = self._sweep.output / "trained" / f"{make_file_name(model.title)}.training.json"
            train_once(
                model.wrapper,
                self._sweep.dataset,
                model.training,
                model.path,
                record=record,
                makes=model.makes_weights,
                retrain=self._retrain,
            )
            self._weights[model.title] = compute_sha256(model.path)
        return self._weights[model.title]

    def get_artifact_path(self, point: Point) -> Path | None:
        """Return the path of a point's compiled model; ``None`` if nothing is compiled."""
        if point.way is None:
            return None
        sweep = self._sweep
        name = compute_digest(
            point.describe_inputs(
                self._get_weights_hash(point.model), sweep.dataset, sweep.calibration_samples
            )
        )
        return sweep.output / "models" / (name + get_file_suffix(point.way, point.compilers))

    def _measure_point(self, point: Point, verify: VerifyOptions, output: Path) -> Outcome:
        verification = None
        if verify.verify_samples and point.way is not None:
            verification = self._record_source_outputs(point.model, verify)
        try:
            artifact = self.artifact(point)
        except NNPipeError as error:
            log.error("%s failed: %s", point.title, error)
            return Outcome(None, get_error_message(error))
        with self._get_turn(point):
            return self._measure(self._sweep, point, artifact, output, self._command, verification)

    def _open(self, model: Model) -> ModelProcess:
        if self._closed:
            raise NNPipeError(f"{model.title}: the sweep was stopped")
        if self._source is None or self._opened != model.title:
            self._close_source()
            if not self._shared:
                for title in [title for title in self._outputs if title != model.title]:
                    self._outputs.pop(title)[0].close()
            self._source = ModelProcess(model.wrapper, self._sweep.dataset, model.path)
            self._opened = model.title
        return self._source

    def _record_source_outputs(self, model: Model, verify: VerifyOptions) -> Verification | None:
        """Return the outputs of a model, which runs once for all its points."""
        known = self._outputs.get(model.title)
        if known is None:
            with self._compiling, acquire_turn(self._turns):
                known = self._outputs.get(model.title)  # another thread may have come first
                if known is None:
                    source, stack = self._open(model), ExitStack()
                    known = (
                        stack,
                        stack.enter_context(
                            record_source_outputs(source, verify, self._sweep.time_limit)
                        ),
                    )
                    self._outputs[model.title] = known
        return known[1]


def measure_point(
    sweep: Sweep,
    point: Point,
    artifact: Artifact | None,
    output: Path,
    command: Sequence[str],
    verification: Verification | None = None,
) -> Outcome:
    """Measure a compiled point; ``output`` is the path of its unfinished result."""
    try:
        return Outcome(measure_once(sweep, point, artifact, output, command, verification))
    except NNPipeError as error:
        log.error("%s failed: %s", point.title, error)
        return Outcome(None, get_error_message(error))


def measure_once(
    sweep: Sweep,
    point: Point,
    artifact: Artifact | None,
    output: Path,
    command: Sequence[str],
    verification: Verification | None = None,
    worker: Worker | None = None,
) -> Run:
    """Measure a compiled point as :func:`measure_point` does, in a subprocess that is given or in a
    new one.

    Raises
    ------
    NNPipeError
        If it cannot be measured.
    """
    candidate = CandidateSpec(
        point.title,
        point.model.wrapper,
        point.model.path,
        point.compilers,
        point.runtime,
        artifact,
        point.deployment,
    )
    try:
        return measure_apart(
            candidate,
            sweep.dataset,
            point.measure,
            command,
            output,
            verification,
            sweep.time_limit,
            worker=worker,
        )
    finally:
        output.unlink(missing_ok=True)


def compile_point(
    sweep: Sweep, point: Point, source: ModelProcess, path: Path | None
) -> Artifact | None:
    """Return the compiled model; a file at ``path`` from another point or an earlier attempt is
    reused.
    """
    if path is None or point.way is None:
        return None
    try:
        return Artifact.read(path)
    except ArtifactError:
        return source.compile(
            point.way, point.compilers, path, sweep.calibration_samples, sweep.time_limit
        )


def run_points(
    sweep: Sweep, command: Sequence[str], *, retrain: bool, retry: bool, only_known: bool = False
) -> tuple[FinishedPoint, ...]:
    """Carry out every point that has not been done yet, and return all points in the order of the
    file.

    Models are processed one by one, and the points of each in a random order from the
    seed, so that drift does not favour a compiler or a runtime.
    """
    by_model: dict[str, list[Point]] = defaultdict(list)
    for point in sweep.points:
        by_model[point.model.title].append(point)
    done: dict[str, FinishedPoint] = {}
    with PointMeasurer(
        sweep, command, retrain=retrain, retry=retry, only_known=only_known
    ) as measurer:
        for points in by_model.values():
            found = [
                known
                for point in points
                if (known := measurer.find_finished(point, sweep.verify)) is not None
            ]
            if found:
                log.info(
                    "%s: %d of %d points are done already",
                    points[0].model.title,
                    len(found),
                    len(points),
                )
            done |= {each.point.title: each for each in found}
            waiting = [point for point in points if point.title not in done]
            random.Random(f"{sweep.seed} {points[0].model.title}").shuffle(waiting)
            for point in waiting:
                log.info("\n[%d/%d] %s", len(done) + 1, len(sweep.points), point.title)
                done[point.title] = measurer.run_point(point, sweep.verify)
    return tuple(done[point.title] for point in sweep.points)


def raise_not_measured(done: FinishedPoint) -> Outcome:
    """Raise an error: a second measurement is missing that was made elsewhere."""
    raise ConfigError(
        f"{done.point.title}: what was measured again on another machine did not come from there"
    )
