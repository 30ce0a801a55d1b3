"""The budget of a sweep: a share of the time that measuring everything would take, or a time."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.racing import SHARES
from nnpipe.measuring.run import Run

_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_BUDGET = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(%|[a-z]+)")
_RESERVE = 0.05  # of a share: what measuring everything takes is only estimated
_ERRORS = 1.0  # standard errors: a budget is a share of what a few inferences say about all
_LEAST_SHARE = 2 * SHARES[0]  # the first look at every candidate takes half of it


@dataclass(frozen=True)
class SweepBudget:
    """The time that a sweep may spend on measuring.

    Parameters
    ----------
    text
        The budget as it was given.
    share
        Its share of the time that measuring every candidate in full takes; ``None`` for a budget in
        seconds.
    seconds
        The budget in seconds; ``None`` for a share.
    """

    text: str
    share: float | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, given: Any) -> SweepBudget:
        """Return the budget of ``"40 %"``, ``0.4``, ``"10min"``, ``"90 s"`` or ``"2h"``.

        Raises
        ------
        ConfigError
            If it is neither a share from 10 % to below 100 % nor a time.
        """
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            return cls._from_share(f"{100 * given:g} %", float(given))
        found = _BUDGET.fullmatch(given.strip()) if isinstance(given, str) else None
        number, unit = (float(found[1]), found[2]) if found else (0.0, "")
        if unit == "%":
            return cls._from_share(f"{number:g} %", number / 100)
        if unit in _SECONDS and number > 0:
            return cls(f"{number:g} {unit}", seconds=number * _SECONDS[unit])
        raise ConfigError(
            f"budget: expected a share of the time of the full sweep, such as 40 %, or a time, "
            f"such as 10min, found {given!r}"
        )

    @classmethod
    def _from_share(cls, text: str, share: float) -> SweepBudget:
        if not _LEAST_SHARE <= share < 1:
            raise ConfigError(
                f"budget: a share is from {100 * _LEAST_SHARE:g} %, since the first look at every "
                f"candidate takes {100 * SHARES[0]:g} %, to below 100 %; found {text}"
            )
        return cls(text, share=share)

    def limit(self, full_seconds: float) -> float:
        """Return the budget in seconds, if measuring everything takes ``full_seconds``."""
        if self.seconds is not None:
            return self.seconds
        return full_seconds * (self.share or 1.0) * (1 - _RESERVE)


@dataclass(frozen=True)
class BudgetUse:
    """What a race took, and what it saved.

    Parameters
    ----------
    budget
        The budget as it was given.
    seconds
        How long it measured.
    full_seconds
        How long measuring every candidate in full would have taken.
    whole, candidates
        How many candidates were measured in full, and how many at all.
    """

    budget: str
    seconds: float
    full_seconds: float
    whole: int
    candidates: int

    def __str__(self) -> str:
        return (
            f"budget {self.budget}: {self.whole} of {self.candidates} candidates were measured in "
            f"full, in {self.seconds:.1f} s of the {self.full_seconds:.1f} s that measuring all "
            f"would have taken"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it in its JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class MeasuringTime:
    """What a measurement took, and what others of the same candidate would take, in seconds.

    Parameters
    ----------
    fixed
        Loading the model, the first inference and warming up.
    window
        All inferences that were recorded.
    a_call, error
        One inference on average, and the standard error of this average.
    """

    fixed: float
    window: float
    a_call: float
    error: float = 0.0

    @classmethod
    def from_run(cls, run: Run) -> MeasuringTime:
        """Return what a run took."""
        inference = run.series.get("inference")
        times = (
            np.zeros(0) if inference is None else np.asarray(inference["latency_ns"], np.float64)
        )
        timing = run.timing
        a_call = float(times.mean()) if len(times) else 0.0
        window = float(timing.get("window_ns", times.sum()))
        # Warm-up is not recorded; the median is not affected by single slow calls.
        warmup = timing.get("warmup", 0) * (float(np.median(times)) if len(times) else 0.0)
        fixed = timing.get("load_ns", 0) + timing.get("first_ns", 0) + warmup
        error = float(times.std(ddof=1)) / math.sqrt(len(times)) if len(times) > 1 else 0.0
        return cls(fixed / 1e9, window / 1e9, a_call / 1e9, error / 1e9)

    @property
    def seconds(self) -> float:
        """What it took in all."""
        return self.fixed + self.window

    def estimate(self, samples: int, seconds: float, batch_size: int) -> float:
        """Return what a measurement of so many samples and at least so many seconds would take."""
        return self.fixed + max(seconds, self.a_call * math.ceil(samples / batch_size))

    def to_lower_bound(self) -> MeasuringTime:
        """Return it with the time of an inference at the lower end of what its average may be."""
        return replace(self, a_call=max(0.0, self.a_call - _ERRORS * self.error))
