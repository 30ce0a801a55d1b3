"""What tasks need of a model's predictions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import Batch, show_shape


def get_tensor(predictions: Batch, name: str) -> npt.NDArray[np.generic]:
    """Return the tensor ``name``, or the only tensor.

    Raises
    ------
    SpecMismatch
        If there are several, and none has that name.
    """
    check_call(get_tensor, locals())
    if name in predictions:
        return predictions[name]
    if len(predictions) != 1:
        raise SpecMismatch(
            f"predictions must hold {name!r} or one tensor only; given: {', '.join(predictions)}"
        )
    return next(iter(predictions.values()))


def get_anomaly_scores(predictions: Batch, samples: int) -> npt.NDArray[np.floating]:
    """Return the anomaly score of each sample: the tensor ``"score"``, or the only one.

    Parameters
    ----------
    predictions
        The model's predictions; the scores are ``(n,)`` or ``(n, 1)``.
    samples
        The number of samples.

    Returns
    -------
    ndarray
        ``(n,)``, float32 or float64 as predicted.

    Raises
    ------
    SpecMismatch
        If the scores are no numbers, or not one for each sample.
    """
    score = get_tensor(predictions, "score")
    if score.ndim == 2 and score.shape[1] == 1:
        score = score[:, 0]
    if score.shape != (samples,) or score.dtype.kind not in "biuf":
        raise SpecMismatch(
            f"scores must be numbers of the shape {show_shape((samples,))}, not {score.dtype} of "
            f"{show_shape(score.shape)}"
        )
    return score.astype(np.float64 if score.dtype.itemsize > 4 else np.float32)


def warn_of_constant_scores(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield a doubt if all scores of an evaluation are the same."""
    score = evaluation.arrays["score"]
    if len(score) > 1 and bool(np.all(score == score[0])):
        yield "constant", f"all {len(score):,} scores are {float(score[0]):g}"


INTEGERS, NUMBERS = "iu", "iuf"
"""Kinds of element types, as numpy names them."""


def check_array(
    evaluation: Evaluation,
    name: str,
    shape: tuple[int | None, ...],
    kinds: str,
    ragged: bool = False,
) -> None:
    """Raise :class:`ArtifactError` unless an array has this shape behind the axis of samples, and
    such elements.

    Parameters
    ----------
    evaluation
        The evaluation.
    name
        The name of the array.
    shape
        The lengths of the other axes; ``None`` for any length.
    kinds
        The kinds of its element type.
    ragged
        Whether it is ragged; its rows then have that shape.
    """
    held = evaluation.ragged if ragged else evaluation.arrays
    if name not in held:
        raise ArtifactError(f"the evaluation has no array {name!r}; measure again")
    array: npt.NDArray[np.generic] = (
        evaluation.ragged[name].values if ragged else evaluation.arrays[name]
    )
    wanted = len(shape) == array.ndim - 1 and all(
        length in (None, given) for length, given in zip(shape, array.shape[1:], strict=True)
    )
    if not wanted or array.dtype.kind not in kinds:
        raise ArtifactError(
            f"the evaluation's {name!r} should have the shape {show_shape((None, *shape))}, and "
            f"not be {array.dtype} of {show_shape(array.shape)}; measure again"
        )


def check_alike(evaluation: Evaluation, *names: str) -> None:
    """Raise :class:`ArtifactError` unless arrays have one shape, or ragged ones as many rows for
    each sample.
    """
    first = names[0]
    for name in names[1:]:
        if first in evaluation.ragged:
            alike = np.array_equal(evaluation.ragged[first].counts, evaluation.ragged[name].counts)
        else:
            alike = evaluation.arrays[first].shape == evaluation.arrays[name].shape
        if not alike:
            raise ArtifactError(
                f"the evaluation's {name!r} does not go with its {first!r}; measure again"
            )
