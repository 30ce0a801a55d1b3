"""Gestures with a wand, recorded by an accelerometer or as strokes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.datasets._class_folders import find_files
from nnpipe.datasets._json_arrays import iter_keyed_elements
from nnpipe.datasets.in_memory import InMemoryDataset, Samples

Floats = npt.NDArray[np.float32]
_Recording = tuple[str, str, Floats]  # class, person and rows

_LARGEST_FILE = 256 << 20  # bytes
_MOST_NUMBERS = 1 << 28  # of all samples
_LONGEST = 1 << 20  # rows of a recording
_BREAK = re.compile(r"^\s*-\s*,\s*-\s*,\s*-\s*$", re.MULTILINE)


class MagicWandDataset(InMemoryDataset):
    """Gestures to be classified, in the forms of TensorFlow's Magic Wand examples.

    The first form is a folder for each gesture, such as ``wing``, ``ring``, ``slope`` and
    ``negative``, with text files of recordings: lines ``x,y,z`` of accelerations, and ``-,-,-``
    before each recording.  The end of a file's name is the person, ``output_wing_anna.txt``.  The
    second form is JSON files of strokes in the plane, each with its label.

    A recording becomes one sample of ``window`` rows, or several, ``window_shift`` rows apart; the
    last row is repeated at the end.  Samples of a file are of one person and stay in one split,
    unless there is one person only.
    """

    dataset_root: Path = argument(
        Path("magic_wand"), help="folder of gestures with text files, or of JSON files"
    )
    window: int = argument(
        128, help="rows of a sample", minimum=1, maximum=1 << 16, aliases=("window_size",)
    )
    window_shift: int = argument(
        128,
        help="rows from the start of a window to that of the next one",
        minimum=1,
        maximum=1 << 16,
    )

    def load(self) -> Samples:
        """Return windows ``(n, window, 3)`` of accelerations or ``(n, window, 2)`` of strokes,
        and their gestures.
        """
        windows: list[Floats] = []
        gestures: list[str] = []
        for gesture, _, rows in self._recordings:
            for start in range(
                0, max(len(rows) - self.window, 0) + self.window_shift, self.window_shift
            ):
                part = rows[start : start + self.window]
                if not len(part):
                    break
                if (len(windows) + 1) * self.window * rows.shape[1] > _MOST_NUMBERS:
                    raise DatasetError(
                        f"{self.dataset_root} gives more than {_MOST_NUMBERS:,} numbers: narrow "
                        f"the window"
                    )
                windows.append(
                    np.concatenate([part, np.repeat(part[-1:], self.window - len(part), axis=0)])
                )
                gestures.append(gesture)
                if start + self.window >= len(rows):
                    break
        names, labels = np.unique(np.array(gestures), return_inverse=True)
        return Samples(
            {"series": np.stack(windows)},
            {"label": labels.reshape(-1).astype(np.int64)},
            tuple(map(str, names)),
        )

    def groups(self) -> npt.NDArray[np.int64]:
        """Return the number of each sample's person, or of its recording if there is one person
        only.
        """
        owners: list[str] = []
        people = {person for _, person, _ in self._recordings}
        for number, (_, person, rows) in enumerate(self._recordings):
            count = 1 + max(0, -(-(len(rows) - self.window) // self.window_shift))
            owners += [person if len(people) > 1 else str(number)] * count
        return np.unique(np.array(owners), return_inverse=True)[1].reshape(-1).astype(np.int64)

    @cached_property
    def _recordings(self) -> tuple[_Recording, ...]:
        root = self.dataset_root
        if not root.is_dir():
            raise DatasetError(
                f"{root} is no folder; --dataset-root must hold folders of gestures, or JSON files"
            )
        found: list[_Recording] = []
        for path in find_files(root, {".txt", ".json"}):
            if path.stat().st_size > _LARGEST_FILE:
                raise DatasetError(
                    f"{path} has more than {_LARGEST_FILE >> 20} MiB, too many for recordings"
                )
            if path.suffix.lower() == ".json":
                found += _iter_strokes(path)
            elif path.parent != root:
                found += [
                    (path.parent.name, path.stem.rpartition("_")[2], rows)
                    for rows in _iter_recordings(path)
                ]
        if not found:
            raise DatasetError(
                f"{root} holds no recordings: text files in folders of gestures, or JSON files"
            )
        if len({rows.shape[1] for _, _, rows in found}) > 1:
            raise DatasetError(f"{root} mixes recordings of three axes and strokes of two")
        return tuple(found)


def _iter_recordings(path: Path) -> Iterator[Floats]:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from None
    for number, part in enumerate(_BREAK.split(text)):
        lines = [line for line in part.splitlines() if line.strip()]
        if not lines:
            continue
        try:
            if len(lines) > _LONGEST:
                raise ValueError
            rows = np.array(
                [[float(cell) for cell in line.split(",", 3)] for line in lines], np.float32
            )
            if rows.shape != (len(lines), 3) or not np.isfinite(rows).all():
                raise ValueError
        except (ValueError, OverflowError):
            raise DatasetError(
                f"{path}: recording {number} is no list of x,y,z, up to {_LONGEST:,} rows"
            ) from None
        yield rows


def _iter_strokes(path: Path) -> Iterator[_Recording]:
    person = path.stem.rpartition("_")[0] or path.stem
    for number, (_, stroke) in enumerate(iter_keyed_elements(path, ("strokes",))):
        try:
            points = [(point["x"], point["y"]) for point in stroke["strokePoints"][: _LONGEST + 1]]
            rows, label = np.array(points, np.float64), stroke["label"]
            usable = (
                np.isfinite(rows).all()
                and 0 < len(rows) <= _LONGEST
                and isinstance(label, str)
                and label
            )
            if not usable:
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            raise DatasetError(
                f"{path}: stroke {number} has no label, or no points x and y"
            ) from None
        yield label, person, rows.astype(np.float32)
