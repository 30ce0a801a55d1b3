"""Your own arrays and tables: inputs and targets of any task, by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.component import parse_arguments
from nnpipe.core.errors import ArtifactError, ConfigError, DatasetError, NotSupported, SpecMismatch
from nnpipe.core.messages import format_one_line, list_names, suggest_name
from nnpipe.core.task import Task, get_task
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec, show_shape
from nnpipe.datasets._array_files import (
    LABEL,
    LABELS,
    Array,
    NamedFile,
    NamedParts,
    QuantisedInput,
    encode_class_labels,
    format_array_names,
    open_array_folder,
    open_npz,
    select_targets,
)
from nnpipe.datasets._class_folders import ClassList
from nnpipe.datasets._number_table import is_unnamed
from nnpipe.datasets._split import find_splits
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.datasets.table import SUFFIXES, DataTable, Texts, open_table
from nnpipe.tasks.classification.labels import class_labels
from nnpipe.tasks.classification.task import Classification

SPLIT, CLASSES = "split", "classes.json"
"""Names of the array of splits, and of the file of class names."""

_NAMES_LIMIT = 1 << 24  # bytes in the file of names
_NUMBERS = {"0": 0, "1": 1, "2": 2}


def read_class_names(root: Path) -> tuple[str, ...]:
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
    """Return an array of texts, one for each sample, as a column of them, and others as they
    are.
    """
    if array.dtype.kind not in "US" or not array.ndim or array.size != len(array):
        return array
    texts, codes = np.unique(array, return_inverse=True)
    names = (
        text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text)
        for text in texts
    )
    return Texts(codes.reshape(-1).astype(np.int64), tuple(names))


def parse_text_numbers(texts: Texts, name: str) -> Array:
    """Return the numbers that the texts of a column hold, float64."""
    try:
        return np.array(list(map(float, texts.names)))[texts.codes]
    except ValueError:
        raise DatasetError(f"{name!r} holds text, where numbers are needed") from None


def encode_split(split: Array | Texts) -> npt.NDArray[np.integer]:
    """Return the code of each sample's split, ``(n,)``."""
    if isinstance(split, Texts):
        codes = {**find_splits(split.names), **_NUMBERS}
        unknown = [name for name in split.names if name not in codes]
        if unknown:
            raise DatasetError(
                f"{SPLIT!r} should hold train, validation or test, not {unknown[0][:40]!r}"
            )
        return np.array([codes[name] for name in split.names])[split.codes]
    if split.ndim != 1 or split.dtype.kind not in "iu" or not np.isin(split, (0, 1, 2)).all():
        raise DatasetError(
            f"{SPLIT!r} should hold 0 (training), 1 (validation) or 2 (test) for each sample"
        )
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


_MOST_CLASSES = 1 << 20


@dataclass(frozen=True)
class KnownClasses:
    """The classes that a list names, or the file ``classes.json`` in the folder of the arrays."""

    root: Path
    class_list: Path | None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names in order of the class numbers; empty if neither file names them."""
        return (
            ClassList.read(self.class_list).names
            if self.class_list is not None
            else read_class_names(self.root)
        )

    def encode_labels(self, held: Array | Texts) -> tuple[Array, tuple[str, ...]]:
        """Return the class number of each sample, ``(n,)``, and the names of the classes, as far as
        they are known.

        Raises
        ------
        DatasetError
            If the labels are no classes, or others than are known.
        """
        if isinstance(held, Texts) and self.class_list is not None:
            listed = ClassList.read(self.class_list)
            return np.array([listed.number(name) for name in held.names], np.int64)[
                held.codes
            ], listed.names
        try:
            labels, names = (
                encode_class_labels(held, str(self.root))
                if isinstance(held, Texts)
                else class_labels(held)
            )
        except ValueError as error:
            raise DatasetError(f"{LABELS!r} {error}") from None
        if names and self.names:
            raise DatasetError(
                f"labels are names, and {CLASSES} names classes, too: use --class-list"
            )
        least, most = int(labels.min()), int(labels.max())
        if least < 0 or most >= _MOST_CLASSES:
            raise DatasetError(
                f"{LABELS!r} holds {least if least < 0 else most}, which is no number of a class"
            )
        if self.names and most >= len(self.names):
            told = self.class_list or CLASSES
            raise DatasetError(
                f"{LABELS!r} holds class {most}, and {told} names {len(self.names)} classes, "
                f"counted from 0"
            )
        return labels, names or self.names


def check_targets(task: Task, samples: Samples) -> None:
    """Judge perfect predictions of one sample, so that targets of a wrong form are told at once.

    Raises
    ------
    DatasetError
        If the task cannot judge such targets.
    """
    one = {
        name: array[:1].astype(choose_target_type(array)) for name, array in samples.targets.items()
    }
    spec = DatasetSpec(task.name, (), (), samples.class_names)
    try:
        task.evaluate(task.perfect(one, spec), one, spec)
    except NotSupported:
        return
    except KeyError as error:
        raise DatasetError(
            f"the task {task.name} needs the target {error}; name it with --targets"
        ) from None
    except (SpecMismatch, ConfigError, ArtifactError, ValueError, IndexError, TypeError) as error:
        form = ", ".join(
            f"{name} {array.dtype} {array.shape}" for name, array in samples.targets.items()
        )
        hint = "" if samples.class_names else "; if it needs names of classes, give --class-list"
        raise DatasetError(
            f"no targets of the task {task.name}: {form}: {format_one_line(error)}{hint}"
        ) from None


def choose_target_type(array: Array) -> np.dtype[Any]:
    """Return the element type of a target: int64 for integers, otherwise its own."""
    return np.dtype(np.int64) if array.dtype.kind in "iub" else np.dtype(array.dtype.name)


FEATURES = "features"
"""The name of the input with the columns of a table."""

_Held: TypeAlias = "Array | Texts"


class ArraysDataset(InMemoryDataset):
    """Your own arrays or tables, for any task.

    ``dataset_root`` is a folder of ``.npy`` files, an ``.npz`` archive, or a table (CSV, Parquet)
    with names of columns in its first line.  Arrays are ``(n, ...)``; files without compression are
    memory-mapped.  ``arrays`` adds files of other kinds.

    The targets of the task are found by their names (``labels`` is the target ``label``), or named
    with ``targets``. Every other array is an input with its own name, unless ``inputs`` chooses;
    for a model with one input, the name does not matter.  The columns of a table are one input,
    ``features``.  Labels may be text.

    The optional array or column ``split`` assigns each sample: 0 to training and calibration, 1 to
    validation, 2 to testing.  Without it, the split follows the fractions; all samples are for
    testing with ``test_fraction`` 1.  In a folder, ``classes.json`` may hold a list of class names.

    Examples
    --------
    >>> samples, labels = np.zeros((10, 4), np.float32), np.arange(10) % 2
    >>> data = write_arrays(Path("data"), {"x": samples}, labels, class_names=("cat", "dog"))
    >>> data.prepare()
    >>> len(data), data.spec.class_names
    (10, ('cat', 'dog'))
    """

    dataset_root: Path = argument(
        Path("data"),
        help="folder of .npy files, .npz archive, or table (.csv, .parquet) with names of columns",
    )
    task_name: str = argument(
        Classification.name,
        help="task whose targets the arrays hold; nnpipe list tasks shows them",
        flag="--task",
    )
    task_options: tuple[str, ...] = argument(
        (),
        help=(
            "arguments of the task, such as distance=euclidean; several values of one are "
            "separated by commas"
        ),
        metavar="NAME=VALUE",
    )
    arrays: tuple[str, ...] = argument(
        (),
        help="further files in the folder: raw numbers (image=a.bin:uint8:28x28x1), columns of a "
        "table (labels=b.csv:kind), a text file with a class in each line (labels=c.txt)",
        metavar="NAME=FILE[:...]",
    )
    inputs: tuple[str, ...] = argument(
        (),
        help="arrays or columns that are inputs; by default all that are not targets",
        metavar="[NAME=]ARRAY",
    )
    targets: tuple[str, ...] = argument(
        (),
        help="arrays or columns with the targets of the task; by default those of its names",
        metavar="[NAME=]ARRAY",
    )
    quantised: tuple[str, ...] = argument(
        (),
        help=(
            "inputs that hold quantised numbers, with their scale and zero point; they become real "
            "numbers"
        ),
        metavar="[NAME=]SCALE:ZERO_POINT",
    )
    class_list: Path | None = argument(
        None,
        help=(
            "text file with all classes, one per line in order of number; labels are then names or "
            "numbers"
        ),
    )

    stream: bool = argument(
        False,
        help="samples follow from one another in time: what a model keeps passes from each to the "
        "next; without it, each sample starts afresh",
    )

    def validate(self) -> None:
        """Check the form of the options."""
        if self.task_name != Classification.name or self.task_options:
            _ = self.task
        _ = self._files, self._chosen_inputs, self._chosen_targets, self._scales

    @cached_property
    def _files(self) -> tuple[NamedFile, ...]:
        return tuple(map(NamedFile.parse, self.arrays))

    @cached_property
    def _chosen_inputs(self) -> tuple[NamedParts, ...]:
        return tuple(NamedParts.parse(text, "--inputs") for text in self.inputs)

    @cached_property
    def _chosen_targets(self) -> tuple[NamedParts, ...]:
        return tuple(NamedParts.parse(text, "--targets") for text in self.targets)

    @cached_property
    def _scales(self) -> dict[str, QuantisedInput]:
        return {each.name: each for each in map(QuantisedInput.parse, self.quantised)}

    @cached_property
    def _classes(self) -> KnownClasses:
        return KnownClasses(self.dataset_root, self.class_list)

    @property
    def task(self) -> Task:
        """The task that was asked for, with its arguments."""
        task = get_task(self.task_name)
        if not self.task_options:
            return task
        return type(task).from_json(parse_arguments(type(task), self.task_options))

    @property
    def is_stream(self) -> bool:
        """Whether that was said of the samples."""
        return self.stream

    def load(self) -> Samples:
        """Return the samples; arrays are memory-mapped where their files allow it."""
        root = self.dataset_root
        try:
            if root.suffix.lower() in SUFFIXES and not root.is_dir():
                samples = self._build_from_table(open_table(root))
            else:
                samples = self._build_from_arrays(self._load_arrays())
            check_lengths(samples)
            check_targets(self.task, samples)
        except DatasetError as error:
            raise (
                error if str(error).startswith(str(root)) else DatasetError(f"{root}: {error}")
            ) from None
        return samples

    def download(self) -> None:
        """Do nothing: the arrays are the user's."""

    @property
    def spec(self) -> DatasetSpec:
        """The task, and the specification of inputs and targets, derived from the arrays."""
        samples = self.samples
        return DatasetSpec(
            self.task_name,
            tuple(
                TensorSpec(name, (None, *array.shape[1:]), self._get_dtype_name(name, array))
                for name, array in samples.inputs.items()
            ),
            tuple(
                TensorSpec(name, (None, *array.shape[1:]), choose_target_type(array).name)
                for name, array in samples.targets.items()
            ),
            samples.class_names,
        )

    @cached_property
    def reading_notes(self) -> tuple[str, ...]:
        """The inputs, the columns of a table, and the classes."""
        inputs = [
            f"{name} {show_shape(array.shape[1:])} {array.dtype}"
            for name, array in self.samples.inputs.items()
        ]
        notes = [
            f"inputs: {list_names(inputs)}; targets: {list_names(list(self.samples.targets))}",
            *self._columns_told,
        ]
        return (*notes, *super().reading_notes)

    @cached_property
    def _columns_told(self) -> tuple[str, ...]:
        root = self.dataset_root
        if root.suffix.lower() not in SUFFIXES or root.is_dir() or self._chosen_inputs:
            return ()
        table = open_table(root)
        used = {part for each in self._select_targets(table.names) for part in each.parts} | {SPLIT}
        left = [name for name in table.names if is_unnamed(name)]
        columns = (
            f"columns of features: {list_names([name for name in table.named if name not in used])}"
        )
        return (
            f"{columns}; without a name, and left out: {list_names(left)}" if left else columns,
        )

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return copies of some samples; integers of targets as int64, quantised inputs as
        float32.
        """
        inputs, targets = super().read(indices)
        found = {}
        for name, array in inputs.items():
            scale = self._find_scale(name)
            found[name] = (
                array.astype(array.dtype.name, copy=False)
                if scale is None
                else scale.dequantize(array)
            )
        return found, {
            name: array.astype(choose_target_type(array), copy=False)
            for name, array in targets.items()
        }

    def _get_dtype_name(self, name: str, array: Array) -> str:
        return array.dtype.name if self._find_scale(name) is None else "float32"

    def _find_scale(self, name: str) -> QuantisedInput | None:
        return self._scales.get(name, self._scales.get(""))

    # -- where arrays come from -------------------------------------------------------------------

    def _load_arrays(self) -> dict[str, _Held]:
        """Return all arrays of a folder or an archive, and of the files that are named."""
        root = self.dataset_root
        held: dict[str, _Held] = {}
        held.update(open_array_folder(root) if root.is_dir() else open_npz(root))
        folder = root if root.is_dir() else root.parent
        held |= {each.name: each.read(folder) for each in self._files}
        return {
            name: each if isinstance(each, Texts) else with_texts(each)
            for name, each in held.items()
        }

    def _build_from_arrays(self, held: dict[str, _Held]) -> Samples:
        targets = self._select_targets(tuple(held))
        split = held.pop(SPLIT, None)
        used = {part for each in targets for part in each.parts}
        inputs = self._chosen_inputs or tuple(
            NamedParts(name, (name,)) for name in held if name not in used
        )
        for each in (*targets, *inputs):
            if len(each.parts) > 1:
                raise DatasetError(
                    f"{', '.join(each.parts)}: several columns make one array in tables only"
                )
            if each.parts[0] not in held:
                raise DatasetError(
                    f"no array {each.parts[0]!r}{suggest_name(each.parts[0], held)}; "
                    f"{format_array_names(held)}"
                )
        if not inputs:
            raise DatasetError(
                f"no array beside {', '.join(map(repr, sorted(used)))}: put the inputs there, such "
                f"as images"
            )
        return self._build_samples(
            {each.name or each.parts[0]: held[each.parts[0]] for each in inputs},
            {each.name: held[each.parts[0]] for each in targets},
            split,
        )

    def _build_from_table(self, table: DataTable) -> Samples:
        targets = self._select_targets(table.names)
        used = {part for each in targets for part in each.parts} | {SPLIT}
        chosen = self._chosen_inputs or tuple(
            NamedParts("", (name,)) for name in table.named if name not in used
        )
        columns: dict[str, list[str]] = {}
        for each in chosen:
            columns.setdefault(each.name or FEATURES, []).extend(each.parts)
        files = {each.name: each.read(table.path.parent) for each in self._files}
        if not columns:
            raise DatasetError(
                f"no column beside {', '.join(sorted(used))}: there must be some for the inputs"
            )
        # All columns of numbers in one pass over the file.
        flat = [name for names in columns.values() for name in names]
        numbers = table.numbers(flat)
        inputs: dict[str, _Held] = dict.fromkeys(columns, numbers)
        if len(columns) > 1:
            inputs = {
                name: numbers[:, [flat.index(one) for one in names]]
                for name, names in columns.items()
            }
        held: dict[str, _Held] = {}
        for each in targets:
            if each.parts[0] in files:
                held[each.name] = files[each.parts[0]]
            elif each.name == LABEL:
                held[each.name] = table.read_texts(each.parts[0])
            else:
                found = table.numbers(each.parts)
                held[each.name] = found if len(each.parts) > 1 else found[:, 0]
        return self._build_samples(
            inputs, held, table.read_texts(SPLIT) if SPLIT in table.names else None
        )

    def _select_targets(self, names: Iterable[str]) -> tuple[NamedParts, ...]:
        return select_targets(
            {*names, *(each.name for each in self._files)}, self.task, self._chosen_targets
        )

    # -- samples ----------------------------------------------------------------------------------

    def _build_samples(
        self, inputs: Mapping[str, _Held], targets: Mapping[str, _Held], split: _Held | None
    ) -> Samples:
        names: tuple[str, ...] = ()
        found: dict[str, Array] = {}
        for name, held in targets.items():
            if name == LABEL:
                found[name], names = self._classes.encode_labels(held)
            elif isinstance(held, Texts):
                found[name] = parse_text_numbers(held, name)
            else:
                found[name] = held
        if not names and self.task.scores_classes:
            names = tuple(map(str, range(int(found[LABEL].max()) + 1)))
        names = names or self._classes.names
        given = {
            name: held if not isinstance(held, Texts) else parse_text_numbers(held, name)
            for name, held in inputs.items()
        }
        for name, array in given.items():
            if array.dtype.kind not in "biuf":
                raise DatasetError(f"{name!r} holds {array.dtype}, not numbers")
        for name in self._scales:
            if name not in given and (name or len(given) > 1):
                raise DatasetError(
                    f"--quantised names the input {name!r}, and there are {', '.join(given)}"
                )
        for name, array in given.items():
            if (scale := self._find_scale(name)) is not None:
                scale.check(array)
        return Samples(given, found, names, None if split is None else encode_split(split))


def write_arrays(
    folder: Path,
    inputs: Mapping[str, npt.NDArray[Any]],
    labels: npt.NDArray[Any],
    *,
    split: npt.NDArray[np.integer] | None = None,
    class_names: tuple[str, ...] = (),
    task: str = Classification.name,
) -> ArraysDataset:
    """Write arrays into a new folder, and return the data set that reads them.

    Parameters
    ----------
    folder
        The folder; created if missing.
    inputs
        Arrays ``(n, ...)`` by tensor name.
    labels
        ``(n,)`` integers from 0; or what the task predicts, ``(n, ...)``.
    split
        ``(n,)`` integers: 0 for training and calibration, 1 for validation, 2 for testing.
    class_names
        Class names in order of their numbers; by default the numbers.
    task
        The name of the task.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = get_task(task).targets[0]
    arrays = {**inputs, LABELS if target == LABEL else target: labels} | (
        {} if split is None else {SPLIT: split}
    )
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    if class_names:
        (folder / CLASSES).write_text(json.dumps(list(class_names)), "utf-8")
    return ArraysDataset(dataset_root=folder, task_name=task)
