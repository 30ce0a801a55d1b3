"""What a data set holds: its task, tensors and classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.tensors import TensorSpec


@dataclass(frozen=True)
class DatasetSpec:
    """The task, tensors and classes of a data set.

    Parameters
    ----------
    task
        The name of a :class:`~nnpipe.core.task.Task`, such as ``"regression"``.
    inputs, targets
        The tensors that ``read`` returns, with a free first axis for samples.
        Images are ``(None, height, width, channels)`` of ``uint8``; the target
        of a classification is ``"label"``, ``(None,)`` of ``int64``.
    class_names
        Names of the classes, ordered by class number; empty if there are no classes.
    transforms
        For some inputs, by name, the :class:`~nnpipe.core.input_transform.InputTransform` that was fitted to the
        training samples, as its class and arguments; models that are trained on them take it over.
    ranges
        For some inputs, by name, the least and greatest number that they may hold, if that is not what their element
        type says: pixels from 0 to 16.
    sample_rates
        For inputs that are sounds, by name, the number of samples a second, if it is known.

    Examples
    --------
    >>> from nnpipe import TensorSpec
    >>> image, label = TensorSpec("image", (8, 8, 1), "uint8"), TensorSpec("label", (), "int64")
    >>> DatasetSpec("cats and dogs", (image,), (label,), ("cat", "dog")).class_names
    ('cat', 'dog')
    """

    task: str
    inputs: tuple[TensorSpec, ...]
    targets: tuple[TensorSpec, ...]
    class_names: tuple[str, ...] = ()
    transforms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    sample_rates: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_call(DatasetSpec, vars(self))
