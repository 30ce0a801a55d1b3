"""Series: repeated observations as columns of equal length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from nnpipe.core.errors import ArtifactError


@dataclass(frozen=True)
class Series:
    """Columns of equal length, with one row per observation.

    Parameters
    ----------
    columns
        Arrays by name; the name ends in the unit: ``start_ns``, ``latency_ns``,
        ``cpu_percent``, ``process_bytes``.
    """

    columns: Mapping[str, npt.NDArray[Any]]

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if (
                column.ndim != 1
                or column.dtype.kind not in "iuf"
                or (name.endswith("_ns") and column.dtype.kind == "f")
            ):
                raise ArtifactError(f"{name!r} is no column of a series: {column.dtype} of shape {column.shape}")
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ArtifactError(f"the columns of a series differ in length: {lengths}")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns
