"""Polygons and compressed run lengths stand for the pixels that pycocotools gives them."""

from __future__ import annotations

import numpy as np
import pytest
from installed import needs

from nnpipe.core.errors import DatasetError
from nnpipe.tasks.instance_segmentation.run_lengths import (
    encode_mask_runs,
    encode_polygon,
    encode_polygons,
    merge_runs,
    parse_coco_runs,
)

KINDS = ("inside", "whole", "tenths", "halves", "beyond", "repeated")


def random_polygon(random: np.random.Generator, kind: str, height: int, width: int) -> np.ndarray:
    """Return corners of a polygon that may cross itself; those of most data sets have tenths or
    hundredths.
    """
    least, most = (-0.5, 1.5) if kind in ("beyond", "repeated") else (0, 1)
    corners = random.uniform(least, most, (int(random.integers(3, 12)), 2)) * [width, height]
    digits = {"whole": 1, "tenths": 10, "halves": 2}
    if kind in digits:
        corners = np.rint(digits[kind] * corners) / digits[kind]
    return (
        corners[random.integers(0, len(corners), len(corners))] if kind == "repeated" else corners
    )


def test_a_thousand_polygons_cover_the_pixels_that_pycocotools_gives_them() -> None:
    needs("pycocotools")
    from pycocotools import mask

    random = np.random.default_rng(1)
    covered = 0
    for case in range(1000):
        height, width = (int(each) for each in random.integers(1, 90, 2))
        number = 1 + case % 5 // 4  # of polygons
        polygons = [random_polygon(random, KINDS[case % 6], height, width) for _ in range(number)]
        stated = mask.frPyObjects([each.ravel().tolist() for each in polygons], height, width)
        wanted = encode_mask_runs(mask.decode(mask.merge(stated)))
        np.testing.assert_array_equal(
            encode_polygons(polygons, height, width), wanted, err_msg=str(polygons)
        )
        covered += len(wanted) > 1
    assert covered > 800


def test_compressed_text_is_read_as_pycocotools_writes_it() -> None:
    needs("pycocotools")
    from pycocotools import mask

    random = np.random.default_rng(2)
    for share in (0, 0.001, 0.02, 0.3, 0.9, 1):
        pixels = random.random((200, 3000)) < share
        text = mask.encode(np.asfortranarray(pixels.astype(np.uint8)))["counts"]
        np.testing.assert_array_equal(parse_coco_runs(text), encode_mask_runs(pixels))


@pytest.mark.parametrize(
    "text", [b"5P", b"5\x10", b"5\xff", b"PPPPPPP0", "0\N{POUND SIGN}".encode()]
)
def test_text_that_is_no_mask_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        parse_coco_runs(text)


def test_masks_are_united_pixel_by_pixel() -> None:
    random = np.random.default_rng(3)
    for count in (1, 2, 5):
        masks = random.random((count, 7, 9)) < 0.3
        np.testing.assert_array_equal(
            merge_runs([encode_mask_runs(mask) for mask in masks], 63),
            encode_mask_runs(masks.any(axis=0)),
        )


def test_the_effort_depends_on_columns_and_not_on_the_length_of_edges() -> None:
    height, width, far = 40, 30, float(1 << 20)
    whole = encode_polygon(
        np.array([[-far, -far], [far, -far], [far, far], [-far, far]]), height, width
    )
    assert whole.tolist() == [0, height * width]
    to_and_fro = np.tile([[0.0, 0.0], [far, 20.0]], (5_000, 1))
    with pytest.raises(DatasetError, match="to and fro across"):
        encode_polygon(to_and_fro, 60_000, 60_000)
    with pytest.raises(DatasetError, match="cross more than"):
        encode_polygons([np.array([[0.0, 0.0], [far, 20.0], [far, far]])] * 40, 60_000, 60_000)
