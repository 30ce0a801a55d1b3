"""Evaluations: the arrays of predictions and truth from which quality metrics are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError


@dataclass(frozen=True)
class Evaluation:
    """Per-sample arrays from which a task's metrics are computed.

    For a classification, these are ``truth`` and ``predicted``, which are class
    numbers, and ``rank``, the position of the true class when scores are sorted
    in descending order (0 means that the prediction is right).

    Parameters
    ----------
    task
        ``"classification"``, ``"regression"``, ...
    arrays
        Arrays by name, with one entry per sample along the first axis.
    class_names
        Names of the classes, ordered by class number.

    Examples
    --------
    >>> import numpy as np
    >>> arrays = {"label": np.array([0, 1]), "prediction": np.array([0, 0])}
    >>> Evaluation("classification", arrays, ("cat", "dog")).class_names
    ('cat', 'dog')
    """

    task: str
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_call(Evaluation, vars(self))
        lengths = {len(array) for array in self.arrays.values()}
        if len(lengths) > 1:
            raise ConfigError(f"an evaluation needs arrays of one length, these have {sorted(lengths)}")

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values()), ()))

    @classmethod
    def joined(cls, parts: Iterable[Evaluation]) -> Evaluation:
        """Concatenate the evaluations of consecutive batches.

        Raises
        ------
        ConfigError
            If there are none, or they differ in task, arrays or class names.
        """
        parts = list(parts)
        if not parts:
            raise ConfigError("nothing was evaluated: the split that was asked for is empty")
        first = parts[0]
        if len({(part.task, part.class_names, frozenset(part.arrays)) for part in parts}) > 1:
            raise ConfigError("evaluations of different kinds cannot be joined")
        arrays = {name: np.concatenate([part.arrays[name] for part in parts]) for name in first.arrays}
        return cls(first.task, arrays, first.class_names)
