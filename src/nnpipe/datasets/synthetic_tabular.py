"""A synthetic table with numbers, categories and gaps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.category_code import category_code
from nnpipe.datasets.in_memory import Samples
from nnpipe.datasets.tabular import FEATURES, Column, TabularDataset
from nnpipe.tasks.classification.task import Classification

_COLOURS = ("red", "green", "blue", "grey")


class SyntheticTabularDataset(TabularDataset):
    """Rows of three numbers of different sizes and a category, with gaps, in two classes.

    The class depends on thresholds, of which that of the first number is another one for each category: trees learn it
    from the columns, a linear model cannot.
    """

    num_samples: int = argument(1000, help="number of samples", minimum=1)
    data_seed: int = argument(0, help="seed of the samples", minimum=0)
    gaps: float = argument(0.05, help="part of the cells that are missing", minimum=0.0, maximum=0.9)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Three columns of numbers, and one of categories."""
        return (
            *(Column(name) for name in ("age", "income", "share")),
            Column("colour", {category_code(text): text for text in _COLOURS}),
        )

    @property
    def table_task(self) -> str:
        """Classification."""
        return Classification.name

    def load(self) -> Samples:
        """Return random rows, float64, and their classes."""
        rng = np.random.default_rng(self.data_seed)
        age = rng.uniform(18, 90, self.num_samples)
        income = rng.lognormal(10, 0.5, self.num_samples)
        share = rng.random(self.num_samples)
        colour = rng.integers(0, len(_COLOURS), self.num_samples)
        bound = np.array([30, 45, 60, 75])[colour]
        label = ((age > bound) ^ (share > 0.8)).astype(np.int64)
        codes = np.array([category_code(text) for text in _COLOURS])[colour]
        rows = np.stack([age, income, share, codes], axis=1)
        rows[rng.random(rows.shape) < self.gaps] = np.nan
        return Samples({FEATURES: rows}, {"label": label}, ("no", "yes"))

    def origin(self) -> Mapping[str, Any]:
        """Return that the data are synthetic."""
        return {"name": f"made by {type(self).__name__}", "licence": "none needed"}
