"""Images are resized as Pillow does it, and letterboxed as detectors expect it."""

from __future__ import annotations

import numpy as np
import pytest
from installed import needs

from nnpipe.core.errors import ConfigError
from nnpipe.core.image_conversion import fit_letterbox, resize_byte_images, resize_to_letterbox
from nnpipe.core.preprocessing import IMAGE_SIZE, preprocess
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import TensorSpec

IMAGE = np.random.default_rng(0).integers(0, 256, (1, 40, 66, 3), dtype=np.uint8)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(20, 30), (40, 30), (50, 66), (80, 90)])
def test_bytes_are_resized_to_the_bytes_of_pillow(
    size: tuple[int, int], interpolation: str
) -> None:
    needs("PIL")
    from PIL import Image

    wanted = Image.fromarray(IMAGE[0]).resize(
        size[::-1], getattr(Image.Resampling, interpolation.upper())
    )
    found = resize_byte_images(IMAGE, *size, interpolation)  # type: ignore[arg-type]  # parametrised
    np.testing.assert_array_equal(found[0], np.asarray(wanted))


@pytest.mark.parametrize("centred", [False, True])
def test_a_letterbox_keeps_the_aspect_ratio_and_fills_the_rest(centred: bool) -> None:
    place = fit_letterbox(40, 66, 48, 33, centred)
    assert (place.height, place.width, place.left) == (20, 33, 0)
    assert place.top == (14 if centred else 0)
    found = resize_to_letterbox(IMAGE, 48, 33, centred=centred, fill=7)
    np.testing.assert_array_equal(
        found[:, place.top : place.top + 20], resize_byte_images(IMAGE, 20, 33)
    )
    assert (found[:, place.top + 20 :] == 7).all()


def test_images_of_a_batch_are_brought_to_the_model_from_their_own_sizes() -> None:
    batch = np.zeros((2, 40, 66, 3), np.uint8)
    batch[0], batch[1, :30, :20] = IMAGE[0], IMAGE[0, :30, :20]
    inputs = {"image": batch, IMAGE_SIZE: np.array([[40, 66], [30, 20]], np.int32)}
    meaning = {
        "x": InputProcessing("x", "image", resize="bilinear", fit="letterbox", fill=9, scale=3)
    }
    taken = (TensorSpec("x", (None, 3, 24, 24), "float32"),)
    found = preprocess("it", inputs, taken, meaning)["x"]
    wanted = resize_to_letterbox(IMAGE[:, :30, :20], 24, 24, fill=9)[0].transpose(2, 0, 1) / 3
    np.testing.assert_allclose(found[1], wanted, rtol=1e-6)
    free = (TensorSpec("x", (None, 3, None, None), "float32"),)
    with pytest.raises(ConfigError, match="give --resize"):
        preprocess("it", inputs, free, {"x": InputProcessing("x", "image")})
