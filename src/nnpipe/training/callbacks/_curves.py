"""Curves of a classifier, from counts of samples by the bins of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nnpipe.training.callbacks.writing_callback import new_figure, save_figure

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

Curve: TypeAlias = "tuple[np.ndarray, np.ndarray, float | None]"
"""The horizontal and the vertical values ``(points,)``, and the area below; None if a class or its rest is empty."""

_MOST = 10
"""The greatest number of classes in a picture: those with the least areas."""


def roc_of(positive: np.ndarray, negative: np.ndarray) -> Curve:
    """Return false and true positive rates, from the strictest threshold on, and the area under the curve.

    Parameters
    ----------
    positive, negative
        Counts of samples by ascending bins of their score, ``(bins,)``.
    """
    if not positive.sum() or not negative.sum():
        return np.zeros(0), np.zeros(0), None
    used = np.flatnonzero(positive + negative)[::-1]
    true = np.concatenate([[0], np.cumsum(positive[used])]) / positive.sum()
    false = np.concatenate([[0], np.cumsum(negative[used])]) / negative.sum()
    return false, true, float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2))


def precision_recall_of(positive: np.ndarray, negative: np.ndarray) -> Curve:
    """Return recall and precision, from the strictest threshold on, and the average precision.

    Parameters
    ----------
    positive, negative
        Counts of samples by ascending bins of their score, ``(bins,)``.
    """
    if not positive.sum() or not negative.sum():
        return np.zeros(0), np.zeros(0), None
    used = np.flatnonzero(positive + negative)[::-1]
    hits, said = np.cumsum(positive[used]), np.cumsum((positive + negative)[used])
    area = float(positive[used] @ (hits / said)) / float(positive.sum())
    # As in scikit-learn, the curve begins at a precision of 1 without any recall.
    return np.r_[0.0, hits / positive.sum()], np.r_[1.0, hits / said], area


def draw_roc(fit: Fit, file: str, curves: Sequence[Curve], names: Sequence[str], where: str) -> None:
    """Draw the ROC curves of the classes with the least areas."""
    axes = _drawn(curves, names, "class: AUC", "lower right")
    axes.plot([0, 1], [0, 1], color="grey", lw=0.8, ls=":")
    axes.set(title=f"ROC, {where}", xlabel="false positive rate", ylabel="true positive rate")
    save_figure(fit, file, axes.figure)


def draw_precision_recall(fit: Fit, file: str, curves: Sequence[Curve], names: Sequence[str], where: str) -> None:
    """Draw the curves of precision over recall of the classes with the least areas."""
    axes = _drawn(curves, names, "class: average precision", "lower left", drawstyle="steps-pre")
    axes.set(title=f"precision and recall, {where}", xlabel="recall", ylabel="precision", ylim=(0, 1.05))
    save_figure(fit, file, axes.figure)


def _drawn(curves: Sequence[Curve], names: Sequence[str], title: str, place: str, drawstyle: str = "default") -> Any:
    axes = new_figure(5.5, 5).subplots()
    areas = [-1.0 if area is None else area for _, _, area in curves]
    for number in sorted(sorted(range(len(names)), key=areas.__getitem__)[:_MOST]):
        across, up, area = curves[number]
        if area is not None:
            axes.plot(across, up, label=f"{names[number]}: {area:.4f}", drawstyle=drawstyle)
    if axes.lines:
        axes.legend(title=title, fontsize=7, loc=place)
    axes.grid(alpha=0.3)
    return axes
