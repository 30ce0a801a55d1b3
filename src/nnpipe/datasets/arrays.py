"""Your own arrays: samples and labels in ``.npy`` files or one ``.npz`` archive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.experiment.readers.npz import NpzReader

LABELS, SPLIT, CLASSES = "labels", "split", "classes.json"
"""Names of the array of classes, the array of splits, and the file of class names."""

_MOST_CLASSES = 1 << 20
_NAMES_LIMIT = 1 << 24  # bytes in the file of names


class ArraysDataset(InMemoryDataset):
    """Your own arrays: ``labels`` and the inputs, in a folder of ``.npy`` files or one ``.npz`` archive.

    ``labels`` holds the class of each sample, ``(n,)`` integers from 0.  Every
    other array is an input, ``(n, ...)``, with its own name; for a model with
    one input, the name does not matter.  The optional array ``split``, ``(n,)``,
    assigns each sample: 0 to training and calibration, 1 to validation, 2 to
    testing.  Without it, the split follows the fractions.  In a folder,
    ``classes.json`` may hold a list of class names.

    Examples
    --------
    >>> samples, labels = np.zeros((10, 4), np.float32), np.arange(10) % 2
    >>> data = write_arrays(Path("data"), {"x": samples}, labels, class_names=("cat", "dog"))
    >>> data.prepare()
    >>> len(data), data.spec.class_names
    (10, ('cat', 'dog'))
    """

    dataset_root: Path = argument(Path("data"), help="folder of .npy files, or .npz archive")

    def load(self) -> Samples:
        """Return the samples; arrays in a folder are memory-mapped."""
        arrays = _from_folder(self.dataset_root) if self.dataset_root.is_dir() else _from_archive(self.dataset_root)
        try:
            return _samples(arrays, _names(self.dataset_root))
        except DatasetError as error:
            raise DatasetError(f"{self.dataset_root}: {error}") from None

    def download(self) -> None:
        """Do nothing: the arrays are the user's."""


def write_arrays(
    folder: Path,
    inputs: Mapping[str, npt.NDArray[Any]],
    labels: npt.NDArray[np.integer],
    *,
    split: npt.NDArray[np.integer] | None = None,
    class_names: tuple[str, ...] = (),
) -> ArraysDataset:
    """Write arrays into a new folder, and return the data set that reads them.

    Parameters
    ----------
    folder
        The folder; created if missing.
    inputs
        Arrays ``(n, ...)`` by tensor name.
    labels
        ``(n,)`` integers from 0.
    split
        ``(n,)`` integers: 0 for training and calibration, 1 for validation, 2 for testing.
    class_names
        Class names in order of their numbers; by default the numbers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {**inputs, LABELS: labels} | ({} if split is None else {SPLIT: split})
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    if class_names:
        (folder / CLASSES).write_text(json.dumps(list(class_names)), "utf-8")
    return ArraysDataset(dataset_root=folder)


def _from_folder(folder: Path) -> dict[str, npt.NDArray[Any]]:
    found = {}
    for path in sorted(folder.glob("*.npy")):
        try:
            # Memory-mapped, so that a header cannot claim more memory than the file has bytes.
            found[path.stem] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError, SyntaxError, MemoryError, RecursionError) as error:
            raise DatasetError(f"{path}: no array of numpy: {(str(error).splitlines() or ['damaged'])[0]}") from None
    return found


def _from_archive(path: Path) -> dict[str, npt.NDArray[Any]]:
    if not path.is_file():
        raise DatasetError(f"{path}: no such folder of .npy files, and no such .npz archive")
    return {name: np.asarray(column) for name, column in NpzReader(path=path).read().items()}


def _names(root: Path) -> tuple[str, ...]:
    path = root / CLASSES
    if not root.is_dir() or not path.is_file():
        return ()
    try:
        if path.stat().st_size > _NAMES_LIMIT:
            raise DatasetError(f"{path}: too large for a list of names")
        names = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise DatasetError(f"{path}: no list of names: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise DatasetError(f"{path}: expected a list of names")
    return tuple(names)


def _samples(arrays: dict[str, npt.NDArray[Any]], names: tuple[str, ...]) -> Samples:
    if LABELS not in arrays:
        there = f"there are {', '.join(sorted(arrays))}" if arrays else "there are none"
        raise DatasetError(f"no array {LABELS!r} with the class of each sample; {there}")
    labels, split = arrays.pop(LABELS), arrays.pop(SPLIT, None)
    if not arrays:
        raise DatasetError(f"no array beside {LABELS!r}: put the inputs there, such as images")
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise DatasetError(
            f"{LABELS!r} should be a vector of class numbers, not {labels.dtype} of shape {labels.shape}"
        )
    lengths = {name: len(array) if array.ndim else 0 for name, array in {**arrays, LABELS: labels}.items()}
    if split is not None:
        lengths[SPLIT] = len(split) if split.ndim else 0
    if len(set(lengths.values())) > 1:
        raise DatasetError(f"arrays differ in their number of samples: {lengths}")
    if split is not None and (split.ndim != 1 or split.dtype.kind not in "iu" or not np.isin(split, (0, 1, 2)).all()):
        raise DatasetError(f"{SPLIT!r} should hold 0 (training), 1 (validation) or 2 (test) for each sample")
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= _MOST_CLASSES:
        raise DatasetError(f"{LABELS!r} holds {least if least < 0 else most}, which is no number of a class")
    if names and most >= len(names):
        raise DatasetError(f"{LABELS!r} holds class {most}, and {CLASSES} names {len(names)} classes, counted from 0")
    names = names or tuple(map(str, range(most + 1)))
    official = None if split is None else np.asarray(split)
    return Samples(arrays, {"label": np.asarray(labels, np.int64)}, names, official)
