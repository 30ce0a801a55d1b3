"""Masks of models in any layout become class numbers of the input's size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from installed import needs
from shared_data import shared_data

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import DatasetSpec, IOSpec, TensorSpec
from nnpipe.datasets import MaskFolderDataset
from nnpipe.decoders import SegmentationDecoder
from nnpipe.measuring.sample_route import SampleRoute
from nnpipe.modelwrappers import TFLiteModel
from nnpipe.tasks.segmentation.metrics import prepare_class_pixels
from nnpipe.tasks.segmentation.task import Segmentation

SPEC = DatasetSpec("segmentation", (), (), ("ground", "cat", "dog"))
MASK = np.random.default_rng(0).integers(0, 3, (2, 6, 8))


def io(output: np.ndarray) -> IOSpec:
    taken = TensorSpec("in", (None, 6, 8, 3), "float32")
    return IOSpec((taken,), (TensorSpec("out", (None, *output.shape[1:]), output.dtype.name),))


def decoded(output: np.ndarray, decoder: SegmentationDecoder) -> np.ndarray:
    decoder.check(io(output), (), SPEC)
    return decoder.decode({"out": output}, io(output))["mask"]


@pytest.mark.parametrize(
    "output",
    [
        MASK,
        MASK[..., None],
        MASK[:, None],
        np.eye(3, dtype=np.float32)[MASK],
        np.eye(3, dtype=np.float32)[MASK].transpose(0, 3, 1, 2),
    ],
)
def test_layouts_are_told_by_their_shape(output: np.ndarray) -> None:
    np.testing.assert_array_equal(decoded(output, SegmentationDecoder()), MASK)


def test_more_classes_than_rows_are_told_from_rows() -> None:
    names = DatasetSpec("segmentation", (), (), tuple(map(str, range(20))))
    scores = np.eye(20, dtype=np.float32)[MASK * 6].transpose(0, 3, 1, 2)
    SegmentationDecoder().check(io(scores), (), names)
    np.testing.assert_array_equal(
        SegmentationDecoder().decode({"out": scores}, io(scores))["mask"], MASK * 6
    )


def test_one_score_is_compared_with_a_threshold() -> None:
    scores = np.where(MASK == 2, 0.7, 0.4).astype(np.float32)
    np.testing.assert_array_equal(decoded(scores[..., None], SegmentationDecoder()), MASK == 2)
    np.testing.assert_array_equal(decoded(scores, SegmentationDecoder(threshold=0.8)), 0 * MASK)


def test_scores_are_enlarged_before_the_greatest_is_chosen() -> None:
    torch = pytest.importorskip("torch")
    scores = np.random.default_rng(0).random((2, 3, 3, 4)).astype(np.float32)
    large = torch.nn.functional.interpolate(
        torch.from_numpy(scores), (6, 8), mode="bilinear"
    ).numpy()
    np.testing.assert_array_equal(decoded(scores, SegmentationDecoder()), large.argmax(axis=1))
    small = decoded(scores, SegmentationDecoder(enlarge="classes"))
    np.testing.assert_array_equal(small, scores.argmax(axis=1))


def test_classes_of_the_model_become_those_of_the_data_set() -> None:
    np.testing.assert_array_equal(
        decoded(MASK, SegmentationDecoder(class_numbers=(2, 0, 0))), np.array([2, 0, 0])[MASK]
    )


@pytest.mark.parametrize(
    ("output", "decoder", "told"),
    [
        (
            np.zeros((1, 6, 8, 5), np.float32),
            SegmentationDecoder(),
            "scores 5 classes, and the data set has 3",
        ),
        (MASK, SegmentationDecoder(class_numbers=(3,)), "names class 3, and the data set has 3"),
        (MASK, SegmentationDecoder(output="mask"), "the model has the outputs out"),
        (np.zeros((1, 6), np.float32), SegmentationDecoder(), "reads masks"),
    ],
)
def test_models_that_do_not_fit_are_refused(
    output: np.ndarray, decoder: SegmentationDecoder, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        decoder.check(io(output), (), SPEC)


def judged(dataset: Dataset, **options: object) -> Evaluation:
    """Return Coral's DeepLab judged on all samples."""
    needs("ai_edge_litert", "PIL")
    model = shared_data("models/coral/deeplabv3_mnv2_dm05_pascal_quant.tflite")
    taken = {"fit": "squeeze", "quantised_input": "raw", "decoder": "SegmentationDecoder"}
    wrapper = TFLiteModel(model_path=model, **taken, **options)
    dataset.prepare()
    wrapper = wrapper.for_dataset(dataset.spec)
    parts = []
    with wrapper.open() as live, live.session() as session:
        route = SampleRoute(dataset, wrapper, wrapper.io, session.io, 1)
        for item in route.items(np.arange(len(dataset))):
            session.put(item.inputs)
            session.run()
            parts += route.evaluate([item], [session.get()])
    return Evaluation.concat(parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "wanted"), [("", (0.9583, 0.9524, 0.9773)), ("_256", (0.9895, 0.9878, 0.9943))]
)
def test_corals_segmenter_finds_the_dog(size: str, wanted: tuple[float, ...]) -> None:
    root = shared_data("models/coral")
    dataset = MaskFolderDataset(
        images=(root / f"dog_segmentation{size}.bmp",),
        masks=(root / f"dog_segmentation_mask{size}.bmp",),
        pixel_classes=("0=dog", "1=background", "2=ignored"),
    )
    numbers = ",".join("0" if number == 12 else "1" for number in range(21))
    found = judged(dataset, decoder_options=(f"class_numbers={numbers}",))
    iou = prepare_class_pixels(found)[1](np.ones(1)).iou
    assert [*iou, Segmentation().metric("pixel_accuracy").compute(found)] == pytest.approx(
        wanted, abs=1e-3
    )


@pytest.mark.slow
def test_corals_segmenter_on_coco(tmp_path: Path) -> None:
    ids = (5, 2, 16, 9, 44, 6, 3, 17, 62, 21, 67, 18, 19, 4, 1, 64, 20, 63, 7, 72)
    dataset = MaskFolderDataset(
        dataset_root=shared_data("coco_val64"),
        class_list=shared_data("models/coral/pascal_voc_segmentation_labels.txt"),
        pixel_classes=(
            "0=ignored",
            "other=background",
            *(f"{number}={place}" for place, number in enumerate(ids, 1)),
        ),
    )
    found = judged(dataset)
    accuracy = Segmentation().metric("pixel_accuracy").compute(found)
    assert [Segmentation().primary.compute(found), accuracy] == pytest.approx(
        [0.4229, 0.8462], abs=1e-3
    )
