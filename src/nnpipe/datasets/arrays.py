"""Your own arrays and tables: inputs and targets of any task, by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_words import arguments_in
from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import DatasetError
from nnpipe.core.naming import list_names, nearest
from nnpipe.core.task import Task, task_named
from nnpipe.core.tensors import Batch, TensorSpec, show_shape
from nnpipe.datasets._array_files import Array, arrays_of_archive, arrays_of_folder
from nnpipe.datasets._array_samples import CLASSES, SPLIT, check_lengths, numbers_of, official_split, with_texts
from nnpipe.datasets._array_targets import KnownClasses, check_targets, wide_type
from nnpipe.datasets._named_arrays import LABEL, LABELS, NamedFile, NamedParts, listed_names, targets_among
from nnpipe.datasets._number_table import is_unnamed
from nnpipe.datasets._quantised_inputs import QuantisedInput
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.datasets.table import SUFFIXES, DataTable, Texts, table_of
from nnpipe.tasks.classification.task import Classification

FEATURES = "features"
"""The name of the input with the columns of a table."""

_Held: TypeAlias = "Array | Texts"


class ArraysDataset(InMemoryDataset):
    """Your own arrays or tables, for any task.

    ``dataset_root`` is a folder of ``.npy`` files, an ``.npz`` archive, or a table (CSV, Parquet) with names of
    columns in its first line.  Arrays are ``(n, ...)``; files without compression are memory-mapped.  ``arrays`` adds
    files of other kinds.

    The targets of the task are found by their names (``labels`` is the target ``label``), or named with ``targets``.
    Every other array is an input with its own name, unless ``inputs`` chooses; for a model with one input, the name
    does not matter.  The columns of a table are one input, ``features``.  Labels may be text.

    The optional array or column ``split`` assigns each sample: 0 to training and calibration, 1 to validation, 2 to
    testing.  Without it, the split follows the fractions; all samples are for testing with ``test_fraction`` 1.  In a
    folder, ``classes.json`` may hold a list of class names.

    Examples
    --------
    >>> samples, labels = np.zeros((10, 4), np.float32), np.arange(10) % 2
    >>> data = write_arrays(Path("data"), {"x": samples}, labels, class_names=("cat", "dog"))
    >>> data.prepare()
    >>> len(data), data.spec.class_names
    (10, ('cat', 'dog'))
    """

    dataset_root: Path = argument(
        Path("data"), help="folder of .npy files, .npz archive, or table (.csv, .parquet) with names of columns"
    )
    task_name: str = argument(
        Classification.name, help="task whose targets the arrays hold; nnpipe list tasks shows them", flag="--task"
    )
    task_options: tuple[str, ...] = argument(
        (),
        help="arguments of the task, such as distance=euclidean; several values of one are separated by commas",
        metavar="NAME=VALUE",
    )
    arrays: tuple[str, ...] = argument(
        (),
        help="further files in the folder: raw numbers (image=a.bin:uint8:28x28x1), columns of a table "
        "(labels=b.csv:kind), a text file with a class in each line (labels=c.txt)",
        metavar="NAME=FILE[:...]",
    )
    inputs: tuple[str, ...] = argument(
        (), help="arrays or columns that are inputs; by default all that are not targets", metavar="[NAME=]ARRAY"
    )
    targets: tuple[str, ...] = argument(
        (), help="arrays or columns with the targets of the task; by default those of its names", metavar="[NAME=]ARRAY"
    )
    quantised: tuple[str, ...] = argument(
        (),
        help="inputs that hold quantised numbers, with their scale and zero point; they become real numbers",
        metavar="[NAME=]SCALE:ZERO_POINT",
    )
    class_list: Path | None = argument(
        None, help="text file with all classes, one per line in order of number; labels are then names or numbers"
    )

    stream: bool = argument(
        False,
        help="samples follow from one another in time: what a model keeps passes from each to the next; without it, "
        "each sample starts afresh",
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
        task = task_named(self.task_name)
        if not self.task_options:
            return task
        return type(task).from_json(arguments_in(type(task), self.task_options))

    @property
    def is_stream(self) -> bool:
        """Whether that was said of the samples."""
        return self.stream

    def load(self) -> Samples:
        """Return the samples; arrays are memory-mapped where their files allow it."""
        root = self.dataset_root
        try:
            if root.suffix.lower() in SUFFIXES and not root.is_dir():
                samples = self._of_table(table_of(root))
            else:
                samples = self._of_arrays(self._held())
            check_lengths(samples)
            check_targets(self.task, samples)
        except DatasetError as error:
            raise error if str(error).startswith(str(root)) else DatasetError(f"{root}: {error}") from None
        return samples

    def download(self) -> None:
        """Do nothing: the arrays are the user's."""

    @property
    def spec(self) -> DatasetSpec:
        """The task, and the specification of inputs and targets, derived from the arrays."""
        samples = self.samples
        return DatasetSpec(
            self.task_name,
            tuple(TensorSpec(name, (None, *array.shape[1:]), self._type_of(name, array))
                  for name, array in samples.inputs.items()),
            tuple(TensorSpec(name, (None, *array.shape[1:]), wide_type(array).name)
                  for name, array in samples.targets.items()),
            samples.class_names,
        )  # fmt: skip

    @cached_property
    def reading_notes(self) -> tuple[str, ...]:
        """The inputs, the columns of a table, and the classes."""
        inputs = [f"{name} {show_shape(array.shape[1:])} {array.dtype}" for name, array in self.samples.inputs.items()]
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
        table = table_of(root)
        used = {part for each in self._targets_in(table.names) for part in each.parts} | {SPLIT}
        left = [name for name in table.names if is_unnamed(name)]
        columns = f"columns of features: {list_names([name for name in table.named if name not in used])}"
        return (f"{columns}; without a name, and left out: {list_names(left)}" if left else columns,)

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return copies of some samples; integers of targets as int64, quantised inputs as float32."""
        inputs, targets = super().read(indices)
        found = {}
        for name, array in inputs.items():
            scale = self._scale_of(name)
            found[name] = array.astype(array.dtype.name, copy=False) if scale is None else scale.real(array)
        return found, {name: array.astype(wide_type(array), copy=False) for name, array in targets.items()}

    def _type_of(self, name: str, array: Array) -> str:
        return array.dtype.name if self._scale_of(name) is None else "float32"

    def _scale_of(self, name: str) -> QuantisedInput | None:
        return self._scales.get(name, self._scales.get(""))

    # -- where arrays come from -------------------------------------------------------------------

    def _held(self) -> dict[str, _Held]:
        """Return all arrays of a folder or an archive, and of the files that are named."""
        root = self.dataset_root
        held: dict[str, _Held] = {}
        held.update(arrays_of_folder(root) if root.is_dir() else arrays_of_archive(root))
        folder = root if root.is_dir() else root.parent
        held |= {each.name: each.read(folder) for each in self._files}
        return {name: each if isinstance(each, Texts) else with_texts(each) for name, each in held.items()}

    def _of_arrays(self, held: dict[str, _Held]) -> Samples:
        targets = self._targets_in(tuple(held))
        split = held.pop(SPLIT, None)
        used = {part for each in targets for part in each.parts}
        inputs = self._chosen_inputs or tuple(NamedParts(name, (name,)) for name in held if name not in used)
        for each in (*targets, *inputs):
            if len(each.parts) > 1:
                raise DatasetError(f"{', '.join(each.parts)}: several columns make one array in tables only")
            if each.parts[0] not in held:
                raise DatasetError(f"no array {each.parts[0]!r}{nearest(each.parts[0], held)}; {listed_names(held)}")
        if not inputs:
            raise DatasetError(
                f"no array beside {', '.join(map(repr, sorted(used)))}: put the inputs there, such as images"
            )
        return self._samples(
            {each.name or each.parts[0]: held[each.parts[0]] for each in inputs},
            {each.name: held[each.parts[0]] for each in targets},
            split,
        )

    def _of_table(self, table: DataTable) -> Samples:
        targets = self._targets_in(table.names)
        used = {part for each in targets for part in each.parts} | {SPLIT}
        chosen = self._chosen_inputs or tuple(NamedParts("", (name,)) for name in table.named if name not in used)
        columns: dict[str, list[str]] = {}
        for each in chosen:
            columns.setdefault(each.name or FEATURES, []).extend(each.parts)
        files = {each.name: each.read(table.path.parent) for each in self._files}
        if not columns:
            raise DatasetError(f"no column beside {', '.join(sorted(used))}: there must be some for the inputs")
        # All columns of numbers in one pass over the file.
        flat = [name for names in columns.values() for name in names]
        numbers = table.numbers(flat)
        inputs: dict[str, _Held] = dict.fromkeys(columns, numbers)
        if len(columns) > 1:
            inputs = {name: numbers[:, [flat.index(one) for one in names]] for name, names in columns.items()}
        held: dict[str, _Held] = {}
        for each in targets:
            if each.parts[0] in files:
                held[each.name] = files[each.parts[0]]
            elif each.name == LABEL:
                held[each.name] = table.texts(each.parts[0])
            else:
                found = table.numbers(each.parts)
                held[each.name] = found if len(each.parts) > 1 else found[:, 0]
        return self._samples(inputs, held, table.texts(SPLIT) if SPLIT in table.names else None)

    def _targets_in(self, names: Iterable[str]) -> tuple[NamedParts, ...]:
        return targets_among({*names, *(each.name for each in self._files)}, self.task, self._chosen_targets)

    # -- samples ----------------------------------------------------------------------------------

    def _samples(self, inputs: Mapping[str, _Held], targets: Mapping[str, _Held], split: _Held | None) -> Samples:
        names: tuple[str, ...] = ()
        found: dict[str, Array] = {}
        for name, held in targets.items():
            if name == LABEL:
                found[name], names = self._classes.numbered(held)
            elif isinstance(held, Texts):
                found[name] = numbers_of(held, name)
            else:
                found[name] = held
        if not names and self.task.scores_classes:
            names = tuple(map(str, range(int(found[LABEL].max()) + 1)))
        names = names or self._classes.names
        given = {name: held if not isinstance(held, Texts) else numbers_of(held, name) for name, held in inputs.items()}
        for name, array in given.items():
            if array.dtype.kind not in "biuf":
                raise DatasetError(f"{name!r} holds {array.dtype}, not numbers")
        for name in self._scales:
            if name not in given and (name or len(given) > 1):
                raise DatasetError(f"--quantised names the input {name!r}, and there are {', '.join(given)}")
        for name, array in given.items():
            if (scale := self._scale_of(name)) is not None:
                scale.check(array)
        return Samples(given, found, names, None if split is None else official_split(split))


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
    target = task_named(task).targets[0]
    arrays = {**inputs, LABELS if target == LABEL else target: labels} | ({} if split is None else {SPLIT: split})
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    if class_names:
        (folder / CLASSES).write_text(json.dumps(list(class_names)), "utf-8")
    return ArraysDataset(dataset_root=folder, task_name=task)
