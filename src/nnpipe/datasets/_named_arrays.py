"""Options that name arrays: ``image=images.bin:uint8:28x28x1``, ``value=width,height``."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.task import Task
from nnpipe.core.tensor_meaning import is_name
from nnpipe.datasets._array_files import Array, mapped_array, raw_array
from nnpipe.datasets.table import SUFFIXES, Texts, number_in, table_of

LABEL, LABELS = "label", "labels"
"""Names of the target and of the array of classes."""

_RAW_TYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
)  # fmt: skip
_SHAPE = re.compile(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8}){0,7}")
_LARGEST_SAMPLE = 1 << 40  # bytes
_LONGEST_LIST = 1 << 30  # bytes of a text file of classes
_TEXT = (".txt", ".lst", ".labels")
_MOST_NUMBERED = 10**9
_SHOWN = 20  # names of arrays in a message


@dataclass(frozen=True)
class NamedParts:
    """A name, and what is taken under it: names of arrays or columns.

    Attributes
    ----------
    name
        The name; empty if none is given.
    parts
        At least one name.
    """

    name: str
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, option: str) -> NamedParts:
        """Read ``NAME=PART,PART`` or ``PART``."""
        name, is_, rest = text.partition("=")
        parts = tuple(part.strip() for part in (rest if is_ else name).split(","))
        if not all(map(is_name, parts)) or (is_ and not is_name(name)):
            raise ConfigError(f"{option} takes NAME, or NAME=ARRAY, or NAME=COLUMN,COLUMN, not {text!r}")
        return cls(name if is_ else "", parts)


@dataclass(frozen=True)
class NamedFile:
    """An array in a file of its own.

    Attributes
    ----------
    name
        The name of the array.
    file
        Its file, relative to the folder of the data set.
    details
        Columns of a table; element type and shape of raw numbers.
    """

    name: str
    file: str
    details: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> NamedFile:
        """Read ``NAME=FILE``, ``NAME=TABLE:COLUMN,COLUMN`` or ``NAME=FILE:DTYPE:SHAPE``."""
        name, is_, rest = text.partition("=")
        file, *details = rest.split(":")
        found = cls(name, file, tuple(details))
        if not is_ or not is_name(name) or not file:
            raise ConfigError(f"--arrays takes NAME=FILE, NAME=TABLE:COLUMNS or NAME=FILE:DTYPE:SHAPE, not {text!r}")
        if found._is_raw:
            _ = found._raw_form
        elif len(details) > 1 or (details and Path(file).suffix.lower() not in SUFFIXES):
            raise ConfigError(
                f"--arrays {text}: columns are those of a table ({', '.join(SUFFIXES)}); raw numbers need an element "
                f"type and the shape of a sample, such as {file}:float32:28x28"
            )
        return found

    @property
    def _is_raw(self) -> bool:
        return len(self.details) == 2 or (len(self.details) == 1 and self.details[0] in _RAW_TYPES)

    @property
    def _raw_form(self) -> tuple[str, tuple[int, ...]]:
        dtype, shape = (*self.details, "")[:2]
        if dtype not in _RAW_TYPES or (shape and not _SHAPE.fullmatch(shape)):
            raise ConfigError(
                f"--arrays {self.name}: raw numbers have an element type ({', '.join(_RAW_TYPES)}) and a shape such "
                f"as 28x28x1, not {':'.join(self.details)!r}"
            )
        lengths = tuple(map(int, shape.split("x"))) if shape else ()
        if math.prod(lengths) * np.dtype(dtype).itemsize > _LARGEST_SAMPLE:
            raise ConfigError(f"--arrays {self.name}: a sample of {shape} {dtype} is larger than any memory")
        return dtype, lengths

    def read(self, folder: Path) -> Array | Texts:
        """Return the array, or the texts of a column or of a text file with one line for each sample."""
        path = folder / self.file
        if self._is_raw:
            return raw_array(path, *self._raw_form)
        suffix = path.suffix.lower()
        if suffix in SUFFIXES:
            columns = tuple(self.details[0].split(",")) if self.details else ()
            table = table_of(path)
            if not columns and len(table.names) != 1:
                raise DatasetError(
                    f"{path} has several columns; say which with --arrays {self.name}={self.file}:COLUMN"
                )
            return column_of(path, columns or table.names)
        if suffix == ".npy":
            return mapped_array(path)
        if suffix in _TEXT:
            return _lines(path)
        raise DatasetError(
            f"{path}: give the element type and the shape of a sample of raw numbers, as in "
            f"--arrays {self.name}={self.file}:float32:28x28; other endings are .npy, {', '.join((*SUFFIXES, *_TEXT))}"
        )


def listed_names(there: Collection[str]) -> str:
    """Return the names of the arrays that are there, or the first ones, as a clause of a message."""
    shown = [name[:80] for name in sorted(there)[:_SHOWN]]
    more = f" and {len(there) - _SHOWN:,} more" if len(there) > _SHOWN else ""
    return f"there are {', '.join(shown)}{more}" if shown else "there are none"


def targets_among(there: Set[str], task: Task, chosen: tuple[NamedParts, ...]) -> tuple[NamedParts, ...]:
    """Return the targets that were chosen, each with its name in the task, or those of the task that are there.

    Raises
    ------
    DatasetError
        If none is chosen, and one that the task needs is not there.
    """
    known = (*task.targets, *task.optional_targets)
    if chosen:
        only = task.targets[0] if len(chosen) == 1 and task.targets else ""
        return tuple(
            NamedParts(each.name or (only if only and each.parts[0] not in known else each.parts[0]), each.parts)
            for each in chosen
        )
    found = {name: NamedParts(name, (name,)) for name in known if name in there}
    if LABEL in known and LABEL not in there and LABELS in there:
        found[LABEL] = NamedParts(LABEL, (LABELS,))
    listed = listed_names(there)
    missing = [name for name in task.targets if name not in found]
    if missing == [LABEL]:
        raise DatasetError(f"no array {LABELS!r} with the class of each sample; {listed}")
    if missing:
        raise DatasetError(f"no array {missing[0]!r}, a target of the task {task.name}; {listed}")
    if not found:
        raise DatasetError(f"say which arrays are the targets of the task {task.name} (--targets); {listed}")
    return tuple(found.values())


def column_of(path: Path, columns: tuple[str, ...]) -> Array | Texts:
    """Return columns of a table: the texts of one, or the numbers of several, ``(rows, columns)``."""
    table = table_of(path)
    return table.texts(columns[0]) if len(columns) == 1 else table.numbers(columns)


def class_numbers(labels: Texts, where: str) -> tuple[npt.NDArray[np.integer], tuple[str, ...]]:
    """Return class numbers, and the names of the classes if the labels are no numbers."""
    if "" in labels.names:
        row = int(np.flatnonzero(labels.codes == labels.names.index(""))[0])
        raise DatasetError(f"{where}: sample {row} has no class")
    numbers = [number_in(name) for name in labels.names]
    if all(number is not None and number.is_integer() and 0 <= number < _MOST_NUMBERED for number in numbers):
        return np.array(numbers, np.int64)[labels.codes], ()
    ordered = labels.in_order()
    return ordered.codes, ordered.names


def _lines(path: Path) -> Texts:
    try:
        if path.stat().st_size > _LONGEST_LIST:
            raise DatasetError(f"{path} is too large for a list of classes")
        with open(path, encoding="utf-8-sig") as file:
            known: dict[str, int] = {}
            codes = [known.setdefault(line.strip(), len(known)) for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read as a list of classes: {error}") from None
    if not codes:
        raise DatasetError(f"{path} is empty")
    return Texts(np.array(codes, np.int64), tuple(known))
