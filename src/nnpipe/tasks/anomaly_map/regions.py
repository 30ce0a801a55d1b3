"""Connected regions of a mask."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def regions_of(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the number of each pixel's region, from 1 on; 0 where the mask is not set.

    Pixels that touch at a side or a corner are of one region, as in MVTec's own evaluation.  Rows are taken as runs of
    set pixels, and runs of neighbouring rows that touch are joined.

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
    >>> regions_of(np.array([[1, 0, 0, 1], [0, 1, 0, 1]], bool))
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
