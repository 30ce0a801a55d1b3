"""The average precision that pycocotools computes."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest


def pycocotools_stats(
    kind: str,
    images: Sequence[dict[str, Any]],
    categories: Sequence[int],
    true: list[Any],
    predicted: list[Any],
) -> list[float]:
    """Return the figures that COCOeval sums up, NaN where one is not defined.

    Parameters
    ----------
    kind
        ``"bbox"``, ``"segm"`` or ``"keypoints"``.
    images, categories
        The images as an annotation file describes them, and the numbers of the categories.
    true, predicted
        The annotations and the results, of which there must be some.
    """
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth = COCO()
    truth.dataset = {
        "info": {},
        "images": list(images),
        "annotations": true,
        "categories": [{"id": number, "name": str(number)} for number in categories],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        found = COCOeval(truth, truth.loadRes(predicted), kind)
        found.evaluate()
        found.accumulate()
        found.summarize()
    return [math.nan if value == -1 else float(value) for value in found.stats]


def assert_same_in(
    cases: int, compared: Callable[[], tuple[list[float], list[float]] | None]
) -> None:
    """Assert that our figures are pycocotools' in a number of cases, and that most cases have any.

    Parameters
    ----------
    cases
        How many cases are drawn.
    compared
        Draws a case, and returns our figures and those of pycocotools; ``None`` if there is nothing
        to compare.
    """
    defined = 0
    for _ in range(cases):
        if (found := compared()) is None:
            continue
        have, wanted = found
        assert have == pytest.approx(wanted, abs=1e-9, nan_ok=True)
        defined += not math.isnan(have[0])
    assert defined > cases / 2
