"""The measured quantities, each with its name, unit and definition.

Result files, pages, summaries, certificates, tables on the terminal and
constraints all use these names, headings, units and columns.  Two values that
are computed differently are two quantities with different names.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import find_quality_metric
from nnpipe.measuring.series import BETWEEN, LATENCY, PACED, RESPONSE, ROUND_TRIP, CallTime

Kind = Literal["time", "bytes", "share", "rate", "ratio", "energy", "count"]
UNITS: Mapping[str, str] = {
    "time": "s",
    "bytes": "B",
    "share": "1",
    "rate": "1/s",
    "ratio": "1",
    "energy": "J",
    "count": "1",
}
"""The unit of a quantity in files, by its kind."""


@dataclass(frozen=True)
class Quantity:
    """A measured property of a candidate.

    Parameters
    ----------
    name
        The name in files, constraints and objectives.
    heading
        A short column heading.
    title
        A longer name for text.
    kind
        The kind of property, which determines the units.
    less_is_better
        Whether smaller values are better.
    meaning
        The definition, in a clause.
    computed_from
        The fields of a result file from which it is computed.
    judged
        Whether constraints and objectives may use it.
    metric
        The quality metric of a task that it is, or that it compares; empty for all other
        quantities.
    compared
        ``"loss"``: what is lost of the metric against the model as trained; ``"difference"``: the
        metric less that of the first candidate; empty if nothing is compared.
    """

    name: str
    heading: str
    title: str
    kind: Kind
    less_is_better: bool
    meaning: str
    computed_from: str
    judged: bool = False
    metric: str = ""
    compared: Literal["", "loss", "difference"] = ""

    @property
    def unit(self) -> str:
        """The unit in files."""
        return UNITS[self.kind]

    @property
    def of_calls(self) -> bool:
        """Whether it is a cost of calls, which compares models only if their calls are the same
        work.
        """
        return self.computed_from.startswith(("series.inference", "series.paced", "series.energy"))

    @property
    def percentile(self) -> float | None:
        """The percentile as a share, if the quantity is a percentile of call times; 0.5 for the
        median.
        """
        if self.metric:
            return None
        if self.name.endswith("_median"):
            return 0.5
        found = _PERCENTILE.fullmatch(self.name)
        return round(float(found[2]) / 100, 6) if found else None  # 99.9 / 100 is not 0.999


_CALL_TIMES = {each.name: each for each in (LATENCY, RESPONSE, BETWEEN, ROUND_TRIP, PACED)}
_PERCENTILE = re.compile(r"(latency|response|between|round_trip|paced)_p(\d{1,2}(?:\.\d{1,3})?)")
_LOSS = re.compile(r"loss\((\w+)\)")


def _build_time_quantities(time: CallTime) -> list[Quantity]:
    source = f"series.inference.{time.column}"
    if time is LATENCY:
        source = "series.inference.target_ns where the model ran on a target, else latency_ns"
    if time is PACED:
        source = (
            "series.paced.target_ns where the model ran on a target, else latency_ns, where asleep "
            "is 1"
        )
    title, judged = time.title, time is LATENCY
    return [
        Quantity(
            f"{time.name}_median",
            _format_heading(time, "Median"),
            f"Median {title}",
            "time",
            True,
            f"{time.meaning}: half of them take less",
            source,
            judged,
        ),
        Quantity(
            f"{time.name}_p90",
            _format_heading(time, "p90"),
            f"p90 of the {title}",
            "time",
            True,
            f"{time.meaning}: 90 % take less; any {time.name}_pN below 100 will do",
            source,
            judged,
        ),
        Quantity(
            f"{time.name}_mean",
            _format_heading(time, "Mean"),
            f"Mean {title}",
            "time",
            True,
            f"{time.meaning}: all of it by the number of calls",
            source,
        ),
    ]


def _build_count_quantity(what: str) -> Quantity:
    return Quantity(
        what,
        what.capitalize(),
        f"{what.capitalize()} of an inference",
        "count",
        True,
        "of one call, of a batch of samples, as a target without a clock counts them: half of them "
        "take fewer",
        f"series.inference.target_counts where timing.session.counter is {what}",
        True,
    )


def _build_board_quantity(name: str, heading: str, title: str, meaning: str) -> Quantity:
    return Quantity(
        name, heading, title, "bytes", True, meaning, f"timing.session.board.{name}_bytes", True
    )


def _format_heading(time: CallTime, word: str) -> str:
    """Return a column heading: the plain word for inference times, with the name of the time for
    others.
    """
    if time is LATENCY:
        return word
    return {
        "response": "Response",
        "between": "Between",
        "round_trip": "Round trip",
        "paced": "Paced",
    }[time.name] + f" {word.lower()}"


_SIZE = "of the model and its weight files; of C, its code and constants as they were built to run"
_TABLE = (
    *_build_time_quantities(LATENCY),
    *_build_time_quantities(RESPONSE),
    *_build_time_quantities(BETWEEN),
    *_build_time_quantities(ROUND_TRIP),
    *_build_time_quantities(PACED),
    Quantity(
        "throughput", "Samples/s", "Throughput", "rate", False,
        "samples a second of inference; under a load, of the time that it lasted",
        "series.inference.samples by the sum of the times of inference, or "
        "timing.load.busy_ns", True,
    ),
    Quantity(
        "load", "Load", "Time to load", "time", True, "from a file to a model that can run",
        "timing.session.load_ns where the model ran on a target, else timing.load_ns", True,
    ),
    Quantity("import", "Import", "Time to import", "time", True, "of the runtime's "
        "packages", "timing.import_ns"),
    Quantity("first_inference", "First", "First inference", "time", True, "time of the "
        "first", "timing.first_ns"),
    Quantity(
        "memory", "Memory", "Process memory", "bytes", True, "of the process that runs the model, "
            "at its peak",
        "the greatest of series.target.process_bytes on a target, else of "
        "series.resources.process_bytes", True,
    ),
    _build_count_quantity("instructions"),
    _build_count_quantity("cycles"),
    _build_board_quantity(
        "flash", "Flash", "Flash", "code, constants and initial values of the model, as built for "
            "the core of the board"
    ),
    _build_board_quantity(
        "ram", "RAM", "Memory on the board",
        "arena and initial values of the model, and the stack that its runs have used",
    ),
    _build_board_quantity("arena", "Arena", "Arena", "memory of all values of the model on the "
        "board"),
    _build_board_quantity("stack", "Stack", "Greatest stack", "the most that a run of the model "
    "on the board "
        "has used"),
    Quantity(
        "energy", "Energy", "Energy of an inference", "energy", True,
        "of one call, of a batch of samples, from the sensor that the result names; idle power "
        "included unless it was measured to be subtracted",
        "series.energy.joules by calls, less timing.energy.idle_watts if there are any", True,
    ),
    Quantity("size", "Size", "Model size", "bytes", True, _SIZE, "artifact.size", True),
    Quantity(
        "agreement", "Same as trained", "Agreement with the model as trained", "share", False,
        "share of the test samples for which it predicts the same as the model as trained",
        "evaluation of both", True,
    ),
    Quantity(
        "agreement_with_first", "Same as first", "Agreement with the first candidate", "share", False,
        "share of the test samples for which it predicts the same as the first candidate",
        "evaluation of both",
    ),
    Quantity(
        "same_class", "Same class", "Same class as the source", "share", False,
        "share of the samples of the verification that get the class that the model gives from "
        "which it was made",
        "verification.same_class by verification.samples",
    ),
    Quantity(
        "time_ratio", "Time by the fastest's", "Time by that of the fastest", "ratio", True,
        "geometric mean over the starts of the ratio of medians, of candidates that take turns",
        "series.inference.latency_ns of both, by start",
    ),
)  # fmt: skip
QUANTITIES: Mapping[str, Quantity] = {each.name: each for each in _TABLE}
"""Quantities of speed and cost by name; :func:`find_quantity` also accepts any percentile and the
metrics of tasks.
"""


def find_quantity(name: str) -> Quantity:
    """Return a quantity by its name, such as ``latency_p99``, ``top_5_accuracy`` or
    ``loss(accuracy)``.

    Raises
    ------
    KeyError
        If there is no such quantity.
    """
    check_call(find_quantity, locals())
    if name in QUANTITIES:
        return QUANTITIES[name]
    found = _PERCENTILE.fullmatch(name)
    if found and float(found[2]) > 0:
        time, word = _CALL_TIMES[found[1]], f"p{found[2]}"
        like = QUANTITIES[f"{time.name}_p90"]
        return Quantity(
            name,
            _format_heading(time, word),
            f"{word} of the {time.title}",
            "time",
            True,
            f"{time.meaning}: {found[2]} % take less",
            like.computed_from,
            like.judged,
        )
    if loss := _LOSS.fullmatch(name):
        return degradation_of(find_quality_metric(loss[1]), name)
    for ending, made in (("_loss", degradation_of), ("_difference", difference_of)):
        if name.endswith(ending):
            with contextlib.suppress(KeyError):
                return made(find_quality_metric(name.removesuffix(ending)), name)
    return quality_of(find_quality_metric(name))


def quality_of(metric: QualityMetric) -> Quantity:
    """Return the quantity of a quality metric."""
    return Quantity(
        metric.name,
        metric.heading,
        metric.title,
        metric.kind,
        metric.less_is_better,
        metric.meaning,
        "evaluation",
        True,
        metric.name,
    )


def degradation_of(metric: QualityMetric, name: str = "") -> Quantity:
    """Return the quantity of what is lost of a quality metric against the model as trained; less
    than 0 is a gain.
    """
    ours, theirs = "the candidate's", f"{format_in_sentence(metric.title)} of the model as trained"
    meaning = f"{ours} less {theirs}" if metric.less_is_better else f"{theirs}, less {ours}"
    return Quantity(
        name or f"loss({metric.name})",
        f"{metric.heading} lost",
        f"{metric.title} lost",
        metric.kind,
        True,
        f"{meaning}, on the same samples",
        "evaluation of both",
        True,
        metric.name,
        "loss",
    )


def difference_of(metric: QualityMetric, name: str = "") -> Quantity:
    """Return the quantity of the difference of a quality metric from that of the first
    candidate.
    """
    title = format_in_sentence(metric.title)
    return Quantity(
        name or f"{metric.name}_difference",
        f"Δ {format_in_sentence(metric.heading)}",
        f"Difference of {title}",
        metric.kind,
        metric.less_is_better,
        f"{title} less that of the first candidate, on the same samples",
        "evaluation of both",
        False,
        metric.name,
        "difference",
    )


def format_in_sentence(title: str) -> str:
    """Return a title with a small first letter, unless it begins with an abbreviation."""
    return (
        title
        if title[1:2].isupper() or len(title) < 2 or not title[1].isalpha()
        else title[0].lower() + title[1:]
    )
