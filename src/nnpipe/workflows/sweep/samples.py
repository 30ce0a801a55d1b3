"""The test samples that a sweep measures, and the results on some of them."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.measuring.benchmark import chosen_samples
from nnpipe.measuring.run import Run
from nnpipe.workflows.sweep.file import Sweep


def test_samples(sweep: Sweep) -> npt.NDArray[np.int64]:
    """Return the numbers of the test samples that a sweep measures."""
    return _chosen(sweep.dataset, sweep.points[0].measure.measure_samples)


def sample_count(sweep: Sweep) -> int:
    """Return the number of test samples that a sweep measures."""
    return len(test_samples(sweep))


def on_samples_of(run: Run, other: Run, sweep: Sweep) -> Run | None:
    """Return the predictions of a run on the samples of another; ``None`` if it was not judged on all of these.

    Its times are left out: they belong to all of its samples.
    """
    if run.evaluation is None or other.evaluation is None:
        return None
    places = chosen_places(sweep.dataset, len(run.evaluation), len(other.evaluation))
    return None if places is None else replace(run, evaluation=run.evaluation.take(places), series={})


def chosen_places(dataset: Dataset, count: int, fewer: int) -> npt.NDArray[np.int64] | None:
    """Return the places of ``fewer`` chosen test samples among ``count``; ``None`` if these do not hold all."""
    mine, theirs = _chosen(dataset, count), _chosen(dataset, fewer)
    places = np.minimum(np.searchsorted(mine, theirs), len(mine) - 1)
    return places if np.array_equal(mine[places], theirs) else None


@functools.lru_cache(maxsize=16)
def _chosen(dataset: Dataset, count: int | None) -> npt.NDArray[np.int64]:
    chosen = chosen_samples(dataset.split("test"), count, dataset.is_stream)
    if not len(chosen):
        raise ConfigError("the test split is empty")
    return np.asarray(chosen)
