"""The targets in the user's own arrays: labels with their classes, and whether a task can judge them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ArtifactError, ConfigError, DatasetError, NotSupported, SpecMismatch
from nnpipe.core.messages import one_line
from nnpipe.core.task import Task
from nnpipe.datasets._array_files import Array
from nnpipe.datasets._array_samples import CLASSES, names_beside
from nnpipe.datasets._class_list import ClassList
from nnpipe.datasets._named_arrays import LABELS, class_numbers
from nnpipe.datasets.in_memory import Samples
from nnpipe.datasets.table import Texts
from nnpipe.tasks.classification.labels import class_labels

_MOST_CLASSES = 1 << 20


@dataclass(frozen=True)
class KnownClasses:
    """The classes that a list names, or the file ``classes.json`` in the folder of the arrays."""

    root: Path
    class_list: Path | None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names in order of the class numbers; empty if neither file names them."""
        return ClassList.read(self.class_list).names if self.class_list is not None else names_beside(self.root)

    def numbered(self, held: Array | Texts) -> tuple[Array, tuple[str, ...]]:
        """Return the class number of each sample, ``(n,)``, and the names of the classes, as far as they are known.

        Raises
        ------
        DatasetError
            If the labels are no classes, or others than are known.
        """
        if isinstance(held, Texts) and self.class_list is not None:
            listed = ClassList.read(self.class_list)
            return np.array([listed.number(name) for name in held.names], np.int64)[held.codes], listed.names
        try:
            labels, names = class_numbers(held, str(self.root)) if isinstance(held, Texts) else class_labels(held)
        except ValueError as error:
            raise DatasetError(f"{LABELS!r} {error}") from None
        if names and self.names:
            raise DatasetError(f"labels are names, and {CLASSES} names classes, too: use --class-list")
        least, most = int(labels.min()), int(labels.max())
        if least < 0 or most >= _MOST_CLASSES:
            raise DatasetError(f"{LABELS!r} holds {least if least < 0 else most}, which is no number of a class")
        if self.names and most >= len(self.names):
            told = self.class_list or CLASSES
            raise DatasetError(
                f"{LABELS!r} holds class {most}, and {told} names {len(self.names)} classes, counted from 0"
            )
        return labels, names or self.names


def check_targets(task: Task, samples: Samples) -> None:
    """Judge perfect predictions of one sample, so that targets of a wrong form are told at once.

    Raises
    ------
    DatasetError
        If the task cannot judge such targets.
    """
    one = {name: array[:1].astype(wide_type(array)) for name, array in samples.targets.items()}
    spec = DatasetSpec(task.name, (), (), samples.class_names)
    try:
        task.judge(task.perfect(one, spec), one, spec)
    except NotSupported:
        return
    except KeyError as error:
        raise DatasetError(f"the task {task.name} needs the target {error}; name it with --targets") from None
    except (SpecMismatch, ConfigError, ArtifactError, ValueError, IndexError, TypeError) as error:
        form = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in samples.targets.items())
        hint = "" if samples.class_names else "; if it needs names of classes, give --class-list"
        raise DatasetError(f"no targets of the task {task.name}: {form}: {one_line(error)}{hint}") from None


def wide_type(array: Array) -> np.dtype[Any]:
    """Return the element type of a target: int64 for integers, otherwise its own."""
    return np.dtype(np.int64) if array.dtype.kind in "iub" else np.dtype(array.dtype.name)
