"""Two models of each task on the same made-up samples, of which most are judged alike.

Each function draws samples of a population and what two models predict for them.  Models differ on
a tenth of the samples or so, and scores are rounded, so that most differences are 0 and many scores
are equal, as after a quantisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from _paired_pictures import (
    Floats,
    Ints,
    Pair,
    anomaly_maps,
    detections,
    masks,
    poses,
    segmentations,
)

from nnpipe.core.evaluation import Evaluation, Ragged

Draw = Callable[[np.random.Generator, int], Pair]

_WINDOWS, _POINTS = 10, 120  # windows of a block, and points of a series


@dataclass(frozen=True)
class Population:
    """Two models of a task, and how many samples are drawn.

    Parameters
    ----------
    task
        The name of the task.
    metrics
        The metrics to look at.
    draw
        Draws so many independent samples and judges both models on them.
    samples
        The number of independent samples (series, stretches of series) in one simulation.
    many, parts
        The truth is the mean over so many parts of so many samples each.
    quick
        The number of simulations for a first look.
    goal
        The share of intervals that hold the true difference, at least.
    """

    task: str
    metrics: tuple[str, ...]
    draw: Draw
    samples: int = 200
    many: int = 100_000
    parts: int = 4
    quick: int = 60
    goal: float = 0.93


def classifications(random: np.random.Generator, count: int) -> Pair:
    """Return two models that differ for 6 % of the samples."""
    truth = random.integers(0, 7, count).astype(np.int32)
    one = np.where(random.random(count) < 0.2, random.integers(0, 7, count), truth).astype(np.int32)
    change = random.random(count) < 0.06
    other = np.where(change, random.integers(0, 7, count), one).astype(np.int32)
    rank = random.integers(1, 7, count)
    again = np.where(change, random.integers(1, 7, count), rank)
    names = tuple("abcdefg")
    made = [
        {
            "truth": truth,
            "predicted": each,
            "rank": np.where(each == truth, 0, place).astype(np.int32),
        }
        for each, place in ((one, rank), (other, again))
    ]
    return Evaluation("classification", made[0], names), Evaluation(
        "classification", made[1], names
    )


def regressions(random: np.random.Generator, count: int) -> Pair:
    """Return two models whose predictions differ for a tenth of the samples."""
    truth = random.normal(size=(count, 1))
    one = truth + random.normal(0, 0.3, truth.shape)
    other = np.where(
        random.random(truth.shape) < 0.1, one + random.normal(0.2, 0.5, truth.shape), one
    )
    made = [
        {"truth": truth.astype(np.float32), "predicted": each.astype(np.float32)}
        for each in (one, other)
    ]
    return Evaluation("regression", made[0]), Evaluation("regression", made[1])


def anomalies(random: np.random.Generator, count: int) -> Pair:
    """Return two models with many equal scores."""
    truth = (random.random(count) < 0.3).astype(np.int32)
    one = np.round(truth + random.normal(0, 1, count), 1)
    other = np.where(random.random(count) < 0.1, np.round(one + random.normal(0, 1, count), 1), one)
    made = [{"truth": truth, "score": each.astype(np.float32)} for each in (one, other)]
    return Evaluation("anomaly", made[0]), Evaluation("anomaly", made[1])


def forecasts(random: np.random.Generator, count: int) -> Pair:
    """Return two models that differ in a third of the stretches of series; windows of a stretch
    share their errors.
    """
    block = np.repeat(np.arange(count), _WINDOWS)
    shape = (len(block), 4, 1)
    truth = random.normal(size=shape)
    # some stretches are harder than others
    size = np.exp(random.normal(0, 0.4, count))[block, None, None]
    common = random.normal(size=(count, 1, 1))[block]
    one = truth + size * (0.6 * common + 0.4 * random.normal(size=shape))
    change = random.normal(0.05, 0.3, (count, 1, 1)) * (random.random((count, 1, 1)) < 0.3)
    other = one + change[block] * (1 + 0.3 * random.normal(size=shape)) * np.sign(one - truth)
    scale = np.ones((len(block), 1), np.float32)
    made = [
        {
            "truth": truth.astype(np.float32),
            "predicted": each.astype(np.float32),
            "scale": scale,
            "block": block,
        }
        for each in (one, other)
    ]
    return Evaluation("forecast", made[0]), Evaluation("forecast", made[1])


def series(
    random: np.random.Generator,
    count: int,
    thresholds: tuple[float, ...] = (0.9, 0.9, 0.9),
    differing: float = 0.4,
) -> Pair:
    """Return two detectors of anomalies with rounded scores that differ in a part of the series."""
    number = np.repeat(np.arange(count), _POINTS)
    place = np.tile(np.arange(_POINTS), count)
    begin = random.integers(40, _POINTS - 20, count)[number]
    there = (random.random(count) < 0.8)[number]
    window = np.where(there & (place >= begin) & (place < begin + 12), number, -1)
    seen = (random.random(count) < 0.8)[number]  # an anomaly that neither may see
    unusual = (window >= 0) & seen
    one = np.round(np.clip(0.45 + 0.35 * unusual + 0.16 * random.normal(size=len(number)), 0, 1), 1)
    differ = (random.random(count) < differing)[number]
    noisy = np.round(
        np.clip(0.45 + 0.3 * unusual + 0.18 * random.normal(size=len(number)), 0, 1), 1
    )
    other = np.where(differ, noisy, one)
    settings = {"thresholds": list(thresholds)} if thresholds else {}
    made = [
        {"window": window, "series": number, "score": each.astype(np.float32)}
        for each in (one, other)
    ]
    return (
        Evaluation("series_anomaly", made[0], settings=settings),
        Evaluation("series_anomaly", made[1], settings=settings),
    )


def series_at_best(random: np.random.Generator, count: int) -> Pair:
    """Return the two detectors of :func:`series`, each judged at its best threshold."""
    return series(random, count, ())


def rarely_differing_series(random: np.random.Generator, count: int) -> Pair:
    """Return two detectors of which one finds an anomaly that the other does not in 3 of 50
    series on average.
    """
    return series(random, count, differing=0.2)


def retrievals(random: np.random.Generator, count: int) -> Pair:
    """Return two embeddings whose ranks differ for a tenth of the queries; a third of the
    samples is gallery only.
    """
    role = np.where(random.random(count) < 1 / 3, 0, 1).astype(np.int8)
    relevant = np.where(role > 0, random.integers(1, 6, count), 0)
    owner = np.repeat(np.arange(count), relevant)
    hard = random.random(count)[owner]

    def ranks() -> Ints:
        """Draw ranks, ascending and different for each query: most are found first, one after
        the other.
        """
        gaps = 1 + np.where(
            random.random(len(owner)) < 0.3 + 0.4 * hard, random.geometric(0.2, len(owner)), 0
        )
        total = np.cumsum(gaps)
        before = np.concatenate([[0], total])[np.cumsum(relevant) - relevant]
        return np.asarray(total - before[owner])

    one = ranks()
    other = np.where((random.random(count) < 0.1)[owner], ranks(), one)
    arrays = {"truth": np.zeros(count, np.int64), "role": role, "relevant": relevant}
    first, second = (
        Evaluation("embedding", arrays, (), {"ranks": Ragged(each.astype(np.int32), relevant)})
        for each in (one, other)
    )
    return first, second


def generations(random: np.random.Generator, count: int) -> Pair:
    """Return two language models; references have from 1 to some 100 tokens, and half of them are
    told the same.

    A reference of few tokens counts less in the perplexity than a long one, and a token of it is
    harder to tell.
    """
    tokens = np.minimum(1 + random.geometric(0.3, count) * random.integers(1, 12, count), 120)
    there = random.random(count) < 0.9
    hard = np.exp(random.normal(0.3, 0.5, count)) + 1.0 / tokens
    one = -np.round(tokens * hard, 1)
    worse = np.where(random.random(count) < 0.5, random.gamma(0.5, 0.06, count) - 0.01, 0.0)
    other = -np.round(-one * (1 + worse), 1)
    right = random.random(count) < np.exp(-hard * np.minimum(tokens, 3) / 4)
    still = np.where(random.random(count) < 0.08, random.random(count) < 0.3, right)
    prefill = 0.01 * np.exp(random.normal(0, 0.5, count))
    known = np.where(there, tokens, 0)

    def judged(likelihood: Floats, exact: npt.NDArray[np.bool_], first: Floats) -> Evaluation:
        times = np.column_stack([first, np.full((count, 3), 1e-3)])
        arrays = {
            "sample": np.arange(count),
            "exact": np.where(there, exact, -1).astype(np.int8),
            "request_ns": (1e9 * times.sum(axis=1)).astype(np.int64),
            "prompt_tokens": 4 * tokens,
            "reference_tokens": known,
            "log_likelihood": np.where(there, likelihood, np.nan),
        }
        four = np.full(count, 4)
        ragged = {
            "token": Ragged(np.zeros(4 * count, np.int32), four),
            "token_ns": Ragged((1e9 * times).astype(np.int64).reshape(-1), four),
        }
        return Evaluation("generation", arrays, (), ragged)

    slower = prefill * np.exp(random.normal(0.05, 0.1, count))
    return judged(one, right, prefill), judged(other, still, slower)


_SERIES = ("nab_standard", "nab_low_fp", "nab_low_fn")

POPULATIONS = (
    Population(
        "classification",
        ("accuracy", "top_5_accuracy", "mean_precision", "mean_sensitivity", "macro_f1"),
        classifications,
    ),
    Population("regression", ("mae", "rmse", "r2"), regressions),
    Population(
        "segmentation", ("mean_iou", "mean_dice", "pixel_accuracy", "boundary_iou"), segmentations
    ),
    Population("anomaly", ("auc", "best_f1", "pauc"), anomalies),
    Population("anomaly_map", ("au_pro", "pixel_auc", "auc"), anomaly_maps, many=20_000, quick=30),
    Population(
        "embedding", ("recall_at_1", "recall_at_5", "recall_at_10", "map_at_10"), retrievals
    ),
    Population(
        "detection",
        ("map", "ap50", "ap75", "map_large", "ar100"),
        detections,
        many=25_000,
        quick=15,
    ),
    Population(
        "instance_segmentation",
        ("mask_map", "mask_ap50", "mask_ap75", "mask_map_large", "mask_ar100"),
        masks,
        many=25_000,
        quick=15,
    ),
    Population(
        "pose",
        (
            "oks_ap",
            "oks_ap50",
            "oks_ap75",
            "oks_ar",
            "mean_oks",
            "pck",
            "point_distance",
            "greatest_point_distance",
        ),
        poses,
        many=10_000,
        quick=15,
    ),
    Population(
        "generation", ("exact_match", "perplexity", "ttft_mean", "ttft_p90"), generations, quick=15
    ),
    Population("forecast", ("mase", "mae", "rmse"), forecasts, samples=40, many=20_000),
    Population("series_anomaly", _SERIES, series, samples=50, many=1000, parts=40, quick=25),
    Population(
        "series_anomaly at its best",
        _SERIES,
        series_at_best,
        samples=50,
        many=1000,
        parts=40,
        quick=25,
    ),
    # In one of 20 simulations there is no series that decides, and nothing tells then how far apart
    # two could be.
    Population(
        "series_anomaly, rarely differing",
        _SERIES,
        rarely_differing_series,
        samples=50,
        many=1000,
        parts=40,
        quick=25,
        goal=0.88,
    ),
)
"""Populations of each task; detectors of anomalies in series are judged at given thresholds and
at their best.
"""
