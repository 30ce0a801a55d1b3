"""YOLOv3 from Darknet's files, and from ONNX and Keras, computes what other code computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from darknet_files import TINY, computed, drawn_parameters, drawn_sections, write_cfg, write_weights
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from installed import needs
from property_examples import examples
from repeated import RULES_OF_SESSIONS, SAME_IN_A_FRAMEWORK

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, NotSupported
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.core.tensors import generate_random_batch
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets import SyntheticDetectionDataset
from nnpipe.modelwrappers import YOLOv3
from nnpipe.testing.modelwrapper import ModelWrapperContract

needs("torch", "safetensors")


def tiny(folder: Path, seed: int = 0) -> tuple[YOLOv3, Path]:
    """Return the wrapper of a tiny network, and a file of its weights."""
    weights = write_weights(folder / "tiny.weights", drawn_parameters(TINY, seed))
    return YOLOv3(network=write_cfg(folder / "tiny.cfg", TINY)), weights


@pytest.mark.slow
class TestYOLOv3(ModelWrapperContract):
    repeats = SAME_IN_A_FRAMEWORK | RULES_OF_SESSIONS

    @pytest.fixture
    def wrapper(self, tmp_path_factory: pytest.TempPathFactory) -> ModelWrapper:
        return YOLOv3(network=write_cfg(tmp_path_factory.mktemp("network") / "tiny.cfg", TINY))

    @pytest.fixture
    def dataset(self) -> Dataset:
        return SyntheticDetectionDataset(image_size=(32, 64))


def assert_same(
    wrapper: YOLOv3, weights: Path, sections: list, parameters: list, count: int = 2
) -> None:
    import torch

    batch = generate_random_batch(wrapper.io, count)
    with wrapper.open() as live:
        live.load(weights)
        with live.session() as session:
            found = session.infer(batch)
    expected = computed(sections, parameters, torch.from_numpy(batch["image"]))
    assert list(found) == [spec.name for spec in wrapper.io.outputs]
    for values, wanted in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(values, wanted.numpy(), rtol=1e-4, atol=1e-4)


def test_a_network_with_every_layer_of_tiny_yolov3(tmp_path: Path) -> None:
    wrapper, weights = tiny(tmp_path)
    assert [(spec.name, spec.shape) for spec in wrapper.io.outputs] == [
        ("yolo_7", (None, 14, 8, 16)),
        ("yolo_12", (None, 14, 16, 32)),
    ]
    assert_same(wrapper, weights, TINY, drawn_parameters(TINY))


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 1 << 32))
def test_random_networks(tmp_path: Path, seed: int) -> None:
    sections = drawn_sections(seed)
    parameters = drawn_parameters(sections, seed)
    wrapper = YOLOv3(network=write_cfg(tmp_path / "drawn.cfg", sections))
    assert_same(
        wrapper, write_weights(tmp_path / "drawn.weights", parameters), sections, parameters
    )


def test_pictures_and_boxes_are_those_of_darknet(tmp_path: Path) -> None:
    wrapper, weights = tiny(tmp_path)
    dataset = SyntheticDetectionDataset(num_samples=8, image_size=(64, 64))
    fitted = wrapper.for_dataset(dataset.spec)
    decoder = fitted.output_decoder
    assert decoder is not None
    assert decoder.to_json()["anchors"] == [4, 5, 8, 9, 12, 20, 30, 25]
    assert decoder.to_json()["suppression"] == "outside"
    samples, truth = dataset.read(np.arange(2))
    picture = fitted.preprocess(samples)["image"]
    assert picture.shape == (2, 3, 32, 64)
    assert np.all(picture[..., :16] == 0.5)  # the letterbox: 32 x 32 in the centre, the rest grey
    assert np.all(picture[..., 48:] == 0.5)
    with fitted.open() as live:
        live.load(weights)
        with live.session() as session:
            found = dataset.evaluate(fitted.postprocess(session.infer({"image": picture})), truth)
    assert len(found) == 2


def test_what_does_not_fit_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    wrapper, weights = tiny(tmp_path)
    batch = generate_random_batch(wrapper.io, 1)
    with wrapper.open() as live:
        live.load(weights)
        with live.session() as session:
            before = session.infer(batch)
        weights.write_bytes(weights.read_bytes()[:-4])
        with pytest.raises(ArtifactError, match="cut short"):
            live.load(weights)
        with live.session() as session:
            np.testing.assert_array_equal(session.infer(batch)["yolo_7"], before["yolo_7"])
        with pytest.raises(NotSupported, match="cannot be trained"):
            live.train(SyntheticDetectionDataset(num_samples=8), TrainingOptions())


def test_heads_that_the_decoder_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    twice = [*TINY, ("route", {"layers": "-2"}), TINY[-1]]
    with pytest.raises(ConfigError, match="grids of different sizes"):
        _ = YOLOv3(network=write_cfg(tmp_path / "twice.cfg", twice)).output_decoder


def test_the_name_is_that_of_the_wrapper() -> None:
    assert find("YOLOv3", ModelWrapper) is YOLOv3


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "keras"])
def test_the_same_network_from_other_files(tmp_path: Path, format: str) -> None:
    needs("onnxruntime", "h5py")
    wrapper, weights = tiny(tmp_path)
    batch = generate_random_batch(wrapper.io, 2)
    with wrapper.open() as live:
        live.load(weights)
        live.export(tmp_path / "tiny.onnx", "onnx")
        with live.session() as session:
            expected = session.infer(batch)
    path = tmp_path / "tiny.onnx"
    if format == "keras":
        declared = find("DeclaredModel", ModelWrapper).from_json({"network": str(path)})
        path = tmp_path / "tiny.keras"
        declared.open().export(path, "keras")
    (path.parent / f"{path.name}.json").unlink(missing_ok=True)
    other = YOLOv3(network=path, decoder_options=("anchors=4,5,8,9,12,20,30,25",))
    assert other.output_decoder is not None
    with other.open().session() as session:
        found = session.infer({other.io.inputs[0].name: batch["image"]})
    for values, wanted in zip(found.values(), expected.values(), strict=True):
        np.testing.assert_allclose(values, wanted, atol=1e-4)
