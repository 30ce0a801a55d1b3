"""Carrying out a sweep on several devices: one measurement at a time on each, all devices at
once.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from nnpipe.core.artifact import Artifact
from nnpipe.core.closing import Closing
from nnpipe.core.errors import NNPipeError
from nnpipe.workflows.candidates.measure import Verification, create_worker_template
from nnpipe.workflows.devices.device_measuring import DeviceAway, FleetMeasuring
from nnpipe.workflows.journal import Outcome, get_error_message
from nnpipe.workflows.sweep.budget import BudgetUse
from nnpipe.workflows.sweep.confirm import remeasure_winner
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Point
from nnpipe.workflows.sweep.race import SuccessiveHalving
from nnpipe.workflows.sweep.run import FinishedPoint, PointMeasurer, measure_once, measure_point
from nnpipe.workflows.sweep.select import evaluate_points, rank_candidates
from nnpipe.workflows.sweep.summary import DeviceResult
from nnpipe.workflows.verification.compare_outputs import VerifyOptions
from nnpipe.workflows.workers.machine_turns import MachineTurns

log = logging.getLogger("nnpipe")

T = TypeVar("T")

HERE = ""
"""The name of what is measured on this machine without being a device of the sweep: the models
as trained.
"""

_LOOK = 0.5  # seconds between two looks at threads, so that Ctrl-C is heard


class DeviceSweep(Closing):
    """Measures the points of a sweep on its devices; used in a ``with`` block.

    Each device has a thread; this machine is measured by the thread that calls.  All devices get
    the candidates of a model in the same order, so that each is compiled once, when it is first
    needed.

    Parameters
    ----------
    sweep, command
        The sweep, and the command line for the result files.
    retrain, retry
        As for :class:`~nnpipe.workflows.sweep.run.PointMeasurer`.

    Raises
    ------
    NNPipeError
        If the weights of a model are missing, or the database in which people take turns cannot be
        opened.
    """

    def __init__(self, sweep: Sweep, command: Sequence[str], *, retrain: bool, retry: bool) -> None:
        self._sweep, self._command, self._retry = sweep, command, retry
        self._measurer = PointMeasurer(
            sweep,
            command,
            retrain=retrain,
            retry=retry,
            turns=MachineTurns(),
            measure=self._measure,
            shared=True,
        )
        targets = sweep.targets
        self._remote = {each.name: each for each in targets.devices if not each.here}
        self._template = (
            create_worker_template(_list_modules(sweep)) if len(self._remote) > 1 else None
        )
        self._fleet = FleetMeasuring(
            list(self._remote.values()),
            targets.leases,
            f"the sweep {sweep.title!r}",
            patience=targets.patience,
            template=self._template,
        )
        self._away: dict[str, str] = {}
        self._here = threading.Lock()
        self._left: dict[str, int] = {}
        self._count = 0
        self._counting = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """End the processes of all devices, and release the devices."""
        self._closed = True
        self._fleet.close()
        if self._template is not None:
            self._template.close()
        self._measurer.close()

    def results(self) -> tuple[DeviceResult, ...]:
        """Carry out every point that has not been done, choose on each device, and return what
        came out, by device.
        """
        sweep = self._sweep
        self._measurer.train()  # before devices are kept waiting
        parts = {each.name: sweep.on(each) for each in sweep.targets.devices}
        names = list(parts) if any(each.here for each in sweep.targets.devices) else [HERE, *parts]
        self._left = dict.fromkeys([model.title for model in sweep.models], len(names))
        trained = tuple(each for each in sweep.points if each.runtime is None)
        references: dict[str, FinishedPoint] = {}
        known = threading.Event()
        if not trained:
            known.set()

        def run_device(name: str) -> DeviceResult | None:
            done, spent = self._measure_device(name, parts.get(name))
            if name not in self._remote:
                references.update(
                    {each.point.title: each for each in done if each.point.runtime is None}
                )
                known.set()
            if name == HERE:
                return None
            while not known.wait(_LOOK):
                if self._closed:
                    raise DeviceAway(f"{name}: the sweep was stopped")
            own = [each for each in done if each.point.runtime is not None]
            with self._fleet.working.one(name):
                return self._choose_best(parts[name], [*references.values(), *own], name, spent)

        found = self._map_devices(names, run_device)
        return tuple(
            result for each in sweep.targets.devices if (result := found[each.name]) is not None
        )

    def _measure_device(
        self, name: str, part: Sweep | None
    ) -> tuple[tuple[FinishedPoint, ...], BudgetUse | None]:
        """Carry out the points of a device, and return them, with what a budget took."""
        with self._fleet.working.one(name):
            if part is None or part.budget is None:
                return self._measure_points(name), None
            race = SuccessiveHalving(part, self._measure_point)
            return race.run(), race.spent

    def _measure_points(self, name: str) -> tuple[FinishedPoint, ...]:
        """Carry out the points of a device, model by model, and return them."""
        by_model: dict[str, list[Point]] = defaultdict(list)
        for point in self._list_points(name):
            by_model[point.model.title].append(point)
        done = []
        for model in self._sweep.models:
            points = by_model[model.title]
            random.Random(f"{self._sweep.seed} {model.title}").shuffle(points)
            done += [self._measure_point(point, self._sweep.verify) for point in points]
            with self._counting:
                self._left[model.title] -= 1
                last = not self._left[model.title]
            if last:
                self._measurer.release(model)
        order = {point.title: place for place, point in enumerate(self._sweep.points)}
        return tuple(sorted(done, key=lambda each: order[each.point.title]))

    def _list_points(self, name: str) -> list[Point]:
        """Return the points that are measured on a device, and on this machine the models as
        trained, too.
        """
        if name not in self._remote:
            return [each for each in self._sweep.points if not each.remote]
        return [
            each
            for each in self._sweep.points
            if each.device is not None and each.device.name == name
        ]

    def _measure_point(self, point: Point, verify: VerifyOptions) -> FinishedPoint:
        """Return a point that is done; of a device that has gone away, with the reason, which is
        not recorded.
        """
        known = self._measurer.find_finished(point, verify)
        if known is not None:
            return known
        try:
            if not point.remote:  # models as trained are wanted by all devices
                with self._here:
                    found = self._measurer.run_point(point, verify)
            elif point.device is not None and point.device.name in self._away:
                raise DeviceAway(self._away[point.device.name])
            else:
                found = self._measurer.run_point(point, verify)
        except DeviceAway as error:
            assert point.device is not None
            self._away[point.device.name] = get_error_message(error)
            key = self._measurer.key(point, verify)
            return FinishedPoint(
                point,
                key,
                Outcome(None, get_error_message(error)),
                self._measurer.get_artifact_path(point),
            )
        with self._counting:
            self._count += 1
        failed = "" if found.outcome.run is not None else f" failed: {found.outcome.reason}"
        of = "" if self._sweep.budget is not None else f"/{len(self._sweep.points)}"
        log.info("[%d%s] %s%s", self._count, of, point.title, failed)
        return found

    def _measure(
        self,
        sweep: Sweep,
        point: Point,
        artifact: Artifact | None,
        output: Path,
        command: Sequence[str],
        verification: Verification | None,
    ) -> Outcome:
        if point.device is None or point.deployment is None:
            return measure_point(sweep, point, artifact, output, command, verification)
        try:
            return Outcome(
                self._fleet.on(point.device).measure(
                    point.deployment,
                    lambda worker: measure_once(
                        sweep, point, artifact, output, command, verification, worker
                    ),
                )
            )
        except DeviceAway:
            raise
        except NNPipeError as error:
            return Outcome(None, get_error_message(error))

    def _choose_best(
        self, part: Sweep, done: Sequence[FinishedPoint], name: str, spent: BudgetUse | None
    ) -> DeviceResult:
        """Judge the candidates of a device, and measure the best again."""
        judged = evaluate_points(part, done)

        def measure_again(candidate: FinishedPoint) -> Outcome:
            return self._measurer.remeasure_point(candidate.point, candidate.outcome.run)

        found = remeasure_winner(
            part,
            rank_candidates(part, judged),
            self._command,
            retry=self._retry,
            again=measure_again,
            artifact=lambda candidate: self._measurer.artifact(candidate.point),
        )
        (device,) = (each for each in self._sweep.targets.devices if each.name == name)
        return DeviceResult(
            part, device, tuple(done), judged, found, spent, self._away.get(name, "")
        )

    def _map_devices(self, names: Sequence[str], work: Callable[[str], T]) -> Mapping[str, T]:
        """Return what a function returns for each device; remote ones have threads, this machine
        has the caller's.
        """
        found: dict[str, T] = {}
        errors: list[BaseException] = []

        def run(name: str) -> None:
            try:
                found[name] = work(name)
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=run, args=(name,), daemon=True)
            for name in names
            if name in self._remote
        ]
        for thread in threads:
            thread.start()
        for name in names:
            if name not in self._remote:
                found[name] = work(name)
        for thread in threads:
            while thread.is_alive() and not errors:
                thread.join(_LOOK)
        if errors:
            raise errors[0]
        return found


def _list_modules(sweep: Sweep) -> list[str]:
    """Return the modules of the components that measurements use."""
    used: list[object] = [sweep.dataset, *(model.wrapper for model in sweep.models)]
    used += [each.protocol for each in sweep.targets.devices if each.protocol is not None]
    used += [
        part
        for point in sweep.points
        for part in (*point.compilers, point.runtime)
        if part is not None
    ]
    return list(dict.fromkeys(type(each).__module__ for each in used))
