"""The metrics of anomaly maps are scikit-learn's AUC of pixels and the per-region overlap as it
was published.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from installed import ImportedWhenUsed

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.tasks import AnomalyMaps
from nnpipe.tasks.anomaly_map.metrics import MOST_LEVELS
from nnpipe.tasks.anomaly_map.task import find_regions
from nnpipe.tasks.frames import create_frames, resample_to_picture

sk = ImportedWhenUsed("sklearn.metrics")
ndimage = ImportedWhenUsed("scipy.ndimage")
TASK = AnomalyMaps()
SPEC = DatasetSpec("anomaly_map", (), ())


def random_case(
    random: np.random.Generator, pictures: int, side: int, levels: int | None
) -> tuple[Batch, Batch]:
    """Return maps and masks with rough regions, some of them empty; maps have ties if ``levels``
    are given.
    """
    masks = np.zeros((pictures, side, side), np.int8)
    for mask in masks:
        for _ in range(int(random.integers(0, 4))):
            top, left = random.integers(0, side - 3, 2)
            part = mask[
                top : top + random.integers(2, side // 2),
                left : left + random.integers(2, side // 2),
            ]
            part[random.random(part.shape) < 0.8] = 1
    maps = random.normal(size=masks.shape) + masks * random.uniform(0, 3, (pictures, 1, 1))
    if levels is not None:
        maps = np.floor(np.clip(maps + 3, 0, 9) * levels / 9)
    masks[random.random(masks.shape) < 0.02] = -1
    return {"map": maps.astype(np.float32)}, {
        "mask": masks,
        "anomalous": (masks > 0).any(axis=(1, 2)).astype(np.int64),
    }


def plain_au_pro(maps: np.ndarray, masks: np.ndarray, limit: float = 0.3) -> float:
    """Compute the overlap of each region at each threshold, as Bergmann et al.

    (2021) define it, without a shortcut.
    """
    regions = []
    for place, mask in enumerate(masks):
        labels, count = ndimage.label(mask > 0, structure=np.ones((3, 3)))
        regions += [maps[place][labels == number] for number in range(1, count + 1)]
    good = maps[masks == 0]
    points = [(0.0, 0.0)]
    for threshold in np.unique(maps)[::-1]:
        overlap = np.mean([np.mean(region >= threshold) for region in regions])
        points.append((float(np.mean(good >= threshold)), float(overlap)))
    area = 0.0
    for (x, y), (next_x, next_y) in itertools.pairwise(points):
        if next_x > limit:
            if x < limit:
                area += (limit - x) * (y + y + (next_y - y) * (limit - x) / (next_x - x)) / 2
            break
        area += (next_x - x) * (y + next_y) / 2
    return area / limit


def test_metrics_are_those_of_scikit_learn_and_of_the_plain_definition() -> None:
    random = np.random.default_rng(0)
    for case in range(12):
        predictions, truth = random_case(
            random, int(random.integers(1, 5)), 16, (5, 40, None)[case % 3]
        )
        found = TASK.evaluate(predictions, truth, SPEC)
        values = {metric.name: metric.compute(found) for metric in TASK.metrics}
        masks, maps = truth["mask"], predictions["map"]
        if not (masks > 0).any():
            assert np.isnan(values["pixel_auc"])
            assert np.isnan(values["au_pro"])
            continue
        counted = masks >= 0
        wanted = sk.roc_auc_score(masks[counted] > 0, maps[counted])
        assert values["pixel_auc"] == pytest.approx(wanted, abs=1e-12)
        assert values["au_pro"] == pytest.approx(plain_au_pro(maps, masks), abs=1e-12)
        np.testing.assert_allclose(
            found.arrays["score"], maps.max(axis=(1, 2), initial=-np.inf, where=counted)
        )


def test_of_many_scores_neighbouring_ones_are_put_together_with_little_loss() -> None:
    random = np.random.default_rng(1)
    predictions, truth = random_case(random, 4, 200, None)
    found = TASK.evaluate(predictions, truth, SPEC)
    assert found.ragged["level"].counts.max() <= MOST_LEVELS
    counted = truth["mask"] >= 0
    wanted = sk.roc_auc_score(truth["mask"][counted] > 0, predictions["map"][counted])
    assert TASK.metric("pixel_auc").compute(found) == pytest.approx(wanted, abs=2e-5)
    steps = np.floor(predictions["map"] * 60)  # few enough scores for each to be a level
    exact = TASK.evaluate({"map": steps}, truth, SPEC)
    assert len(np.unique(steps)) < MOST_LEVELS
    assert TASK.metric("au_pro").compute(found) == pytest.approx(
        TASK.metric("au_pro").compute(exact), abs=1e-3
    )


def test_regions_are_those_of_scipy() -> None:
    random = np.random.default_rng(2)
    for _ in range(200):
        mask = random.random(random.integers(1, 40, 2)) < random.uniform(0, 0.8)
        wanted, count = ndimage.label(mask, structure=np.ones((3, 3)))
        found = find_regions(mask)
        assert found.max(initial=0) == count
        pairs = np.unique(np.stack([wanted.ravel(), found.ravel()]), axis=1)
        assert pairs.shape[1] == len(np.unique(wanted))  # one number of ours for each of theirs


def test_maps_of_another_size_are_interpolated() -> None:
    functional = pytest.importorskip("torch.nn.functional", reason="PyTorch is not installed")
    torch = pytest.importorskip("torch")
    small = np.random.default_rng(3).random((5, 7)).astype(np.float32)
    whole = resample_to_picture(small, create_frames(1, 64, 64, "squeeze")[0], np.array([33, 50]))
    wanted = functional.interpolate(torch.from_numpy(small)[None, None], (33, 50), mode="bilinear")[
        0, 0
    ].numpy()
    np.testing.assert_allclose(whole, wanted, atol=1e-6)
    # Of a letterboxed picture, the part of the map outside it is left out.
    boxed = np.zeros((8, 8), np.float32)
    boxed[2:6] = 1
    assert (
        resample_to_picture(
            boxed, create_frames(1, 8, 8, "letterbox-centre")[0], np.array([16, 32])
        )[2:-2].min()
        == 1
    )
    mask = np.zeros((1, 16, 32), np.int8)
    mask[:, :8] = 1
    truth = {"mask": mask, "anomalous": np.ones(1, int)}
    given = {"map": np.repeat([[[1.0], [0.0]]], 2, axis=2)}
    assert TASK.metric("pixel_auc").compute(TASK.evaluate(given, truth, SPEC)) == 1


def test_a_map_with_what_is_no_number_is_the_worst_and_what_is_no_map_is_refused() -> None:
    truth = {"mask": np.array([[[1, 0, -1]]], np.int8), "anomalous": np.ones(1, int)}
    found = TASK.evaluate({"map": np.array([[[0.5, np.nan, 9]]])}, truth, SPEC)
    assert found.not_finite.tolist() == [True]
    assert found.arrays["score"].tolist() == [-np.inf]
    assert TASK.metric("pixel_auc").compute(found) == 0
    for wrong in (np.zeros((1, 2, 3, 3)), np.zeros((2, 1, 3)), np.zeros((1, 0, 3))):
        with pytest.raises(SpecMismatch, match="AnomalyMapDecoder"):
            TASK.evaluate({"map": wrong}, truth, SPEC)
