"""Checks of the arrays of evaluations that were read from files, which may hold anything."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import show_shape

INTEGERS, NUMBERS = "iu", "iuf"
"""Kinds of element types, as numpy names them."""


def check_array(
    evaluation: Evaluation, name: str, shape: tuple[int | None, ...], kinds: str, ragged: bool = False
) -> None:
    """Raise :class:`ArtifactError` unless an array has this shape behind the axis of samples, and such elements.

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
    array: npt.NDArray[np.generic] = evaluation.ragged[name].values if ragged else evaluation.arrays[name]
    wanted = len(shape) == array.ndim - 1 and all(
        length in (None, given) for length, given in zip(shape, array.shape[1:], strict=True)
    )
    if not wanted or array.dtype.kind not in kinds:
        raise ArtifactError(
            f"the evaluation's {name!r} should have the shape {show_shape((None, *shape))}, and not be "
            f"{array.dtype} of {show_shape(array.shape)}; measure again"
        )


def check_alike(evaluation: Evaluation, *names: str) -> None:
    """Raise :class:`ArtifactError` unless arrays have one shape, or ragged ones as many rows for each sample."""
    first = names[0]
    for name in names[1:]:
        if first in evaluation.ragged:
            alike = np.array_equal(evaluation.ragged[first].counts, evaluation.ragged[name].counts)
        else:
            alike = evaluation.arrays[first].shape == evaluation.arrays[name].shape
        if not alike:
            raise ArtifactError(f"the evaluation's {name!r} does not go with its {first!r}; measure again")
