"""Checks of whether candidates can be compared sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnpipe.analysis.accuracy_difference import paired_difference
from nnpipe.report.inputs.candidate import Candidate


@dataclass(frozen=True)
class CandidatePair:
    """The comparison of two candidates on the same samples.

    Attributes
    ----------
    difference, low, high
        The accuracy of the second candidate minus that of the first, and the 95 % interval of the difference.
    agreement
        Share of samples to which both give the same class, right or wrong.
    """

    difference: float
    low: float
    high: float
    agreement: float


def pairing(first: Candidate, other: Candidate) -> CandidatePair | None:
    """Return the comparison of two candidates; ``None`` unless both were evaluated on the same samples."""
    if first.quality is None or other.quality is None or first.run.evaluation is None or other.run.evaluation is None:
        return None
    one, two = first.run.evaluation.arrays, other.run.evaluation.arrays
    truth = one["truth"]
    if not np.array_equal(truth, two["truth"]):
        return None
    mine, theirs = one["predicted"], two["predicted"]
    gained = int(np.count_nonzero((theirs == truth) & (mine != truth)))
    lost = int(np.count_nonzero((mine == truth) & (theirs != truth)))
    return CandidatePair(*paired_difference(gained, lost, len(truth)), float(np.mean(mine == theirs)))


def on_the_same_samples(candidates: Sequence[Candidate]) -> bool:
    """Return whether all evaluated candidates used the same samples, so that their accuracies can be compared."""
    judged = [c for c in candidates if c.quality is not None]
    return all(pairing(judged[0], c) is not None for c in judged[1:])
