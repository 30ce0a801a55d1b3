"""Every decoder keeps the contract of decoders, with random outputs of its kind of model."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.output_decoder import INPUT, OutputDecoder
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.decoders import (
    AnomalyMapDecoder,
    FastestDetDecoder,
    FinishedBoxesDecoder,
    HeatMapDecoder,
    MaskRCNNDecoder,
    MoveNetDecoder,
    ReconstructionErrorDecoder,
    ScoredBoxesDecoder,
    SegmentationDecoder,
    SSDDecoder,
    YOLODecoder,
    YOLOHeadsDecoder,
    YOLOMasksDecoder,
    YOLOXDecoder,
)
from nnpipe.testing.output_decoder import OutputDecoderContract

RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.random((3, *shape)).astype(np.float32)


def masks_of_boxes() -> dict[str, np.ndarray]:
    return {name: each for name, each in finished().items() if name != "count"} | {
        "masks": drawn(9, 7, 7)
    }


def finished() -> dict[str, np.ndarray]:
    classes = RANDOM.integers(0, 3, (3, 9)).astype(np.float32)
    return {
        "boxes": drawn(9, 4),
        "scores": drawn(9),
        "classes": classes,
        "count": np.array([9.0, 2.0, 0.0]),
    }


class TestDecoders(OutputDecoderContract):
    @pytest.fixture(
        params=[
            pytest.param(
                (FastestDetDecoder(overlap=0.3), lambda: {"out": drawn(8, 4, 4)}), id="FastestDet"
            ),
            pytest.param(
                (FinishedBoxesDecoder(score_threshold=0.3, class_offset=1), finished),
                id="finished boxes",
            ),
            pytest.param(
                (
                    SSDDecoder(strides=(16, 32), max_boxes=9),
                    lambda: {"boxes": drawn(72, 4), "scores": drawn(72, 3)},
                ),
                id="SSD",
            ),
            pytest.param(
                (
                    ScoredBoxesDecoder(score_threshold=0.3),
                    lambda: {"boxes": drawn(9, 4), "scores": drawn(9, 3)},
                ),
                id="scored boxes",
            ),
            pytest.param(
                (YOLODecoder(objectness=True), lambda: {"out": 64 * drawn(60, 8)}), id="YOLO"
            ),
            pytest.param(
                (
                    YOLOHeadsDecoder(version="v8"),
                    lambda: {"a": drawn(67, 8, 8), "b": drawn(67, 4, 4)},
                ),
                id="YOLO's heads",
            ),
            pytest.param(
                (YOLOXDecoder(per_box="all", strides=(8, 16)), lambda: {"out": drawn(80, 8)}),
                id="YOLOX",
            ),
            pytest.param((MaskRCNNDecoder(score_threshold=0.3), masks_of_boxes), id="Mask R-CNN"),
            pytest.param(
                (
                    YOLOMasksDecoder(),
                    lambda: {"out": 64 * drawn(12, 60), "prototypes": drawn(4, 16, 16)},
                ),
                id="YOLO's masks",
            ),
            pytest.param((HeatMapDecoder(), lambda: {"out": drawn(6, 8, 5)}), id="heat maps"),
            pytest.param(
                (MoveNetDecoder(score_threshold=0.5), lambda: {"out": drawn(4, 7, 3)}), id="MoveNet"
            ),
            pytest.param(
                (SegmentationDecoder(class_numbers=(1, 0, 2)), lambda: {"out": drawn(3, 9, 9)}),
                id="masks",
            ),
            pytest.param(
                (
                    ReconstructionErrorDecoder(reduction="max"),
                    lambda: {"out": drawn(5), INPUT + "in": drawn(5)},
                ),
                id="reconstruction",
            ),
            pytest.param(
                (
                    AnomalyMapDecoder(),
                    lambda: {"anomaly_map": drawn(1, 16, 16), "pred_score": drawn()},
                ),
                id="map",
            ),
        ]
    )
    def case(self, request: pytest.FixtureRequest) -> tuple[OutputDecoder, Batch]:
        decoder, make = request.param
        return decoder, make()

    @pytest.fixture
    def decoder(self, case: tuple[OutputDecoder, Batch]) -> OutputDecoder:
        return case[0]

    @pytest.fixture
    def outputs(self, case: tuple[OutputDecoder, Batch]) -> Batch:
        return case[1]

    @pytest.fixture
    def io(self, case: tuple[OutputDecoder, Batch]) -> IOSpec:
        given = {name: array for name, array in case[1].items() if not name.startswith(INPUT)}
        shape = (None, 5) if len(given) < len(case[1]) else (None, 64, 64, 3)
        outputs = tuple(
            TensorSpec(name, (None, *array.shape[1:]), "float32") for name, array in given.items()
        )
        return IOSpec((TensorSpec("in", shape, "float32"),), outputs)
