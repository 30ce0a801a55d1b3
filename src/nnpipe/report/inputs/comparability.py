"""Checks of whether candidates can be compared sample by sample."""

from __future__ import annotations

from collections.abc import Sequence

from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.inputs.quality import PairedQuality, Quality, comparable, paired

_MOST_NAMED = 8


def pairing(first: Candidate, other: Candidate) -> PairedQuality | None:
    """Return the comparison of two candidates; ``None`` unless both were judged on the same samples."""
    return paired(first.quality, other.quality)


def on_the_same_samples(candidates: Sequence[Candidate]) -> bool:
    """Return whether all judged candidates did the same task on the same samples, so that metrics can be compared."""
    judged = [c.quality for c in candidates if c.quality is not None]
    return all(comparable(judged[0], each) for each in judged[1:])


def unlike_samples(judged: Sequence[tuple[str, Quality | None]]) -> str:
    """Return a sentence that names the samples of candidates which were not judged alike; empty if they were.

    Parameters
    ----------
    judged
        The name of each candidate with its quality; ``None`` if nothing of it was judged.
    """
    known = [(name, quality) for name, quality in judged if quality is not None]
    if all(comparable(known[0][1], quality) for _, quality in known[1:]):
        return ""
    told = [f"{name}: {quality.task.name}, {quality.samples:,} samples" for name, quality in known[:_MOST_NAMED]]
    more = f"; {len(known) - _MOST_NAMED:,} more" if len(known) > _MOST_NAMED else ""
    return (
        "The candidates were not all judged on the same samples and in the same way, so their figures of quality "
        f"cannot be compared ({'; '.join(told)}{more})."
    )


def unlike_work(first: Quality | None, other: Quality | None) -> str:
    """Return why the times of two candidates' calls are not of the same work; empty if they are, or it is not known."""
    if first is None or other is None or first.task.name != other.task.name:
        return ""
    return first.task.unlike_work(first.evaluation, other.evaluation)


def leading_quality(candidates: Sequence[Candidate]) -> Quality | None:
    """Return the quality of the first judged candidate, whose metric the headings of tables name."""
    return next((c.quality for c in candidates if c.quality is not None), None)
