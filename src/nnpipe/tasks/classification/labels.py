"""Labels as people have them: numbers, texts, columns of one number, and rows with a 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_DIGITS = 10  # of numbers that are class numbers


def class_labels(given: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return the class number of each sample, and the names of the classes if labels are texts.

    Parameters
    ----------
    given
        Class numbers ``(n,)`` or ``(n, 1)``, in integers, whole floats or booleans; texts, which
        are numbered in alphabetical order; or rows ``(n, classes)`` with a 1 for the class.

    Raises
    ------
    ValueError
        If they are something else; the message says what.

    Examples
    --------
    >>> class_labels(np.array([[0.0, 1.0], [1.0, 0.0]]))[0]
    array([1, 0])
    >>> class_labels(np.array(["dog", "cat", "dog"]))
    (array([1, 0, 1]), ('cat', 'dog'))
    """
    labels = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
    if labels.ndim == 2 and labels.dtype.kind in "biuf" and np.isin(labels, (0, 1)).all():
        labels = labels.argmax(axis=1) if (labels.sum(axis=1) == 1).all() else labels
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f"should be one class number a sample; their shape is {labels.shape}")
    if labels.dtype.kind in "US":
        texts, codes = np.unique(labels, return_inverse=True)
        names = [
            text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text)
            for text in texts
        ]
        if "" in names:
            raise ValueError(
                f"name a class for each sample; sample {int(np.flatnonzero(codes == 0)[0])} has "
                f"none"
            )
        if all(name.isascii() and name.isdecimal() and len(name) < _DIGITS for name in names):
            return np.array(list(map(int, names)))[codes.reshape(-1)], ()
        return codes.reshape(-1).astype(np.int64), tuple(names)
    if labels.dtype.kind == "f" and np.array_equal(labels, np.rint(labels)):
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "biu" or labels.min() < 0:
        raise ValueError(
            f"should be class numbers from 0; they are {labels.dtype}, the least {labels.min()}"
        )
    return labels.astype(np.int64), ()
