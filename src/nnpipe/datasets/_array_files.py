"""Arrays in files, mapped into memory where their form allows it, so that only what is read is
loaded.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.task import Task
from nnpipe.core.tensor_metadata import is_name
from nnpipe.datasets.table import SUFFIXES, Texts, open_table, parse_number
from nnpipe.experiment.readers.npz import NpzReader

Array = npt.NDArray[Any]

# signature, and the lengths of the name and of extra fields
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\x03\x04"
_KINDS = "biufUS"


def open_npy(path: Path) -> Array:
    """Return the array of a ``.npy`` file, memory-mapped.

    Raises
    ------
    DatasetError
        If the file is missing or damaged, claims more than it has, or holds pickles.
    """
    try:
        # Memory-mapped, so that a header cannot claim more memory than the file has bytes.
        found: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError, MemoryError, RecursionError) as error:
        hint = "; save texts as array.astype(str)" if "allow_pickle" in str(error) else ""
        raise DatasetError(
            f"{path}: no array of numpy: {(str(error).splitlines() or ['damaged'])[0]}{hint}"
        ) from None
    if not isinstance(found, np.ndarray):  # an archive under the wrong name
        found.close()
        raise DatasetError(f"{path}: an archive of arrays; its name should end in .npz")
    return found


def open_raw_array(path: Path, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return the samples in a file of nothing but numbers, memory-mapped: ``(n, *shape)``,
    little-endian.

    Raises
    ------
    DatasetError
        If the file is missing, empty, or does not hold a whole number of samples.
    """
    kind = np.dtype(dtype).newbyteorder("<")
    size = math.prod(shape) * kind.itemsize
    try:
        held = path.stat().st_size
        if not held or held % size:
            raise DatasetError(
                f"{path} has {held:,} bytes, and samples of {dtype} "
                f"{'x'.join(map(str, shape)) or '(one number)'} have {size:,} each: "
                f"{'there are none' if not held else f'{held % size:,} are left over'}"
            )
        return np.memmap(path, kind, "r", shape=(held // size, *shape))
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None


def open_array_folder(folder: Path) -> dict[str, Array]:
    """Return the arrays of all ``.npy`` files in a folder, by their names without the ending."""
    return {path.stem: open_npy(path) for path in sorted(folder.glob("*.npy"))}


def open_npz(path: Path) -> Mapping[str, Array]:
    """Return the arrays of an ``.npz`` archive: memory-mapped if none is compressed, otherwise
    loaded.

    Raises
    ------
    DatasetError
        If it is missing or damaged, states wrong sizes, or holds pickles.
    """
    if not path.is_file():
        raise DatasetError(f"{path}: no such folder of .npy files, and no such .npz archive")
    found = _map_members(path)
    if found is not None:
        return found
    return {name: np.asarray(column) for name, column in NpzReader(path=path).read().items()}


def _map_members(path: Path) -> dict[str, Array] | None:
    """Return the arrays of an archive that :func:`numpy.savez` wrote; ``None`` if they cannot be
    mapped.
    """
    found: dict[str, Array] = {}
    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            for info in archive.infolist():
                if not info.filename.endswith(".npy"):
                    continue
                file.seek(info.header_offset)
                signature, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
                start = info.header_offset + _LOCAL_HEADER.size + name + extra
                whole = info.compress_size == info.file_size and start + info.file_size <= size
                if info.compress_type != zipfile.ZIP_STORED or signature != _SIGNATURE or not whole:
                    return None
                file.seek(start)
                array = _map_member(path, file, start + info.file_size)
                if array is None:
                    return None
                found[info.filename[:-4]] = array
    except Exception:  # headers may hold anything; the reader that copies says what is wrong
        return None
    return found


def _map_member(path: Path, file: Any, end: int) -> Array | None:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        return None
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, column_major, dtype = read(file)
    fits = (
        all(extent > 0 for extent in shape)
        and shape
        and file.tell() + math.prod(shape) * dtype.itemsize <= end
    )
    if dtype.kind not in _KINDS or not fits:
        return None
    return np.memmap(path, dtype, "r", file.tell(), shape, "F" if column_major else "C")


LABEL, LABELS = "label", "labels"
"""Names of the target and of the array of classes."""

_RAW_TYPES = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
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
            raise ConfigError(
                f"{option} takes NAME, or NAME=ARRAY, or NAME=COLUMN,COLUMN, not {text!r}"
            )
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
            raise ConfigError(
                f"--arrays takes NAME=FILE, NAME=TABLE:COLUMNS or NAME=FILE:DTYPE:SHAPE, not "
                f"{text!r}"
            )
        if found._is_raw:
            _ = found._raw_form
        elif len(details) > 1 or (details and Path(file).suffix.lower() not in SUFFIXES):
            raise ConfigError(
                f"--arrays {text}: columns are those of a table ({', '.join(SUFFIXES)}); raw "
                f"numbers need an element type and the shape of a sample, such as "
                f"{file}:float32:28x28"
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
                f"--arrays {self.name}: raw numbers have an element type ({', '.join(_RAW_TYPES)}) "
                f"and a shape such as 28x28x1, not {':'.join(self.details)!r}"
            )
        lengths = tuple(map(int, shape.split("x"))) if shape else ()
        if math.prod(lengths) * np.dtype(dtype).itemsize > _LARGEST_SAMPLE:
            raise ConfigError(
                f"--arrays {self.name}: a sample of {shape} {dtype} is larger than any memory"
            )
        return dtype, lengths

    def read(self, folder: Path) -> Array | Texts:
        """Return the array, or the texts of a column or of a text file with one line for each
        sample.
        """
        path = folder / self.file
        if self._is_raw:
            return open_raw_array(path, *self._raw_form)
        suffix = path.suffix.lower()
        if suffix in SUFFIXES:
            columns = tuple(self.details[0].split(",")) if self.details else ()
            table = open_table(path)
            if not columns and len(table.names) != 1:
                raise DatasetError(
                    f"{path} has several columns; say which with --arrays "
                    f"{self.name}={self.file}:COLUMN"
                )
            return read_columns(path, columns or table.names)
        if suffix == ".npy":
            return open_npy(path)
        if suffix in _TEXT:
            return _read_label_lines(path)
        raise DatasetError(
            f"{path}: give the element type and the shape of a sample of raw numbers, as in "
            f"--arrays {self.name}={self.file}:float32:28x28; other endings are .npy, "
            f"{', '.join((*SUFFIXES, *_TEXT))}"
        )


def format_array_names(there: Collection[str]) -> str:
    """Return the names of the arrays that are there, or the first ones, as a clause of a
    message.
    """
    shown = [name[:80] for name in sorted(there)[:_SHOWN]]
    more = f" and {len(there) - _SHOWN:,} more" if len(there) > _SHOWN else ""
    return f"there are {', '.join(shown)}{more}" if shown else "there are none"


def select_targets(
    there: Set[str], task: Task, chosen: tuple[NamedParts, ...]
) -> tuple[NamedParts, ...]:
    """Return the targets that were chosen, each with its name in the task, or those of the task
    that are there.

    Raises
    ------
    DatasetError
        If none is chosen, and one that the task needs is not there.
    """
    known = (*task.targets, *task.optional_targets)
    if chosen:
        only = task.targets[0] if len(chosen) == 1 and task.targets else ""
        return tuple(
            NamedParts(
                each.name or (only if only and each.parts[0] not in known else each.parts[0]),
                each.parts,
            )
            for each in chosen
        )
    found = {name: NamedParts(name, (name,)) for name in known if name in there}
    if LABEL in known and LABEL not in there and LABELS in there:
        found[LABEL] = NamedParts(LABEL, (LABELS,))
    listed = format_array_names(there)
    missing = [name for name in task.targets if name not in found]
    if missing == [LABEL]:
        raise DatasetError(f"no array {LABELS!r} with the class of each sample; {listed}")
    if missing:
        raise DatasetError(f"no array {missing[0]!r}, a target of the task {task.name}; {listed}")
    if not found:
        raise DatasetError(
            f"say which arrays are the targets of the task {task.name} (--targets); {listed}"
        )
    return tuple(found.values())


def read_columns(path: Path, columns: tuple[str, ...]) -> Array | Texts:
    """Return columns of a table: the texts of one, or the numbers of several, ``(rows,
    columns)``.
    """
    table = open_table(path)
    return table.read_texts(columns[0]) if len(columns) == 1 else table.numbers(columns)


def encode_class_labels(
    labels: Texts, where: str
) -> tuple[npt.NDArray[np.integer], tuple[str, ...]]:
    """Return class numbers, and the names of the classes if the labels are no numbers."""
    if "" in labels.names:
        row = int(np.flatnonzero(labels.codes == labels.names.index(""))[0])
        raise DatasetError(f"{where}: sample {row} has no class")
    numbers = [parse_number(name) for name in labels.names]
    if all(
        number is not None and number.is_integer() and 0 <= number < _MOST_NUMBERED
        for number in numbers
    ):
        return np.array(numbers, np.int64)[labels.codes], ()
    ordered = labels.to_ordered()
    return ordered.codes, ordered.names


def _read_label_lines(path: Path) -> Texts:
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


@dataclass(frozen=True)
class QuantisedInput:
    """Scale and zero point of an input; a number ``q`` stands for ``scale * (q - zero_point)``.

    Attributes
    ----------
    name
        The name of the input; empty for the only one.
    scale, zero_point
        As in ONNX and TensorFlow Lite.
    """

    name: str
    scale: float
    zero_point: int

    @classmethod
    def parse(cls, text: str) -> QuantisedInput:
        """Read ``NAME=SCALE:ZERO_POINT``; the name may be missing, and the zero point is 0 by
        default.
        """
        name, is_, rest = text.rpartition("=")
        scale, _, zero = rest.partition(":")
        try:
            found = cls(name, float(scale), int(zero or 0))
        except ValueError:
            found = cls(name, math.nan, 0)
        if (
            not (math.isfinite(found.scale) and found.scale > 0)
            or (is_ and not name)
            or abs(found.zero_point) >= 1 << 31
        ):
            raise ConfigError(
                f"--quantised takes NAME=SCALE:ZERO_POINT, such as image=0.5:83, not {text!r}"
            )
        return found

    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise :class:`DatasetError` unless the array holds integers."""
        if array.dtype.kind not in "iu":
            raise DatasetError(
                f"{self.name or 'the input'} holds {array.dtype}; quantised numbers are integers"
            )

    def dequantize(self, array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return real numbers, float32."""
        return ((array.astype(np.float64) - self.zero_point) * self.scale).astype(np.float32)
