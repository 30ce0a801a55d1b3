"""Checks of whether candidates can be compared sample by sample."""

from __future__ import annotations

from collections.abc import Sequence

from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.inputs.quality import PairedQuality, Quality, comparable, paired


def pairing(first: Candidate, other: Candidate) -> PairedQuality | None:
    """Return the comparison of two candidates; ``None`` unless both were judged on the same samples."""
    return paired(first.quality, other.quality)


def on_the_same_samples(candidates: Sequence[Candidate]) -> bool:
    """Return whether all judged candidates did the same task on the same samples, so that metrics can be compared."""
    judged = [c.quality for c in candidates if c.quality is not None]
    return all(comparable(judged[0], each) for each in judged[1:])


def leading_quality(candidates: Sequence[Candidate]) -> Quality | None:
    """Return the quality of the first judged candidate, whose metric the headings of tables name."""
    return next((c.quality for c in candidates if c.quality is not None), None)
