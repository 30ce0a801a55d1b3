"""The result of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.foreign_text import show_text
from nnpipe.report.inputs.sweep_file import SweepFile
from nnpipe.report.sections.sweep_devices import (
    build_device_table,
    build_model_table,
    describe_cheapest_device,
)
from nnpipe.report.writers.tables import to_text
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.reporting import format_report_paths
from nnpipe.workflows.sweep.budget import BudgetUse
from nnpipe.workflows.sweep.confirm import Confirmation
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.race import ENDED
from nnpipe.workflows.sweep.run import FinishedPoint
from nnpipe.workflows.sweep.select import (
    EvaluatedPoint,
    explain_no_winner,
    find_ties,
)
from nnpipe.workflows.sweep.summary import (
    DeviceResult,
    build_summary,
    find_cheapest,
    format_candidate_table,
    format_remeasurement,
)


@dataclass(frozen=True, eq=False)
class SweepResult:
    """The result of a sweep.

    Parameters
    ----------
    sweep
        The combinations, the constraints and the metrics.
    done
        Every combination with its outcome, in the order of the file.
    judged
        The measured combinations, with their claims.
    confirmed
        The candidate that was confirmed by a second measurement, and the refuted ones.
    report
        The path of the report; ``None`` if packages for it are not installed.
    spent
        What a sweep with a budget took; ``None`` without a budget.
    by_device
        What was found out about each device; empty for a sweep without targets.  ``confirmed`` and
        ``spent`` are then those of the cheapest device on which a candidate qualifies.

    Examples
    --------
    Of the example of :func:`nnpipe.sweep`:


    >>> found.model.suffix, found.certificate.name
    ('.onnx', 'certificate.json')
    """

    sweep: Sweep
    done: tuple[FinishedPoint, ...]
    judged: tuple[EvaluatedPoint, ...]
    confirmed: Confirmation
    report: Path | None
    spent: BudgetUse | None = None
    by_device: tuple[DeviceResult, ...] = ()

    @property
    def device(self) -> Device | None:
        """The cheapest device on which a candidate qualifies; ``None`` without targets, or if
        there is none.
        """
        found = find_cheapest(self.by_device)[0]
        return found.device if found is not None else None

    @property
    def certificates(self) -> Mapping[str, Path]:
        """The paths of the certificates of the best candidates of devices, by the device's name."""
        able = [each for each in self.by_device if each.confirmed.chosen is not None]
        return {each.device.name: get_certificate_path(self.sweep, each.device) for each in able}

    @property
    def chosen(self) -> str | None:
        """The title of the candidate to ship; ``None`` if none qualifies."""
        return self.confirmed.chosen.title if self.confirmed.chosen else None

    @property
    def model(self) -> Path | None:
        """The model file of the candidate to ship."""
        found = self.confirmed.chosen
        return (found.done.artifact or found.done.point.model.path) if found else None

    @property
    def certificate(self) -> Path | None:
        """The path of the chosen candidate's certificate."""
        return self.sweep.output / "certificate.json" if self.confirmed.chosen else None

    @property
    def failures(self) -> Mapping[str, str]:
        """The reasons why combinations could not be compiled or measured, by title."""
        return {
            each.point.title: each.outcome.reason
            for each in self.done
            if each.outcome.run is None and not each.stopped
        }

    def show(self) -> None:
        """Print the candidates, and the chosen one or why there is none."""
        show_text(str(self))

    def __str__(self) -> str:
        """Return a table of the candidates, and the chosen one or why there is none."""
        sweep = self.sweep
        lines = [
            format_candidate_table(sweep, self.judged),
            "",
            *([str(self.spent)] if self.spent else []),
        ]
        lines += [f"failed: {title}: {reason}" for title, reason in self.failures.items()]
        lines += [
            f"{d.point.title}: {d.outcome.reason}"
            for d in self.done
            if d.outcome.run is None and d.stopped
        ]
        if sweep.impossible:
            lines.append(f"{len(sweep.impossible)} combinations cannot be (--dry-run lists them)")
        lines += (
            self._describe_devices()
            if self.by_device
            else self._describe_choice(sweep, self.judged, self.done)
        )
        return "\n".join([*lines, *([format_report_paths(self.report)] if self.report else [])])

    def _describe_choice(
        self, sweep: Sweep, judged: Sequence[EvaluatedPoint], done: Sequence[FinishedPoint]
    ) -> Iterator[str]:
        """Yield lines about the chosen candidate, or why there is none."""
        found = self.confirmed
        if found.chosen is None:
            yield "no candidate qualifies:"
            yield from (f"  {line}" for line in explain_no_winner(sweep, judged, found.refuted))
            return
        yield from (
            f"did not hold when measured again: {title}: {reason}"
            for title, reason in found.refuted.items()
        )
        yield f"chosen by {sweep.choose.name}: {self.chosen}"
        yield from (f"  {line}" for line in format_remeasurement(sweep, found))
        level = find_ties(sweep, found.chosen, judged)
        if level:
            yield f"  cannot be told from it in {sweep.choose.name}: {', '.join(level)}"
        undecided = [each.point.title for each in done if each.stopped == ENDED]
        if undecided:
            yield (
                f"  the budget ended before it was certain that these are not better: "
                f"{', '.join(undecided)}"
            )
        yield f"model: {self.model}"
        yield f"certificate: {self.certificate}"

    def _describe_devices(self) -> Iterator[str]:
        """Yield lines about the devices, the cheapest one that will do, and its candidate."""
        found = SweepFile.from_json(
            build_summary(
                self.sweep, self.done, self.judged, self.confirmed, self.spent, self.by_device
            )
        )
        yield to_text(build_model_table(found))
        yield ""
        yield to_text(build_device_table(found))
        yield from (f"{each.device.name}: {each.away}" for each in self.by_device if each.away)
        yield ""
        best = find_cheapest(self.by_device)[0]
        if best is not None:
            yield describe_cheapest_device(found)
            yield from self._describe_choice(best.sweep, best.own, best.done)
            return
        yield "no candidate qualifies on any device:"
        for each in self.by_device:
            yield from (
                f"  {line}"
                for line in explain_no_winner(each.sweep, each.own, each.confirmed.refuted)
            )


def get_certificate_path(sweep: Sweep, device: Device) -> Path:
    """Return the path of the certificate of a device's best candidate."""
    return sweep.output / "certificates" / f"{device.name}.json"
