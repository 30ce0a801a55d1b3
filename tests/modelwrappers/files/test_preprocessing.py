"""Samples become what a foreign model takes, and its outputs what is judged, by options alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core import preprocessing, registry
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError
from nnpipe.core.image_conversion import convert_channels, resize_images
from nnpipe.core.layout import fit
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec
from nnpipe.datasets.in_memory import make_image_classification_spec
from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN
from nnpipe.modelwrappers.files._input_options import ModelFacts
from nnpipe.modelwrappers.files.keras import KerasModel
from nnpipe.modelwrappers.files.onnx import ONNXModel

NAMES = ("a", "b", "c")


def model(taken: TensorSpec, *given: TensorSpec, **options: Any) -> ONNXModel:
    """A model of which only inputs and outputs are known; there is no file."""
    outputs = given or (TensorSpec("y", (None, 3), "float32"),)
    return ONNXModel.from_json({"model_path": "none.onnx", **options}).with_io(
        IOSpec((taken,), outputs)
    )


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def prepared(taken: TensorSpec, pixels: np.ndarray, **options: Any) -> np.ndarray:
    wrapper = model(taken, **options)
    spec = make_image_classification_spec(*pixels.shape[1:], NAMES)
    found = wrapper.for_dataset(spec).preprocess({"image": pixels})
    assert list(found) == [taken.name]
    array = found[taken.name]
    taken.check(array)
    assert array.flags.c_contiguous
    return array


# -- numbers
# ----------------------------------------------------------------------------------------


def test_scale_mean_and_deviation_come_in_this_order() -> None:
    pixels = images(2, 4, 4, 3)
    found = prepared(
        TensorSpec("x", (None, 3, 4, 4), "float32"),
        pixels,
        scale=255,
        mean=[0.5, 0.25, 0.125],
        deviation=[2, 4, 8],
    )
    expected = (pixels / 255 - [0.5, 0.25, 0.125]) / [2, 4, 8]
    np.testing.assert_allclose(found, expected.transpose(0, 3, 1, 2), rtol=1e-6, atol=1e-7)


def test_colours_are_turned_before_means_are_subtracted() -> None:
    pixels = images(2, 4, 4, 3)
    taken = TensorSpec("x", (None, 4, 4, 3), "float32")
    found = prepared(taken, pixels, channel_order="bgr", mean=[100, 110, 120])
    np.testing.assert_array_equal(found, pixels[..., ::-1] - np.array([100, 110, 120], np.float32))


@pytest.mark.parametrize(
    ("dtype", "scale", "zero", "options", "expected"),
    [
        ("int8", 1.0, -128, {}, lambda p: p.astype(int) - 128),
        ("int8", 1 / 255, -128, {"scale": 255}, lambda p: p.astype(int) - 128),
        ("uint8", 1 / 128, 128, {"quantised_input": "raw"}, lambda p: p),
        ("int8", 0.01, 3, {"quantised_input": "raw"}, lambda p: p.astype(int) - 128),
        ("uint8", 1 / 128, 128, {"scale": 128, "mean": [1]}, lambda p: p),
        ("uint8", None, None, {}, lambda p: p),
        (
            "int32",
            None,
            None,
            {"scale": 10},
            lambda p: np.rint(p.astype(np.float32) / np.float32(10)),
        ),
    ],
)
def test_quantised_inputs_are_stored_as_the_file_or_the_user_says(
    dtype: str, scale: float | None, zero: int | None, options: dict[str, Any], expected: Any
) -> None:
    pixels = images(3, 4, 4, 1)
    found = prepared(TensorSpec("x", (None, 4, 4, 1), dtype, scale, zero), pixels, **options)
    np.testing.assert_array_equal(found, expected(pixels))


def test_pixels_far_beyond_what_an_input_holds_are_answered_with_options() -> None:
    taken = TensorSpec("x", (None, 4, 4, 1), "uint8", 1 / 128, 128)
    with pytest.raises(ConfigError, match=r"takes numbers from -1 to .* or --quantised-input raw"):
        prepared(taken, np.full((1, 4, 4, 1), 255, np.uint8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0}, "--scale divides"),
        ({"deviation": [1.0, 0.0, 1.0]}, "--deviation divides"),
        ({"mean": [1.0, 2.0]}, "--mean has 2 numbers.* have 3 channels"),
        ({"quantised_input": "raw", "scale": 2}, "leave out --scale"),
        ({"quantised_input": "raw"}, "takes float32"),
        ({"class_offset": 2}, "1 classes apart after 2"),
        ({"class_count": 5}, "--class-count is 5, the data set has 3"),
        ({"result_output": "z"}, "has no output 'z'"),
    ],
)
def test_options_that_cannot_work_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        prepared(TensorSpec("x", (None, 4, 4, 3), "float32"), images(1, 4, 4, 3), **options)
    assert "\n" not in str(caught.value)


# -- shapes
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("have", "want", "order", "size"),
    [
        ((28, 28, 1), (1, 28, 28), "nchw", None),
        ((28, 28, 1), (28, 28, 1), "nhwc", None),
        ((28, 28, 1), (28, 28), "hw", None),
        ((28, 28, 1), (784,), "flat", None),
        ((28, 28, 1), (784, 1), "flat", None),
        ((32, 32, 3), (3, 224, 224), "nchw", (224, 224)),
        ((32, 48, 3), (24, 16, 3), "nhwc", (24, 16)),
        ((32, 32, 3), (3, None, None), "nchw", None),
        ((None, None, 3), (None, None, 3), "nhwc", None),
        ((8,), (8,), "flat", None),
        ((8,), (1, 8), "flat", None),
        ((4, 6), (4, 6), "flat", None),
    ],
)
def test_ways_from_sample_to_model_are_found(have: Any, want: Any, order: str, size: Any) -> None:
    found = fit("M", have, want, "auto", None, resize=size is not None)
    assert (found.order, found.size) == (order, size)


def test_images_of_another_size_are_resized_only_where_that_is_asked_for() -> None:
    with pytest.raises(
        ConfigError, match=r"takes images of 28 x 28, the data set gives 8 x 8: --resize 28 28"
    ):
        prepared(TensorSpec("x", (None, 1, 28, 28), "float32"), images(1, 8, 8, 1))
    assert prepared(
        TensorSpec("x", (None, 1, 28, 28), "float32"), images(1, 8, 8, 1), resize=[28, 28]
    ).any()


@pytest.mark.parametrize(
    ("have", "want"),
    [
        ((28, 28, 1), (32, 32, 3)),
        ((28, 28, 3), (784,)),
        ((8,), (9,)),
        ((4, 6), (6, 4, 2)),
        ((8, 8, 1), (1, 1, 8, 8)),
    ],
)
def test_shapes_that_do_not_fit_are_both_named(have: Any, want: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        fit("M", have, want, "auto", None)
    for shape in (have, want):
        assert "(" + ", ".join(map(str, shape)) + ")" in str(caught.value)


def test_what_could_be_two_layouts_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="give --layout nhwc or --layout nchw"):
        fit("M", (8, 8, 3), (None, None, None), "auto", None)
    assert fit("M", (8, 8, 3), (None, None, None), "nchw", None).order == "nchw"


def test_vectors_are_no_images() -> None:
    with pytest.raises(ConfigError, match="no images"):
        fit("M", (8,), (8,), "nchw", None)


def test_flattening_follows_the_layout() -> None:
    pixels = images(2, 2, 2, 3)
    taken = TensorSpec("x", (None, 12), "float32")
    np.testing.assert_array_equal(prepared(taken, pixels, layout="nhwc"), pixels.reshape(2, 12))
    np.testing.assert_array_equal(
        prepared(taken, pixels, layout="nchw"), pixels.transpose(0, 3, 1, 2).reshape(2, 12)
    )


def test_how_colours_are_flattened_is_asked_for_and_how_greys_are_is_not() -> None:
    with pytest.raises(ConfigError, match="give --layout nchw or --layout nhwc"):
        fit("M", (2, 2, 3), (12,), "auto", None)
    assert fit("M", (2, 2, 1), (4,), "auto", None).order == "flat"


# -- colours
# ----------------------------------------------------------------------------------------


def test_grey_images_are_repeated_for_a_model_that_takes_colours() -> None:
    pixels = images(2, 8, 8, 1)
    taken = TensorSpec("x", (None, 3, 8, 8), "float32")
    found = prepared(taken, pixels, colours="convert", mean=[1.0, 2.0, 3.0])
    expected = pixels.transpose(0, 3, 1, 2).astype(np.float32) - np.array([1, 2, 3]).reshape(
        3, 1, 1
    )
    np.testing.assert_array_equal(found, expected)


def test_colours_become_luma_as_pillow_computes_it_for_a_model_that_takes_greys() -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pixels = images(1, 8, 8, 3)
    found = prepared(TensorSpec("x", (None, 8, 8, 1), "uint8"), pixels, colours="convert")
    assert (
        np.abs(
            found[0, ..., 0].astype(int) - np.asarray(image.fromarray(pixels[0]).convert("L"))
        ).max()
        <= 1
    )
    assert prepared(TensorSpec("x", (None, 8, 8), "uint8"), pixels, colours="convert").shape == (
        1,
        8,
        8,
    )
    np.testing.assert_array_equal(convert_channels(np.full((1, 1, 1, 3), 7.5), 1), [[[[7.5]]]])


def test_colours_that_fit_are_left_alone_and_others_are_answered_with_the_option() -> None:
    pixels = images(2, 8, 8, 3)
    np.testing.assert_array_equal(
        prepared(TensorSpec("x", (None, 8, 8, 3), "uint8"), pixels, colours="convert"), pixels
    )
    with pytest.raises(ConfigError, match="--colours convert"):
        fit("M", (28, 28, 1), (3, 32, 32), "auto", None)
    with pytest.raises(ConfigError, match=r"gives \(28, 28, 2\)$"):
        fit("M", (28, 28, 2), (3, 32, 32), "auto", None, convert=True)


# -- sizes
# ------------------------------------------------------------------------------------------


@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 20),
    st.sampled_from([1, 3]),
)
def test_resizing_keeps_constants_ranges_and_its_own_size(
    height: int, width: int, rows: int, columns: int, channels: int
) -> None:
    pixels = images(2, height, width, channels)
    found = resize_images(pixels, rows, columns)
    assert found.shape == (2, rows, columns, channels)
    assert found.min() >= pixels.min() - 1e-3
    assert found.max() <= pixels.max() + 1e-3
    np.testing.assert_allclose(
        resize_images(np.full_like(pixels, 77), rows, columns), 77, rtol=1e-5
    )
    np.testing.assert_array_equal(resize_images(pixels, height, width), pixels)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(5, 31), (64, 9), (17, 40)])
def test_resizing_is_pillows(size: tuple[int, int], interpolation: Any) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    # bicubic curves stay within uint8: Pillow also clips between directions
    pixels = images(1, 23, 37, 3) // 2 + 64
    expected = image.fromarray(pixels[0]).resize(
        size[::-1], image.Resampling[interpolation.upper()]
    )
    # Pillow rounds after each of the two directions.
    np.testing.assert_allclose(
        resize_images(pixels, *size, interpolation)[0], np.asarray(expected), atol=1.7
    )


def test_the_centre_is_cut_out_of_images_whose_shorter_side_is_resized() -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pixels = images(1, 30, 41, 3) // 2 + 64
    taken = TensorSpec("x", (None, 3, 14, 14), "float32")
    meanings = {
        "x": InputProcessing("x", "image", resize="bicubic", shortest_edge=16, layout="nchw")
    }
    found = preprocessing.preprocess("m", {"x": pixels}, [taken], meanings)["x"]
    # torchvision: Resize(16) gives 16 x int(16 * 41 / 30) pixels, CenterCrop(14) starts at 1 and
    # 3.5 rounded to even.
    whole = np.asarray(image.fromarray(pixels[0]).resize((21, 16), image.Resampling.BICUBIC))
    np.testing.assert_allclose(found[0].transpose(1, 2, 0), whole[1:15, 4:18], atol=1.7)
    fitting = preprocessing.preprocess("m", {"x": pixels[:, :14, :14]}, [taken], meanings)["x"]
    # of the model's size already
    np.testing.assert_array_equal(fitting[0].transpose(1, 2, 0), pixels[0, :14, :14])


# -- outputs
# ----------------------------------------------------------------------------------------

IMAGE = TensorSpec("x", (None, 4, 4, 3), "float32")
SPEC = make_image_classification_spec(4, 4, 3, NAMES)


def test_a_background_class_is_left_out() -> None:
    wrapper = model(
        IMAGE, TensorSpec("y", (None, 1, 1, 4), "uint8", 0.5, 2), class_offset=1
    ).for_dataset(SPEC)
    scores = wrapper.postprocess({"y": np.array([[[[9, 2, 4, 6]]]], np.uint8)})["scores"]
    np.testing.assert_array_equal(scores, np.array([[0.0, 1.0, 2.0]], np.float32))


def test_one_class_too_many_is_answered_with_the_option() -> None:
    with pytest.raises(ConfigError, match=r"4 classes apart .*has 3; --class-offset 1 leaves out"):
        model(IMAGE, TensorSpec("y", (None, 4), "float32")).for_dataset(SPEC)


def test_of_several_outputs_none_is_judged_before_it_is_named() -> None:
    outputs = [
        TensorSpec(name, (None, n), "float32")
        for name, n in (("boxes", 4), ("first", 3), ("second", None))
    ]
    arrays = {"boxes": np.zeros((1, 4)), "first": np.ones((1, 3)), "second": np.full((1, 3), 2.0)}
    with pytest.raises(
        ConfigError, match=r"boxes float32 \(\?, 4\), first .*, second .*: say with --result-output"
    ):
        model(IMAGE, *outputs).for_dataset(SPEC)
    named = model(IMAGE, *outputs, result_output="second").for_dataset(SPEC)
    assert named.postprocess(arrays)["scores"][0, 0] == 2


def test_boxes_of_as_many_numbers_as_there_are_classes_are_no_scores() -> None:
    folder = make_image_classification_spec(4, 4, 3, ("cat", "dog"))
    boxes = TensorSpec("boxes", (1, 10, 4), "float32")
    detector = (
        boxes,
        TensorSpec("classes", (1, 10), "float32"),
        TensorSpec("scores", (1, 10), "float32"),
    )
    with pytest.raises(ConfigError, match="say with --result-output"):
        model(IMAGE, *detector).for_dataset(folder)
    with pytest.raises(ConfigError, match=r"no score for each class \('boxes' is \(1, 10, 4\)\)"):
        model(IMAGE, *detector, result_output="boxes").for_dataset(folder)
    # as many as there are numbers in all boxes
    forty = make_image_classification_spec(4, 4, 3, tuple(map(str, range(40))))
    with pytest.raises(ConfigError, match="no score for each class"):
        model(IMAGE, boxes).for_dataset(forty)


def test_a_row_of_another_length_than_there_are_classes_is_found_when_it_comes() -> None:
    wrapper = model(IMAGE, TensorSpec("y", (None, None), "float32")).for_dataset(SPEC)
    with pytest.raises(ConfigError, match="no score for each of 3 classes"):
        wrapper.postprocess({"y": np.zeros((2, 4), np.float32)})


def test_one_number_that_is_no_probability_is_asked_about() -> None:
    two = make_image_classification_spec(4, 4, 3, NAMES[:2])
    logit = TensorSpec("y", (None, 1), "float32")
    given = {"y": np.array([[-2.0], [0.25], [3.0]])}
    with pytest.raises(
        ConfigError, match="no probabilities of the second class: give --result-kind logits"
    ):
        model(IMAGE, logit).for_dataset(two).postprocess(given)
    found = model(IMAGE, logit, result_kind="logits").for_dataset(two).postprocess(given)["scores"]
    np.testing.assert_array_equal(found.argmax(1), [0, 1, 1])


def test_a_folder_of_one_class_is_not_told_of_a_background_class() -> None:
    one = make_image_classification_spec(4, 4, 3, ("cat",))
    with pytest.raises(
        ConfigError, match=r"2 classes apart .*has 1; a data set with samples of some classes"
    ) as caught:
        model(IMAGE, TensorSpec("y", (None, 2), "float32")).for_dataset(one)
    assert "--class-offset" not in str(caught.value)


def test_one_probability_is_that_of_the_second_of_two_classes() -> None:
    wrapper = model(IMAGE, TensorSpec("y", (None, 1), "float32"))
    scores = wrapper.for_dataset(make_image_classification_spec(4, 4, 3, NAMES[:2])).postprocess(
        {"y": np.array([[0.8], [0.1]])}
    )
    np.testing.assert_array_equal(scores["scores"].argmax(1), [1, 0])


def test_the_number_of_a_class_is_as_good_as_scores() -> None:
    wrapper = model(IMAGE, TensorSpec("label", (None,), "int64")).for_dataset(SPEC)
    np.testing.assert_array_equal(
        wrapper.postprocess({"label": np.array([2, 0])})["scores"].argmax(1), [2, 0]
    )


def test_without_classes_outputs_keep_their_names() -> None:
    regression = DatasetSpec(
        "regression",
        (TensorSpec("features", (None, 2), "float32"),),
        (TensorSpec("value", (None,), "float32"),),
    )
    wrapper = model(
        TensorSpec("x", (None, 2), "float32"), TensorSpec("y", (None, 1), "int8", 0.5, -4)
    )
    found = wrapper.for_dataset(regression).postprocess({"y": np.array([[0]], np.int8)})
    np.testing.assert_array_equal(found["y"], [[2.0]])


# -- with_io
# ----------------------------------------------------------------------------------------


def test_a_process_that_runs_the_compiled_model_needs_neither_file_nor_framework(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "nnpipe.modelwrappers.files.keras.open_keras_with_reason",
        lambda *given: pytest.fail("opened"),
    )
    io = IOSpec((IMAGE,), (TensorSpec("y", (None, 3), "float32"),))
    wrapper = KerasModel(model_path=Path("nowhere.h5"), scale=255.0).with_io(io).for_dataset(SPEC)
    assert wrapper.io == io
    assert wrapper.preprocess({"image": images(2, 4, 4, 3)})["x"].max() <= 1


def test_samples_that_are_quantised_already_are_stored_as_they_are() -> None:
    taken = TensorSpec("x", (None, 3), "int8", 0.5847, 83)
    spec = DatasetSpec(
        "classification",
        (TensorSpec("features", (None, 3), "int8"),),
        (TensorSpec("label", (None,), "int64"),),
        NAMES,
    )
    samples = np.array([[-128, 0, 127]], np.int8)
    with pytest.raises(
        ConfigError, match="--quantised-input already that its samples are quantised"
    ):
        model(taken).for_dataset(spec)
    found = (
        model(taken, quantised_input="already").for_dataset(spec).preprocess({"features": samples})
    )
    np.testing.assert_array_equal(found["x"], samples)
    twice = model(taken, quantised_input="auto").for_dataset(spec).preprocess({"features": samples})
    assert not np.array_equal(twice["x"], samples)
    with pytest.raises(
        ConfigError, match="already is for samples that are stored as a quantised input stores them"
    ):
        prepared(
            TensorSpec("x", (None, 4, 4, 3), "float32"),
            images(1, 4, 4, 3),
            quantised_input="already",
        )


def test_verifying_asks_for_no_classes() -> None:
    outputs = [TensorSpec(name, (None, 7), "float32") for name in ("first", "second")]
    assert model(IMAGE, *outputs).for_samples(SPEC).preprocess({"image": images(1, 4, 4, 3)})


# -- what is known
# ----------------------------------------------------------------------------------


def described(folder: Path, **said: Any) -> ONNXModel:
    """A model with a description beside it."""
    path = folder / "model.onnx"
    path.write_bytes(b"anything")
    io = IOSpec(
        (IMAGE,),
        (TensorSpec("y", (None, 3), "float32"), TensorSpec("features", (None, 3), "float32")),
    )
    meaning = ModelMetadata(
        (InputProcessing("x", "image", **said),), (OutputMetadata("y", "logits", NAMES),)
    )
    Artifact.create(path, "onnx", io, meaning=meaning)
    return ONNXModel(model_path=path).with_io(io)


def test_what_stands_beside_the_file_is_the_default_of_the_options(tmp_path: Path) -> None:
    wrapper = described(tmp_path, scale=16, mean=(0.5,)).for_dataset(SPEC)
    pixels = images(1, 4, 4, 3)
    np.testing.assert_allclose(
        wrapper.preprocess({"image": pixels})["x"], pixels / 16 - 0.5, rtol=1e-6
    )
    assert wrapper.preparation().source == "description"
    assert wrapper.preparation().by == f"{wrapper.model_path}.json"
    given = {"y": np.eye(3, dtype=np.float32), "features": np.zeros((3, 3), np.float32)}
    np.testing.assert_array_equal(wrapper.postprocess(given)["scores"], np.eye(3))


def test_an_option_overrides_one_step_and_that_is_told(tmp_path: Path) -> None:
    wrapper = replace(described(tmp_path, scale=16, mean=(0.5,)), scale=255.0)
    wrapper = wrapper.with_io(
        IOSpec((IMAGE,), (TensorSpec("y", (None, 3), "float32"),))
    ).for_dataset(SPEC)
    pixels = images(1, 4, 4, 3)
    np.testing.assert_allclose(
        wrapper.preprocess({"image": pixels})["x"], pixels / 255 - 0.5, rtol=1e-5, atol=1e-6
    )
    assert wrapper.preparation().overridden == {"scale": (16.0, 255.0)}
    assert wrapper.meaning is not None
    assert wrapper.meaning.inputs[0].scale == 255


def test_of_a_file_alone_nothing_is_known_until_options_say_it() -> None:
    assert model(IMAGE).preparation().source == "unknown"
    assert model(IMAGE, layout="nhwc").preparation().source == "unknown"
    assert model(IMAGE, scale=1).preparation().source == "options"
    assert model(IMAGE).meaning is None


def test_a_description_without_a_meaning_still_names_the_class_that_made_the_model(
    tmp_path: Path,
) -> None:
    source = PyTorchDigitsCNN()
    path = tmp_path / "old.onnx"
    path.write_bytes(b"anything")
    Artifact.create(path, "onnx", source.io, producer=source.describe())
    wrapper = ONNXModel(model_path=path).with_io(source.io)
    pixels = np.full((1, 8, 8, 1), 16, np.uint8)
    assert wrapper.preprocess({"image": pixels})["image"].max() == 1
    assert wrapper.preparation().source == "description"


class Halving(ModelWrapper):
    """Somebody's own code stands before and after the model."""

    step: int = argument(2, help="what to divide by")

    io = IOSpec(
        (TensorSpec("x", (None, 4, 4, 3), "float32"),), (TensorSpec("y", (None, 3), "float32"),)
    )

    def preprocess(self, inputs: Batch) -> Batch:
        """Divide and turn around."""
        return {"x": (inputs["image"][:, ::-1] / self.step).astype(np.float32)}

    def postprocess(self, outputs: Batch) -> Batch:
        """Turn around."""
        return {"scores": outputs["y"][:, ::-1]}

    def build(self) -> Any:
        """Make nothing."""

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read nothing."""

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write something."""
        Path(path).write_bytes(b"anything")
        return self.artifact_of(path, "onnx")

    def session(self, live: LiveModel) -> Any:
        """Run nothing."""


def test_where_only_code_says_what_to_do_the_class_that_has_it_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Halving(step=4).open().save(tmp_path / "m.onnx")
    assert made.meaning is not None
    assert made.meaning.code == {"class": Halving.get_dotted_path(), "arguments": {"step": 4}}
    wrapper = ONNXModel(model_path=made.path).with_io(Halving.io)
    assert wrapper.preparation().source == "unknown"
    assert "which is not installed here" in wrapper.preparation().by
    components = registry.components
    monkeypatch.setattr(
        registry,
        "components",
        lambda base: [Halving] if issubclass(Halving, base) else components(base),
    )
    found = ONNXModel(model_path=made.path).with_io(Halving.io).for_dataset(SPEC)
    pixels = images(1, 4, 4, 3)
    np.testing.assert_array_equal(
        found.preprocess({"image": pixels})["x"], (pixels[:, ::-1] / 4).astype(np.float32)
    )
    np.testing.assert_array_equal(
        found.postprocess({"y": np.array([[1.0, 2, 3]])})["scores"], [[3, 2, 1]]
    )
    assert found.preparation().source == "description"
    assert found.meaning is not None
    # so that it goes along, whoever exports the file again
    assert found.meaning.code == made.meaning.code
    changed = ONNXModel(model_path=made.path, scale=1).with_io(Halving.io).for_dataset(SPEC)
    np.testing.assert_array_equal(changed.preprocess({"image": pixels})["x"], pixels)
    assert changed.preparation().overridden == {
        "preprocess": (Halving.get_dotted_path(), "options")
    }


@pytest.mark.parametrize(
    "stranger", ["os.path", "evil_module.Wrapper", "nnpipe.modelwrappers.files.onnx.ONNXModel", 7]
)
def test_no_class_is_imported_because_a_description_names_it(tmp_path: Path, stranger: Any) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"anything")
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    io = IOSpec((IMAGE,), (TensorSpec("y", (None, 3), "float32"),))
    Artifact.create(
        path, "onnx", io, producer={"class": stranger, "arguments": {"model_path": "/etc/passwd"}}
    )
    wrapper = ONNXModel(model_path=path).with_io(io)
    assert wrapper.preparation().source == "unknown"


def test_tensors_that_are_several_are_bound_by_name() -> None:
    io = IOSpec(
        tuple(TensorSpec(name, (None, n), "float32") for name, n in (("first", 2), ("second", 3))),
        (TensorSpec("y", (None, 3), "float32"),),
    )
    wrapper = ONNXModel(model_path=Path("none.onnx")).with_io(io)
    found = wrapper.preprocess({"second": np.ones((1, 3)), "first": np.zeros((1, 2))})
    assert {name: array.shape for name, array in found.items()} == {
        "first": (1, 2),
        "second": (1, 3),
    }
    with pytest.raises(ConfigError, match="takes first, second, the data set gives first"):
        wrapper.preprocess({"first": np.zeros((1, 2))})


# -- channels first
# ---------------------------------------------------------------------------------


@given(
    st.sampled_from([1, 3, 4]),
    st.integers(5, 9),
    st.integers(5, 9),
    st.booleans(),
    st.sampled_from(["u1", "f4"]),
)
def test_samples_with_channels_first_are_images_all_the_same(
    channels: int, rows: int, columns: int, last: bool, kind: str
) -> None:
    pixels = images(2, rows, columns, channels).astype(kind)
    shape = (rows, columns, channels) if last else (channels, rows, columns)
    means = [10.0 * n for n in range(channels)]
    taken = TensorSpec("x", (None, *shape), "float32")
    wrapper = model(taken, mean=means, deviation=[2.0])
    found = []
    for samples in (pixels, pixels.transpose(0, 3, 1, 2)):
        spec = DatasetSpec(
            "classification",
            (TensorSpec("image", (None, *samples.shape[1:]), samples.dtype.name),),
            (TensorSpec("label", (None,), "int64"),),
            NAMES,
        )
        fitted = wrapper.for_dataset(spec)
        found.append(fitted.preprocess({"image": samples})["x"])
        told = fitted.fitting_notes(spec)
        assert ("channels, rows, columns" in "".join(told)) == (samples is not pixels)
    np.testing.assert_array_equal(found[0], found[1])
    wanted = (pixels.astype(np.float32) - np.array(means, np.float32)) / 2
    np.testing.assert_allclose(
        found[0], wanted if last else wanted.transpose(0, 3, 1, 2), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("have", "want", "said"),
    [
        ((2, 16000), (16000, 2), "the same axes in another order; transpose the arrays"),
        ((2, 40, 50), (40, 50, 2), "the same axes in another order; transpose the arrays"),
        ((8, 20, 20, 3), (3, 8, 20, 20), "the same axes in another order; transpose the arrays"),
        ((6, 8), (4, 12), r"takes samples of \(4, 12\), the data set gives \(6, 8\)"),
        (
            (3, 20, 20),
            (3, 32, 32),
            "takes images of 32 x 32, the data set gives 20 x 20: --resize 32 32 brings",
        ),
    ],
)
def test_other_axes_are_never_reshaped_nor_resized_into_place(
    have: Any, want: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        fit("model", have, want, "auto", None)


# -- classes with names
# -----------------------------------------------------------------------------


def named_model(names: tuple[str, ...], output: TensorSpec, **options: Any) -> ONNXModel:
    meaning = ModelMetadata(
        (InputProcessing("x"),),
        (OutputMetadata(output.name, options.pop("kind", "scores"), names),),
    )
    wrapper = model(TensorSpec("x", (None, 4), "float32"), output, **options)
    return wrapper._with(known=ModelFacts(meaning, by="model.onnx.json"))


def spec_of(names: tuple[str, ...]) -> DatasetSpec:
    label = TensorSpec("label", (None,), "int64")
    return DatasetSpec("classification", (TensorSpec("x", (None, 4), "float32"),), (label,), names)


@given(st.permutations(["cat", "dog", "guinea_pig", "horse"]), st.booleans())
def test_classes_are_matched_by_name(names: list[str], is_label: bool) -> None:
    own = ("Horse", "cat", "guinea pig, cavy", "dog")
    order = [("horse", "cat", "guinea_pig", "dog").index(name) for name in names]
    output = (
        TensorSpec("y", (None,), "int64") if is_label else TensorSpec("y", (None, 4), "float32")
    )
    spec = spec_of(tuple(names))
    wrapper = named_model(own, output, kind="label" if is_label else "scores").for_dataset(spec)
    scores = np.eye(4, dtype=np.float32)
    found = wrapper.postprocess({"y": np.arange(4) if is_label else scores})["scores"]
    np.testing.assert_array_equal(found, scores[:, order])
    assert ("matched by name" in "".join(wrapper.fitting_notes(spec))) == (order != [0, 1, 2, 3])


def test_two_classes_with_one_number_are_matched_too() -> None:
    wrapper = named_model(("yes", "no"), TensorSpec("y", (None, 1), "float32")).for_dataset(
        spec_of(("no", "yes"))
    )
    np.testing.assert_allclose(
        wrapper.postprocess({"y": np.array([[0.9]])})["scores"], [[0.9, 0.1]]
    )


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ("cat", "cow", "dog"),
            "the data set has 'cow', which it lacks, and the data set lacks 'horse'",
        ),
        (("Katze", "Hund", "Pferd"), "the data set has 'Katze', which it lacks"),
    ],
)
def test_classes_with_other_names_are_refused_unless_numbers_are_to_tell(
    names: tuple[str, ...], said: str
) -> None:
    own, output = ("cat", "dog", "horse"), TensorSpec("y", (None, 3), "float32")
    with pytest.raises(ConfigError, match=said):
        named_model(own, output).for_dataset(spec_of(names))
    taken = named_model(own, output, class_offset=0).for_dataset(spec_of(names))
    np.testing.assert_array_equal(taken.postprocess({"y": np.eye(3)})["scores"], np.eye(3))


@pytest.mark.parametrize("names", [("0", "1", "2"), ("cat", "dog", "horse")])
def test_numbers_are_no_names(names: tuple[str, ...]) -> None:
    wrapper = named_model(
        ("cat", "dog", "horse"), TensorSpec("y", (None, 3), "float32")
    ).for_dataset(spec_of(names))
    np.testing.assert_array_equal(wrapper.postprocess({"y": np.eye(3)})["scores"], np.eye(3))


def test_a_class_that_the_data_set_lacks_is_no_prediction_of_the_first() -> None:
    wrapper = model(TensorSpec("x", (None, 4), "float32"), TensorSpec("y", (None,), "int64"))
    fitted = wrapper.for_dataset(spec_of(("0", "1", "2")))
    with pytest.raises(
        ConfigError, match="gives the class 7 in 'y', and the data set has 3 classes"
    ):
        fitted.postprocess({"y": np.array([0, 7])})
