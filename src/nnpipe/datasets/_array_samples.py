"""Class names, splits and lengths of the user's own arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import DatasetError
from nnpipe.datasets._array_files import Array
from nnpipe.datasets._split import splits_named
from nnpipe.datasets.in_memory import Samples
from nnpipe.datasets.table import Texts

SPLIT, CLASSES = "split", "classes.json"
"""Names of the array of splits, and of the file of class names."""

_NAMES_LIMIT = 1 << 24  # bytes in the file of names
_NUMBERS = {"0": 0, "1": 1, "2": 2}


def names_beside(root: Path) -> tuple[str, ...]:
    """Return the class names in the file ``classes.json`` of a folder; none without one."""
    path = root / CLASSES
    if not root.is_dir() or not path.is_file():
        return ()
    try:
        if path.stat().st_size > _NAMES_LIMIT:
            raise DatasetError(f"{path}: too large for a list of names")
        names = parse_json(path.read_text("utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise DatasetError(f"{path}: no list of names: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise DatasetError(f"{path}: expected a list of names")
    return tuple(names)


def with_texts(array: Array) -> Array | Texts:
    """Return an array of texts, one for each sample, as a column of them, and others as they are."""
    if array.dtype.kind not in "US" or not array.ndim or array.size != len(array):
        return array
    texts, codes = np.unique(array, return_inverse=True)
    names = (text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text) for text in texts)
    return Texts(codes.reshape(-1).astype(np.int64), tuple(names))


def numbers_of(texts: Texts, name: str) -> Array:
    """Return the numbers that the texts of a column hold, float64."""
    try:
        return np.array(list(map(float, texts.names)))[texts.codes]
    except ValueError:
        raise DatasetError(f"{name!r} holds text, where numbers are needed") from None


def official_split(split: Array | Texts) -> npt.NDArray[np.integer]:
    """Return the code of each sample's split, ``(n,)``."""
    if isinstance(split, Texts):
        codes = {**splits_named(split.names), **_NUMBERS}
        unknown = [name for name in split.names if name not in codes]
        if unknown:
            raise DatasetError(f"{SPLIT!r} should hold train, validation or test, not {unknown[0][:40]!r}")
        return np.array([codes[name] for name in split.names])[split.codes]
    if split.ndim != 1 or split.dtype.kind not in "iu" or not np.isin(split, (0, 1, 2)).all():
        raise DatasetError(f"{SPLIT!r} should hold 0 (training), 1 (validation) or 2 (test) for each sample")
    return np.asarray(split)


def check_lengths(samples: Samples) -> None:
    """Raise :class:`DatasetError` unless all arrays have the same number of samples, and some."""
    official = {} if samples.official is None else {SPLIT: samples.official}
    arrays = {**samples.inputs, **samples.targets, **official}
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DatasetError(f"arrays differ in their number of samples: {lengths}")
    if not min(lengths.values()):
        raise DatasetError("there are no samples")
