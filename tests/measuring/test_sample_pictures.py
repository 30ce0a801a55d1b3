"""Of the samples with which a model did worst, small pictures and curves are kept."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.preprocessing import IMAGE_SIZE
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.measuring.sample_pictures import CURVE, LARGEST, PICTURE, with_worst_samples


class Regressed(InMemoryDataset):
    """Twelve samples for a regression."""

    @property
    def spec(self) -> DatasetSpec:
        return DatasetSpec("regression", (), ())

    def load(self) -> Samples:
        raise NotImplementedError


def given(**inputs: np.ndarray) -> Dataset:
    class Given(Regressed):
        def read(self, indices: Any) -> tuple[Batch, Batch]:
            return {name: values[indices] for name, values in inputs.items()}, {}

    return Given()


ERRORS = np.array([0, 0, 5, 0, 0, 0, 9, 0, 1, 0, 0, 0], np.float32)
JUDGED = Evaluation("regression", {"truth": np.zeros(12, np.float32), "predicted": ERRORS})


def kept(inputs: Dataset, name: str, count: int = 6, judged: Evaluation = JUDGED) -> list[int]:
    found = with_worst_samples(judged, inputs, np.arange(12), count)
    return np.flatnonzero(found.ragged[name].counts).tolist() if name in found.ragged else []


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_pictures_of_the_worst_samples_are_kept_small(kind: str) -> None:
    needs("PIL")
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (12, 400, 300, 3)).astype(kind)
    images = given(image=pixels / 255 if kind == "float32" else pixels)
    assert kept(images, PICTURE) == [2, 6, 8]
    assert kept(images, PICTURE, 1) == [6]
    assert kept(images, PICTURE, 0) == []
    content = with_worst_samples(JUDGED, images, np.arange(12), 6).ragged[PICTURE][6].tobytes()
    assert len(content) <= LARGEST
    with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
        assert image.size == (180, 240)


def test_padding_is_left_out_and_grey_images_stay_grey() -> None:
    needs("PIL")
    from PIL import Image

    image, sizes = (
        np.zeros((12, 40, 60, 1), np.uint8),
        np.tile(np.array([[20, 50]], np.int32), (12, 1)),
    )
    found = with_worst_samples(JUDGED, given(image=image, **{IMAGE_SIZE: sizes}), np.arange(12), 1)
    with Image.open(io.BytesIO(found.ragged[PICTURE][6].tobytes())) as shown:
        assert (shown.size, shown.mode) == ((50, 20), "L")


def test_sounds_and_series_are_kept_as_curves() -> None:
    wave = np.tile(np.sin(np.arange(16000) / 50), (12, 1)).astype(np.float32)
    found = with_worst_samples(JUDGED, given(sound=wave), np.arange(12), 2).ragged[CURVE]
    assert found.counts.tolist() == [0, 0, 160, 0, 0, 0, 160, 0, 0, 0, 0, 0]
    assert found[6].min() == pytest.approx(-1, abs=1e-3)
    assert (found[6][:, 0] <= found[6][:, 1]).all()
    series = np.arange(12 * 24 * 2, dtype=np.float32).reshape(12, 24, 2)
    assert with_worst_samples(JUDGED, given(series=series), np.arange(12), 1).ragged[CURVE][
        6
    ].tolist() == [[x, x] for x in series[6, :, 0]]


def test_nothing_is_kept_of_features_of_right_samples_and_of_samples_that_do_not_count() -> None:
    assert kept(given(features=np.zeros((12, 30), np.float32)), CURVE) == []
    sounds = given(sound=np.zeros((12, 2000), np.float32))
    right = Evaluation("regression", {"truth": ERRORS, "predicted": ERRORS})
    assert kept(sounds, CURVE, judged=right) == []
    unknown = np.where(ERRORS == 9, np.nan, ERRORS).astype(np.float32)
    assert kept(
        sounds, CURVE, judged=Evaluation("regression", {"truth": 0 * ERRORS, "predicted": unknown})
    ) == [2, 8]
    # entries are no samples, as of clips
    assert with_worst_samples(JUDGED, sounds, np.arange(5), 6) is JUDGED


def test_a_measurement_outlives_a_sample_that_is_gone() -> None:
    class Gone(Regressed):
        def read(self, indices: Any) -> tuple[Batch, Batch]:
            raise DatasetError("it is not there any more")

    assert with_worst_samples(JUDGED, Gone(), np.arange(12), 6) is JUDGED


def test_pixels_from_0_to_16_are_drawn_from_black_to_white() -> None:
    needs("PIL")
    from PIL import Image

    digits = DigitsDataset()
    digits.prepare()
    truth = digits.samples.targets["label"][:12]
    arrays = {"truth": truth.astype(np.int32), "predicted": ((truth + 1) % 10).astype(np.int32)}
    judged = Evaluation(
        "classification", {**arrays, "rank": np.ones(12, np.int64)}, digits.spec.class_names
    )
    content = with_worst_samples(judged, digits, np.arange(12), 1).ragged[PICTURE][0].tobytes()
    with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
        assert image.getextrema()[1] > 200
