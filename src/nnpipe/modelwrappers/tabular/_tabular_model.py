"""What all models of tables have in common: inputs, outputs, and the encoding of the columns."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.input_transform import transform_from
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.task import has_class_scores
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata
from nnpipe.core.tensors import DatasetSpec, IOSpec, TensorSpec, show_shape

if TYPE_CHECKING:
    from typing_extensions import Self

INPUT, SCORES, VALUE = "features", "scores", "value"
"""The names of the input and of the output."""

_MOST_CLASSES = 1 << 16


class TabularModel(ModelWrapper):
    """A model of the rows of a table, which tells classes apart or predicts a number.

    The input ``"features"`` is ``(n, values)`` float32, encoded columns; the output is
    ``"scores"``, ``(n, classes)`` probabilities, or ``"value"``, ``(n,)``.  The data set determines
    the arguments that are left out: the encoding of the columns, which was learned from its
    training samples and travels with the files of the model, and the classes.
    """

    abstract: ClassVar[bool] = True

    columns: int | None = argument(
        None, help="number of columns; by default that of the data set", minimum=1
    )
    column_encoding: str | None = argument(
        None,
        help=(
            "input transform that encodes columns, as JSON with class and arguments; by default "
            "the data set's"
        ),
    )
    num_classes: int | None = argument(
        None,
        help="number of classes, 0 to predict a number; by default that of the data set",
        minimum=0,
        maximum=_MOST_CLASSES,
    )

    def validate(self) -> None:
        """Check the encoding."""
        if self.column_encoding is not None:
            _ = self._encoding

    @property
    def _encoding(self) -> dict[str, Any] | None:
        if self.column_encoding is None:
            return None
        try:
            found = parse_json(self.column_encoding)
            transform_from(found)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ConfigError(
                f"{type(self).__name__}.column_encoding should be JSON with class and arguments"
            ) from None
        return dict(found)

    @property
    def width(self) -> int:
        """The number of values that the model is given; a ``ConfigError`` if nothing tells."""
        if self.columns is None or self.num_classes is None:
            raise ConfigError(
                f"{type(self).__name__} without a data set needs --columns and --num-classes to be "
                f"given"
            )
        encoding = self._encoding
        if encoding is None:
            return self.columns
        return int(transform_from(encoding).shape((self.columns,))[0] or 0)

    @property
    def classifies_rows(self) -> bool:
        """Whether the model tells classes apart."""
        return bool(self.num_classes)

    @property
    def io(self) -> IOSpec:
        """Encoded columns, and probabilities or a number."""
        given = TensorSpec(INPUT, (None, self.width), "float32")
        if self.classifies_rows:
            return IOSpec((given,), (TensorSpec(SCORES, (None, self.num_classes), "float32"),))
        return IOSpec((given,), (TensorSpec(VALUE, (None,), "float32"),))

    @property
    def meaning(self) -> ModelMetadata:
        """The encoding of the columns, and probabilities or a number."""
        kind = (
            OutputMetadata(SCORES, "probabilities")
            if self.classifies_rows
            else OutputMetadata(VALUE, "value")
        )
        return ModelMetadata(
            (InputProcessing(INPUT, "features", transform=self._encoding),), (kind,)
        )

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper with missing arguments taken from the data set, after a check of the
        others.

        Raises
        ------
        ConfigError
            If the data set has other columns or classes.
        """
        name = type(self).__name__
        if (
            len(spec.inputs) != 1
            or len(spec.inputs[0].shape) != 2
            or spec.inputs[0].shape[1] is None
        ):
            shapes = ", ".join(f"{each.name} {show_shape(each.shape)}" for each in spec.inputs)
            raise ConfigError(
                f"{name} takes rows of a table, (n, columns); the data set gives {shapes}"
            )
        classes = len(spec.class_names) if has_class_scores(spec.task) else 0
        if not classes and [each.shape for each in spec.targets] != [(None,)]:
            raise ConfigError(
                f"{name} predicts a class or one number; the data set is for {spec.task}"
            )
        columns = int(spec.inputs[0].shape[1])
        for what, mine, its in (
            ("columns", self.columns, columns),
            ("classes", self.num_classes, classes),
        ):
            if mine not in (None, its):
                raise ConfigError(f"{name} is made for {mine} {what}, and the data set has {its}")
        encoding = spec.transforms.get(spec.inputs[0].name)
        given = self.column_encoding
        if given is None and encoding is not None:
            given = json.dumps({"class": encoding["class"], "arguments": encoding["arguments"]})
        return replace(self, columns=columns, num_classes=classes, column_encoding=given)


_AT_ONCE = 1 << 16
_NOISE = 256  # rows


def make_noise(width: int, classes: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return rows of noise with labels, or with numbers if there are no classes, for models
    without a training.
    """
    rows = np.random.default_rng(0).standard_normal((_NOISE, width)).astype(np.float32)
    return rows, np.arange(_NOISE) % (classes or _NOISE)


def encode_split(
    wrapper: TabularModel, dataset: Dataset, split: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the model's inputs ``(n, values)`` float32 and the targets ``(n,)`` of one split.

    Raises
    ------
    DatasetError
        If the split is empty.
    """
    dataset.prepare()
    indices = dataset.split(split)
    if not len(indices):
        raise DatasetError(f"{type(dataset).__name__}: its split {split!r} is empty")
    rows, truth = [], []
    for inputs, targets in dataset.batches(indices, _AT_ONCE):
        rows.append(wrapper.preprocess(inputs)[INPUT])
        truth.append(targets["label" if wrapper.classifies_rows else VALUE])
    return np.concatenate(rows), np.concatenate(truth)
