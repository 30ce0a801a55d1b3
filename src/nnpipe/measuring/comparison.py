"""The result of a comparison of candidates that were run in turns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.artifact import SLOW_PARTS
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import write_text
from nnpipe.measuring.interleaving import Record
from nnpipe.measuring.paired_comparison import (
    ComparisonPlan,
    Medians,
    Verdict,
    compare_all_pairs,
    index_by_start,
)
from nnpipe.measuring.result_json import COMPARISON, read_json
from nnpipe.measuring.run import SCHEMA, Run
from nnpipe.measuring.series import Series
from nnpipe.measuring.validity_warning import ValidityWarning

TIMES = 3.0
"""How many times the median of the best float candidate a candidate may take without a doubt."""

_FLOATS = ("float", "float16", "bfloat16", "pruned", "clustered", "fine-tuned")


def check_slow_candidates(runs: Sequence[Run]) -> Mapping[str, ValidityWarning]:
    """Return a doubt, by title, for each candidate slower than :data:`TIMES` the best float one on
    its device.

    It names the cause: the run's handicaps, what its compiler knows to take long, or that it is not
    compiled; or says that no cause is known.
    """
    medians = {run.title: median for run in runs if (median := _compute_median(run)) is not None}
    best: dict[str, Run] = {}
    for run in runs:
        if run.title in medians and all(claim in _FLOATS for claim in _iter_claims(run.artifact)):
            known = best.setdefault(_format_model(run), run)
            if medians[run.title] < medians[known.title]:
                best[_format_model(run)] = run
    found: dict[str, ValidityWarning] = {}
    for run in runs:
        fastest = best.get(_format_model(run))
        if fastest is None or run.title not in medians:
            continue
        ratio = medians[run.title] / medians[fastest.title]
        if ratio > TIMES:
            causes = ", ".join(_iter_causes(run)) or "no cause is known"
            found[run.title] = ValidityWarning(
                "slow", f"{ratio:.1f} times slower than {fastest.title!r} in floats: {causes}"
            )
    return found


def _iter_causes(run: Run) -> Iterator[str]:
    settings = run.timing.get("settings")
    yield from map(str, settings if isinstance(settings, list) else ())
    outcome = run.artifact.get("outcome") if isinstance(run.artifact, Mapping) else None
    parts = outcome.get(SLOW_PARTS) if isinstance(outcome, Mapping) else None
    yield from map(str, parts if isinstance(parts, list) else ())
    if "runtime" not in run.components and "protocol" not in run.components:
        yield "it runs uncompiled, in its own framework"


def _compute_median(run: Run) -> float | None:
    inference = run.series.get("inference")
    if inference is None or not len(inference):
        return None
    median = float(np.median(inference["latency_ns"]))
    return median if median > 0 else None


def _format_model(run: Run) -> str:
    """Return a run's model and device, as text."""
    roles = [run.components.get(role) for role in ("wrapper", "protocol")]
    return json.dumps(roles, sort_keys=True, default=str)


def _iter_claims(artifact: Any) -> Iterator[str]:
    """Yield the claims of a model and of those it was made from."""
    while isinstance(artifact, Mapping):
        claims = artifact.get("claims")
        yield from map(str, claims if isinstance(claims, (list, tuple)) else ())
        artifact = artifact.get("parent")


_NS, _WHOLE = "_ns", {"start", "latency"}
_FEWEST_CALLS = {0.5: 1, 0.9: 10}  # calls that a block needs for each quantile
# Limits on what is read from a file, since all pairs of these are compared.
_MOST_RUNS, _MOST_STARTS, _MOST_ROUNDS = 200, 1024, 1024


@dataclass(frozen=True)
class Comparison:
    """Candidates that were measured in turns.

    Parameters
    ----------
    title, command, created
        As in :class:`~nnpipe.measuring.run.Run`.
    plan
        How they were compared.
    runs
        The run of each candidate.  The series ``inference`` has three additional
        columns: ``start``, ``round`` and ``place`` in the round, counted from 0.
        ``timing["idle_cpu_percent"]`` is the processor load of the candidate
        between its turns.
    failures
        Why candidates failed, by title; their earlier measurements are not used.
    seconds
        The total duration.

    Examples
    --------
    Read the result file of :func:`nnpipe.compare` or ``nnpipe compare``:

    >>> Comparison("before and after", ComparisonPlan(), ()).write("comparison.json")
    >>> Comparison.read("comparison.json").title
    'before and after'
    """

    title: str
    plan: ComparisonPlan
    runs: tuple[Run, ...]
    failures: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    created: str = ""
    seconds: float = 0.0

    @property
    def whole(self) -> tuple[Run, ...]:
        """The runs of the candidates that did not fail."""
        return tuple(run for run in self.runs if run.title not in self.failures)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts of calls' times that are known of all of :attr:`whole`."""
        known = [
            {
                name.removesuffix(_NS)
                for name in run.series["inference"].columns
                if name.endswith(_NS)
            }
            - _WHOLE
            for run in self.whole
        ]
        return tuple(sorted(set.intersection(*known))) if known else ()

    def compare_pairs(self, share: float = 0.5, part: str = "") -> list[Verdict]:
        """Compare all pairs of :attr:`whole` by a quantile of their blocks, of whole calls or of a
        part of each.

        The stopping rule is made for the median of whole calls.  The intervals of all parts hold
        together with the plan's confidence.  The result is empty if the blocks are too short for
        the quantile.
        """
        figures = [
            compute_block_quantiles(run, share, f"{part or 'latency'}{_NS}") for run in self.whole
        ]
        candidates = len({*self.failures, *(run.title for run in self.runs)})
        missed = (1 - self.plan.confidence) / (len(self.parts) if part else 1)
        return compare_all_pairs(figures, replace(self.plan, confidence=1 - missed), candidates)

    def run_of(self, title: str) -> Run:
        """Return the run of a candidate.

        Raises
        ------
        ConfigError
            If there is no candidate with this title; the message lists the titles.
        """
        for run in self.runs:
            if run.title == title:
                return run
        raise ConfigError(
            f"no candidate is called {title!r}; there are "
            f"{', '.join(run.title for run in self.runs)}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the comparison in its JSON form; ``verdicts`` and ``slow`` are for readers,
        ignored when read.
        """
        titles = [run.title for run in self.whole]
        return {
            "schema": SCHEMA,
            "kind": COMPARISON,
            "title": self.title,
            "created": self.created,
            "command": list(self.command),
            "verdicts": [
                {**found.to_json(), "first": titles[found.first], "second": titles[found.second]}
                for found in self.compare_pairs()
            ],
            "slow": {
                title: doubt.reason for title, doubt in check_slow_candidates(self.whole).items()
            },
            "plan": asdict(self.plan),
            "seconds": self.seconds,
            "failures": dict(self.failures),
            "runs": [run.to_json() for run in self.runs],
        }

    def write(self, path: str | Path) -> None:
        """Write the result file atomically."""
        write_text(path, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Comparison:
        """Read a comparison's result file.

        Raises
        ------
        ArtifactError
            If it is missing, damaged, or not a comparison; the message names it.
        """
        found = read_result(path)
        if isinstance(found, Run):
            raise ArtifactError(f"{path}: the result of one run, not of a comparison")
        return found

    @classmethod
    def from_json(cls, data: Any) -> Comparison:
        """Make a comparison from the output of :meth:`to_json`.

        Raises
        ------
        ArtifactError
            If it is malformed.
        """
        if not isinstance(data, dict) or data.get("kind") != COMPARISON:
            raise ArtifactError("not the result of a comparison")
        if data.get("schema") != SCHEMA:
            raise ArtifactError(
                f"schema {str(data.get('schema'))[:40]} is unknown, this version reads {SCHEMA}"
            )
        try:
            if not isinstance(data["runs"], list) or len(data["runs"]) > _MOST_RUNS:
                raise TypeError("'runs' should be a list, and not endless")
            runs = tuple(Run.from_json(run) for run in data["runs"])
            for run in runs:
                _check_turns(run)
            return cls(
                title=str(data["title"]),
                plan=ComparisonPlan(**data["plan"]),
                runs=runs,
                failures={str(title): str(reason) for title, reason in data["failures"].items()},
                command=tuple(map(str, data["command"])),
                created=str(data["created"]),
                seconds=float(data["seconds"]),
            )
        except KeyError as error:
            raise ArtifactError(f"not a whole result file: {error} is missing") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise ArtifactError(f"not a usable result file: {error}") from None


def read_result(path: str | Path) -> Run | Comparison:
    """Read a result file of a run or of a comparison.

    Raises
    ------
    ArtifactError
        If it is missing, damaged, or not a result file; the message names it.
    """
    try:
        data = read_json(Path(path))
        if isinstance(data, dict) and data.get("kind") == COMPARISON:
            return Comparison.from_json(data)
        return Run.from_json(data)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None


def with_turns(run: Run, record: Record, candidate: int) -> Run:
    """Return a run with the inferences of a candidate's turns."""
    turns = [turn for turn in record.turns if turn.candidate == candidate]
    samples = run.timing.get("batch_size", 1)
    columns: dict[str, list[Any]] = {
        "start_ns": [turn.begin_ns + turn.block.start_ns for turn in turns],
        "latency_ns": [turn.block.latency_ns for turn in turns],
        "samples": [np.full(len(turn.block.latency_ns), samples) for turn in turns],
        **{
            name: [
                np.full(len(turn.block.latency_ns), getattr(turn, name), np.int32) for turn in turns
            ]
            for name in ("start", "round", "place")
        },
    }
    for part in dict.fromkeys(name for turn in turns for name in turn.block.parts_ns):
        unknown = (np.full(len(turn.block.latency_ns), -1) for turn in turns)
        columns[f"{part}{_NS}"] = [
            turn.block.parts_ns.get(part, none) for turn, none in zip(turns, unknown, strict=True)
        ]
    empty = [np.empty(0, np.int64)]
    inference = Series({name: np.concatenate(parts or empty) for name, parts in columns.items()})
    idle = sum(turn.block.idle_ns for turn in turns)
    busy = sum(turn.block.idle_cpu_ns for turn in turns)
    timing = dict(run.timing) | ({"idle_cpu_percent": round(100 * busy / idle, 2)} if idle else {})
    return replace(run, series={**run.series, "inference": inference}, timing=timing)


def compute_block_quantiles(run: Run, share: float, column: str = "latency_ns") -> Medians:
    """Return a quantile of each block of a run measured in turns, by start and round, in
    nanoseconds.

    ``column`` is the column of the series ``inference``; calls without such a part, -1, are left
    out.
    """
    inference = run.series["inference"]
    known = inference[column] >= 0
    starts, rounds, latencies = (inference[name][known] for name in ("start", "round", column))
    if not len(starts):
        return {}
    edges = np.flatnonzero((np.diff(starts) != 0) | (np.diff(rounds) != 0)) + 1
    fewest = _FEWEST_CALLS.get(share, 1)
    return index_by_start(
        (int(starts[first]), int(rounds[first]), float(np.quantile(latencies[first:last], share)))
        for first, last in zip([0, *edges], [*edges, len(starts)], strict=True)
        if last - first >= fewest
    )


def _check_turns(run: Run) -> None:
    inference = run.series.get("inference")
    if inference is None or not all(name in inference for name in ("start", "round", "place")):
        raise ValueError(f"the run of {run.title!r} does not say when its turns were")
    for name, most in (("start", _MOST_STARTS), ("round", _MOST_ROUNDS)):
        column = inference[name]
        if column.dtype.kind not in "iu" or (
            len(column) and not 0 <= column.min() <= column.max() < most
        ):
            raise ValueError(f"the run of {run.title!r} has a {name} that is no number of one")
