"""Anomaly maps as a task: a score of each pixel, some of which show a defect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec, show_shape
from nnpipe.tasks.anomaly_map.metrics import LOOKED_AT, METRICS, ScoreLevels, compute_defect_recall
from nnpipe.tasks.frames import create_frames, resample_to_picture
from nnpipe.tasks.predictions import (
    INTEGERS,
    NUMBERS,
    check_alike,
    check_array,
    get_anomaly_scores,
    get_tensor,
    warn_of_constant_scores,
)


def find_regions(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the number of each pixel's region, from 1 on; 0 where the mask is not set.

    Pixels that touch at a side or a corner are of one region, as in MVTec's own evaluation.  Rows
    are taken as runs of set pixels, and runs of neighbouring rows that touch are joined.

    Parameters
    ----------
    mask
        ``(height, width)``.

    Returns
    -------
    ndarray
        ``(height, width)``.

    Examples
    --------
    >>> find_regions(np.array([[1, 0, 0, 1], [0, 1, 0, 1]], bool))
    array([[1, 0, 0, 2],
           [0, 1, 0, 2]])
    """
    wide = mask.shape[1] + 1  # an empty pixel ends each row
    flat = np.pad(mask, ((0, 0), (0, 1))).ravel()
    borders = np.flatnonzero(np.diff(flat, prepend=False))
    starts, ends = borders[0::2], borders[1::2]
    # The runs one row below that touch a run, corners included, follow each other.
    first = np.searchsorted(ends, starts + wide)
    counts = np.maximum(np.searchsorted(starts, ends + wide, side="right") - first, 0)
    above = np.repeat(np.arange(len(starts)), counts)
    below = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
    owner = np.arange(len(starts))
    while (owner[above] != owner[below]).any():
        one, other = owner[above], owner[below]
        np.minimum.at(owner, np.maximum(one, other), np.minimum(one, other))
        while (owner != owner[owner]).any():
            owner = owner[owner]
    _, numbers = np.unique(owner, return_inverse=True)
    found = np.zeros(flat.shape, np.int64)
    found[flat] = np.repeat(numbers.reshape(-1) + 1, ends - starts)
    return found.reshape(mask.shape[0], wide)[:, :-1]


LEVELS = ("level", "good", "bad", "covered")


class AnomalyMaps(Task):
    """How unusual each pixel of a picture is, and the whole picture.

    It is a task beside the detection of anomalies, whose models need not say where an anomaly is.

    Targets are ``"mask"``, ``(n, height, width)``: above 0 for a pixel of a defect, 0 for a good
    one, and below 0 for one that does not count; and ``"anomalous"``, ``(n,)``, 1 for a picture of
    a defective thing.

    Predictions are ``"map"``, ``(n, rows, columns)``, perhaps with an axis of length 1; greater
    means more anomalous. A map of another size than the mask is interpolated (bilinear); with
    ``"frame"`` (:mod:`nnpipe.tasks.frames`), it covers the model's input, else the picture.  If
    there is also ``"score"``, ``(n,)``, it is the score of the whole picture, which otherwise is
    the greatest of its pixels.

    An evaluation holds ``truth``, int32, and ``score``, ``(n,)``; and, ragged, ``level``, ``good``,
    ``bad`` and ``covered``, the pixels of each score (:mod:`nnpipe.tasks.anomaly_map.metrics`), and
    ``regions``, the numbers of pixels of the connected regions of defects.  Maps are not kept.
    """

    name = "anomaly_map"
    targets = ("mask", "anomalous")
    arrays = ("truth", "score", *LEVELS, "regions")
    truth = ("truth", "regions")

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The per-region overlap, the area under the ROC curve of pixels, and the metrics of
        whole pictures.
        """
        return METRICS

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate anomaly maps."""
        masks, anomalous = truth["mask"], truth["anomalous"]
        maps = map_of(predictions, len(masks))
        frames = predictions.get("frame", create_frames(len(masks), 1, 1, "squeeze"))
        if frames.shape != (len(masks), 3):
            raise SpecMismatch(
                f"the frame of {len(masks)} pictures has the shape ({len(masks)}, 3)"
            )
        size = np.array(masks.shape[1:3], np.int64)
        rows: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (*LEVELS, "regions")}
        greatest = np.full(len(masks), -np.inf)
        for place, (mask, given) in enumerate(zip(masks, maps, strict=True)):
            if given.shape != mask.shape or "frame" in predictions:
                given = resample_to_picture(given, frames[place], size)
            regions, counted = find_regions(mask > 0), mask >= 0
            found = ScoreLevels.from_pixels(given, regions, counted)
            greatest[place] = np.fmax.reduce(given[counted], initial=-np.inf)
            rows["level"].append(found.score)
            rows["good"].append(found.good.astype(np.int32))
            rows["bad"].append(found.bad.astype(np.int32))
            rows["covered"].append(found.covered)
            rows["regions"].append(np.bincount(regions.ravel())[1:].astype(np.int32))
        score = (
            get_anomaly_scores({"score": predictions["score"]}, len(masks))
            if "score" in predictions
            else greatest
        )
        arrays = {"truth": anomalous.astype(np.int32), "score": score}
        nothing = Ragged(np.zeros(0), np.zeros(0, np.int64))
        ragged = {name: Ragged.from_rows(each) if each else nothing for name, each in rows.items()}
        return Evaluation(self.name, arrays, ("usual", "anomalous"), ragged)

    def sample_errors(self, evaluation: Evaluation) -> npt.NDArray[np.float64]:
        """Return the share of a defect that is not found, and the share of good pixels that are
        alarms, added up.
        """
        shares, alarms = compute_defect_recall(evaluation, LOOKED_AT)
        return np.asarray(np.where(np.isnan(shares), 0, 1 - shares) + alarms, np.float64)

    def _describe_sample(self, evaluation: Evaluation, number: int) -> str:
        """Return how much of the defects is found, and how much else."""
        shares, alarms = compute_defect_recall(evaluation, LOOKED_AT)
        told = (
            ""
            if np.isnan(shares[number])
            else f"{100 * shares[number]:.1f}\u00a0% of a defect is found, "
        )
        return f"{told}{100 * alarms[number]:.1f}\u00a0% of the good pixels are alarms"

    def warnings(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt scores that are all the same."""
        yield from warn_of_constant_scores(evaluation)

    def check(self, evaluation: Evaluation) -> None:
        """Check that there is a kind and a score for each picture, and numbers of pixels for
        each of its levels.
        """
        super().check(evaluation)
        check_array(evaluation, "truth", (), INTEGERS)
        check_array(evaluation, "score", (), NUMBERS)
        for name in (*LEVELS, "regions"):
            check_array(evaluation, name, (), NUMBERS, ragged=True)
        check_alike(evaluation, *LEVELS)
        for name in ("good", "bad", "covered", "regions"):
            values = evaluation.ragged[name].values.astype(np.float64)
            if not np.all(np.isfinite(values) & (values >= 0)):
                raise ArtifactError(
                    f"the evaluation's {name!r} should hold numbers of pixels; measure again"
                )

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return a score of 1 for each pixel of a defect and each anomalous picture."""
        return {
            "map": (truth["mask"] > 0).astype(np.float32),
            "score": truth["anomalous"].astype(np.float32),
        }

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the least score for defects and anomalous pictures, and the greatest for all
        others.
        """
        least, most = np.float32(-np.inf), np.float32(np.inf)
        return {
            "map": np.where(truth["mask"] > 0, least, most),
            "score": np.where(truth["anomalous"] != 0, least, most),
        }


def map_of(predictions: Batch, pictures: int) -> npt.NDArray[np.floating]:
    """Return the map of each picture, ``(n, rows, columns)``: the tensor ``"map"``, or the only
    one.

    Raises
    ------
    SpecMismatch
        If there is none, or it has another shape.
    """
    found: npt.NDArray[Any] = get_tensor(
        {n: each for n, each in predictions.items() if n not in ("frame", "score")}, "map"
    )
    if found.ndim == 4 and 1 in (found.shape[1], found.shape[3]):
        found = found[:, 0] if found.shape[1] == 1 else found[..., 0]
    if (
        found.ndim != 3
        or len(found) != pictures
        or found.dtype.kind not in "biuf"
        or 0 in found.shape[1:]
    ):
        raise SpecMismatch(
            f"maps must be numbers of the shape ({pictures}, rows, columns), not {found.dtype} of "
            f"{show_shape(found.shape)}; name the decoder of the model with --decoder, such as "
            f"AnomalyMapDecoder"
        )
    return found
