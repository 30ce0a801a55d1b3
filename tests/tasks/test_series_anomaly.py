"""NAB's score equals the published figures, and its definition carried out point by point."""

from __future__ import annotations

import json
import math
import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples
from shared_data import shared_data

from nnpipe.core.errors import ConfigError, DatasetError, SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.task import get_task
from nnpipe.core.tensors import DatasetSpec
from nnpipe.datasets.series_anomalies import SeriesScoresDataset
from nnpipe.tasks import SeriesAnomaly
from nnpipe.tasks.series_anomaly.task import PROFILES, CostProfile, create_point_detections
from nnpipe.testing.dataset import DatasetContract

NAMES = {"standard": "standard", "low_fp": "reward_low_FP_rate", "low_fn": "reward_low_FN_rate"}


def judged(
    score: np.ndarray, window: np.ndarray, series: np.ndarray, **arguments: object
) -> Evaluation:
    truth = {"window": window, "series": series}
    return SeriesAnomaly(**arguments).evaluate(
        {"score": score}, truth, DatasetSpec("series_anomaly", (), ())
    )


def by_definition(
    found: Evaluation, weights: list[int], threshold: float, profile: CostProfile
) -> float:
    """Return the score as NAB's paper defines it, point by point."""

    def sigmoid(x: float) -> float:
        return 2 / (1 + math.exp(5 * x)) - 1

    total = least = most = 0.0
    for number, weight in enumerate(weights):
        points = np.flatnonzero(found.arrays["series"] == number)
        window, score = found.arrays["window"][points], found.arrays["score"][points]
        spans = {w: np.flatnonzero(window == w) for w in window[window >= 0]}
        best = dict.fromkeys(spans, -profile.false_negative)
        start, last = min(math.floor(0.15 * len(points)), 750), None
        for place in range(len(points)):
            if window[place] >= 0:
                last = window[place]
            if place < start or score[place] < threshold:
                continue
            if window[place] >= 0:
                inside = spans[window[place]]
                worth = sigmoid(-(inside[-1] - place + 1) / len(inside)) / sigmoid(-1)
                best[window[place]] = max(best[window[place]], worth)
                continue
            worth = -1.0
            if last is not None and len(spans[last]) > 1:
                distance = (place - spans[last][-1]) / (len(spans[last]) - 1)
                worth = -1.0 if distance > 3 else sigmoid(distance)
            total += weight * profile.false_positive * worth
        total += weight * sum(best.values())
        least -= weight * profile.false_negative * len(spans)
        most += weight * len(spans)
    return 100 * (total - least) / (most - least) if most else math.nan


@st.composite
def series_of_points(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scores, windows, series = [], [], []
    for number in range(draw(st.integers(1, 3))):
        window: list[int] = []
        for place in range(draw(st.integers(0, 3))):
            window += [-1] * draw(st.integers(0 if place else 1, 12)) + [place] * draw(
                st.integers(1, 8)
            )
        window += [-1] * draw(st.integers(1, 25))
        scores += draw(
            st.lists(
                st.sampled_from([0.0, 0.2, 0.5, 0.9]), min_size=len(window), max_size=len(window)
            )
        )
        windows += window
        series += [number] * len(window)
    return np.array(scores), np.array(windows), np.array(series)


@given(series_of_points(), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_the_score_is_that_of_the_definition(points, data):
    thresholds = data.draw(st.tuples(*[st.sampled_from([0.1, 0.2, 0.7, 1.0])] * 3))
    weights = [data.draw(st.integers(0, 3)) for _ in range(int(points[2].max()) + 1)]
    fixed, free = judged(*points, thresholds=thresholds), judged(*points)
    of_points = np.array(weights, np.float64)[points[2]]
    for profile, threshold in zip(PROFILES, thresholds, strict=True):
        metric = SeriesAnomaly().metric(f"nab_{profile.name}")
        wanted = by_definition(fixed, weights, threshold, profile)
        np.testing.assert_allclose(metric.build_statistic(fixed)(of_points), wanted, atol=1e-9)
        best = max(by_definition(free, weights, t, profile) for t in (0.0, 0.2, 0.5, 0.9, 1.0))
        np.testing.assert_allclose(metric.build_statistic(free)(of_points), best, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("detector", "raw", "counts"),
    [
        ("numenta", 46.6344501971, {"tp": 240, "tn": 299194, "fp": 153, "fn": 33255}),
        ("windowedGaussian", -24.0131054891, {"tp": 521, "tn": 298938, "fp": 409, "fn": 32974}),
    ],
)
def test_published_totals_follow_from_published_scores(tmp_path, detector, raw, counts):
    nab = shared_data("nab")
    with tarfile.open(nab / f"results_{detector}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    thresholds = json.loads((nab / "config/thresholds.json").read_text("utf-8"))[detector]
    wanted = json.loads((nab / "results/final_results.json").read_text("utf-8"))[detector]
    dataset = SeriesScoresDataset(
        dataset_root=tmp_path / "results" / detector,
        windows=nab / "labels/combined_windows.json",
        thresholds=tuple(thresholds[NAMES[profile.name]]["threshold"] for profile in PROFILES),
    )
    found = dataset.evaluate(*dataset.read(dataset.split("test")))
    assert len(found) == 365_558
    for profile in PROFILES:
        value = dataset.task.metric(f"nab_{profile.name}").compute(found)
        assert value == pytest.approx(wanted[NAMES[profile.name]], abs=1e-6)
        best = get_task("series_anomaly").metric(f"nab_{profile.name}")
        assert best.compute(Evaluation(found.task, found.arrays)) >= value - 1e-9
    assert create_point_detections(found).count_outcomes(dataset.thresholds[0]) == counts
    standard = dataset.task.metric("nab_standard").compute(found)
    assert standard / 100 * 232 - 116 == pytest.approx(raw, abs=1e-6)


def test_scores_that_are_no_numbers_hide_no_alarm():
    window, series = np.array([-1] * 6 + [0, 0] + [-1] * 4), np.zeros(12, np.int64)
    for number in (np.nan, np.inf, -np.inf):
        for metric in SeriesAnomaly().metrics:
            sure = judged(np.where(window == 0, 1.0, 0.0), window, series)
            outside = judged(np.where(window == 0, 1.0, number), window, series)
            assert metric.compute(sure) == pytest.approx(100)
            assert metric.compute(outside) < 100
            assert outside.not_finite.sum() == 10


def test_tasks_and_scores_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="one for each of standard, low_fp, low_fn"):
        SeriesAnomaly(thresholds=(0.1, 0.2))
    with pytest.raises(SpecMismatch, match=r"numbers of the shape \(2\)"):
        judged(np.zeros((2, 2)), np.array([-1, 0]), np.zeros(2, np.int64))


# -- files
# ------------------------------------------------------------------------------------------


def put_series(root, name: str, count: int = 12) -> None:
    (root / "part").mkdir(parents=True, exist_ok=True)
    rows = [f"2020-01-01 00:{i:02}:00,{i / count},{int(4 <= i < 6)}" for i in range(count)]
    (root / "part" / name).write_text(
        "timestamp,anomaly_score,label\n" + "\n".join(rows) + "\n", "utf-8"
    )


class TestSeriesScores(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path):
        for name in ("x_one.csv", "x_two.csv"):
            put_series(tmp_path / "root", name)
        return SeriesScoresDataset(dataset_root=tmp_path / "root", thresholds=(0.5,))

    def perfect(self, dataset, truth):
        return {"score": (truth["window"] >= 0).astype(np.float64)}


def test_windows_are_those_of_the_file_or_the_labels(tmp_path):
    put_series(tmp_path / "root", "x_one.csv")
    windows = tmp_path / "windows.json"
    spans = {"part/one.csv": [["2020-01-01 00:04:00.000000", "2020-01-01 00:05:00.000000"]]}
    windows.write_text(json.dumps(spans), "utf-8")
    labelled = SeriesScoresDataset(dataset_root=tmp_path / "root").samples
    timed = SeriesScoresDataset(dataset_root=tmp_path / "root", windows=windows).samples
    wanted = [-1, -1, -1, -1, 0, 0, -1, -1, -1, -1, -1, -1]
    np.testing.assert_array_equal(labelled.targets["window"], wanted)
    np.testing.assert_array_equal(timed.targets["window"], wanted)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([], "should hold the windows of each series"),
        ({"part/one.csv": [["2020"]]}, "each a first and a last time"),
        ({"part/one.csv": [["soon", "later"]]}, "'soon' is no time"),
        ({"part/one.csv": [["2021-01-01", "2021-01-02"]]}, "has no points from 2021"),
        ({"part/three.csv": []}, "has no scores of 'part/three.csv'"),
    ],
)
def test_windows_that_do_not_fit_are_refused_in_one_line(tmp_path, spans, message):
    put_series(tmp_path / "root", "x_one.csv")
    (tmp_path / "windows.json").write_text(json.dumps(spans), "utf-8")
    dataset = SeriesScoresDataset(dataset_root=tmp_path / "root", windows=tmp_path / "windows.json")
    with pytest.raises(DatasetError, match=message) as caught:
        dataset.prepare()
    assert "\n" not in str(caught.value)
