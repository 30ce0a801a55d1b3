"""Options name the decoder of a model from a file and change its arguments; its description may
state one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.tensors import DatasetSpec, IOSpec, TensorSpec
from nnpipe.datasets.in_memory import make_image_classification_spec
from nnpipe.decoders import FastestDetDecoder, YOLODecoder
from nnpipe.modelwrappers.files._input_options import ModelFacts
from nnpipe.modelwrappers.files.onnx import ONNXModel

IO = IOSpec(
    (TensorSpec("x", (None, 8, 8, 3), "float32"),), (TensorSpec("y", (None, 6, 20), "float32"),)
)
SPEC = DatasetSpec(
    "detection", (TensorSpec("image", (None, None, None, 3), "uint8"),), (), ("a", "b")
)


def model(stated: dict[str, Any] | None = None, **options: Any) -> ONNXModel:
    """A model of which only inputs, outputs and the decoder in its description are known; there
    is no file.
    """
    wrapper = ONNXModel.from_json({"model_path": "none.onnx", "scale": 1, **options}).with_io(IO)
    return wrapper._with(
        known=ModelFacts(
            None if stated is None else ModelMetadata(decoder=stated), by="none.onnx.json"
        )
    )


def test_options_are_read_as_the_decoder_declares_them() -> None:
    options = ("score_threshold=0.25", "objectness=true", "max-boxes=7")
    found = model(decoder="YOLODecoder", decoder_options=options).output_decoder
    assert found == YOLODecoder(score_threshold=0.25, objectness=True, max_boxes=7)
    assert model().output_decoder is None


def test_a_described_decoder_keeps_its_arguments_unless_they_are_given() -> None:
    stated = YOLODecoder(score_threshold=0.3, coordinates="shares").describe()
    assert model(stated).output_decoder == YOLODecoder(score_threshold=0.3, coordinates="shares")
    changed = model(stated, decoder_options=("overlap=0.5",))
    assert changed.output_decoder == YOLODecoder(
        score_threshold=0.3, coordinates="shares", overlap=0.5
    )
    assert "decoder" in changed.preparation().overridden
    assert "decoder" not in model(stated).preparation().overridden
    assert model(stated, decoder="FastestDetDecoder").output_decoder == FastestDetDecoder()
    assert model(stated, decoder="none").output_decoder is None


def test_outputs_become_predictions_and_the_meaning_says_how() -> None:
    wrapper = model(
        decoder="YOLODecoder", decoder_options=("coordinates=shares",), fit="letterbox"
    ).for_dataset(SPEC)
    output = np.zeros((1, 6, 20), np.float32)
    output[0, :, 3] = [0.5, 0.5, 0.2, 0.4, 0.1, 0.9]
    found = wrapper.postprocess({"y": output})
    np.testing.assert_allclose(found["boxes"][0], [[0.4, 0.3, 0.2, 0.4]], rtol=1e-5)
    assert found["class"].tolist() == [[1]]
    assert found["frame"].tolist() == [[8, 8, 1]]
    meaning = wrapper.meaning
    assert meaning is not None
    assert meaning.decoder == YOLODecoder(coordinates="shares").describe()
    assert meaning.inputs[0].fit == "letterbox"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"decoder": "YOLODecoder", "decoder_options": ("overlap",), "fit": "squeeze"},
            "write NAME=VALUE",
        ),
        (
            {"decoder": "YOLODecoder", "decoder_options": ("overlap=2",), "fit": "squeeze"},
            "above the maximum",
        ),
        (
            {"decoder": "YOLODecoder", "decoder_options": ("objectness=1",), "fit": "squeeze"},
            "neither true nor false",
        ),
        ({"decoder_options": ("overlap=0.5",), "fit": "squeeze"}, "name one with --decoder"),
        ({"decoder": "YOLODecoder"}, "--fit squeeze or --fit letterbox"),
        ({"decoder": "FastestDetDecoder", "fit": "squeeze"}, "of FastestDet; the model gives"),
        (
            {"decoder": "ReconstructionErrorDecoder", "fit": "squeeze"},
            "the data set is for detection",
        ),
    ],
)
def test_decoders_that_cannot_be_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        model(**options).for_dataset(SPEC)


def test_a_decoder_is_not_for_another_task() -> None:
    with pytest.raises(ConfigError, match="the data set is for classification"):
        model(decoder="YOLODecoder").for_dataset(
            make_image_classification_spec(8, 8, 3, ("a", "b"))
        )


def test_a_description_cannot_cause_an_import() -> None:
    stated = {"class": "os.system", "arguments": {}}
    with pytest.raises(ConfigError, match=r"none\.onnx\.json: no OutputDecoder .* --decoder"):
        _ = model(stated).output_decoder
    assert model(stated, decoder="YOLODecoder").output_decoder == YOLODecoder()
