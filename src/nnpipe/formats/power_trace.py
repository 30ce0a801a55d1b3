"""Traces of electrical power over time, and the energy between two times."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ArtifactError

Floats = npt.NDArray[np.float64]

_MOST_BYTES = 1 << 28
_GAP = 20.0  # times the usual interval; a longer gap is a hole in the trace
_TIMES = {
    "time": 1.0,
    "time_s": 1.0,
    "seconds": 1.0,
    "timestamp": 1.0,
    "time_ms": 1e-3,
    "time_us": 1e-6,
    "time_ns": 1e-9,
}
_POWERS = {"power": 1.0, "power_w": 1.0, "watts": 1.0, "power_mw": 1e-3, "power_uw": 1e-6}
_VOLTAGES = {"voltage": 1.0, "voltage_v": 1.0, "volts": 1.0, "voltage_mv": 1e-3}
_CURRENTS = {
    "current": 1.0,
    "current_a": 1.0,
    "amperes": 1.0,
    "current_ma": 1e-3,
    "current_ua": 1e-6,
}
_TRIGGERS = {"trigger": 1.0, "gpio": 1.0}


@dataclass(frozen=True, eq=False)
class PowerTrace:
    """Samples of power.

    Parameters
    ----------
    time_s
        When each was taken, in seconds, float64 ``(samples,)``, rising.
    watts
        The power, float64 ``(samples,)``.
    trigger
        The level of a pin of the device at each time, ``(samples,)``, 0 for low; empty if none was
        recorded.

    Raises
    ------
    ArtifactError
        If there are fewer than two samples, a number is not finite, or times do not rise.

    Examples
    --------
    >>> trace = PowerTrace(np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 3.0]))
    >>> trace.compute_energy(0.5, 2.0)
    2.5
    """

    time_s: Floats
    watts: Floats
    trigger: Floats

    def __init__(
        self, time_s: npt.ArrayLike, watts: npt.ArrayLike, trigger: npt.ArrayLike = ()
    ) -> None:
        times, powers = np.asarray(time_s, np.float64), np.asarray(watts, np.float64)
        levels = np.asarray(trigger, np.float64)
        if (
            times.ndim != 1
            or times.shape != powers.shape
            or len(times) < 2
            or len(levels) not in (0, len(times))
        ):
            raise ArtifactError(
                "a trace of power needs two samples or more, each with a time and a power"
            )
        if not (
            np.isfinite(times).all() and np.isfinite(powers).all() and np.isfinite(levels).all()
        ):
            raise ArtifactError("a trace of power has a number that is not finite")
        if (np.diff(times) < 0).any():
            raise ArtifactError("the times of a trace of power must rise")
        for name, values in (("time_s", times), ("watts", powers), ("trigger", levels)):
            object.__setattr__(self, name, values)

    @property
    def interval_s(self) -> float:
        """Return the median time between two samples."""
        return float(np.median(np.diff(self.time_s)))

    def compute_energy(self, start_s: float, end_s: float) -> float:
        """Return the joules between two times; power is taken as a straight line from sample to
        sample.

        Raises
        ------
        ArtifactError
            If the trace does not cover the span, or has a hole in it.
        """
        times = self.time_s
        slack = self.interval_s
        if not times[0] - slack <= start_s <= end_s <= times[-1] + slack:
            raise ArtifactError(
                f"the trace of power lasts from {times[0]:.3f} s to {times[-1]:.3f} s, not from "
                f"{start_s:.3f} s to {end_s:.3f} s; do both clocks agree?"
            )
        first, last = np.searchsorted(times, (start_s, end_s))
        around = times[max(first - 1, 0) : last + 1]
        if len(around) > 1 and float(np.max(np.diff(around))) > _GAP * slack:
            raise ArtifactError(
                f"the trace of power has a hole of {float(np.max(np.diff(around))):.3f} s"
            )
        inside = times[first:last]
        at = np.concatenate([[start_s], inside, [end_s]])
        powers = np.interp(at, times, self.watts)
        return float(np.sum(np.diff(at) * (powers[1:] + powers[:-1]) / 2))

    def find_windows(self) -> list[tuple[float, float]]:
        """Return the begin and end of each span between two falling edges of the trigger, taken in
        pairs.

        A device that lowers a pin when it begins and again when it has done its inferences, as
        MLPerf Tiny's energy mode asks for, marks one span by two falling edges.

        Raises
        ------
        ArtifactError
            If no trigger was recorded, or the number of falling edges is odd.
        """
        if not len(self.trigger):
            raise ArtifactError("the trace of power has no column trigger")
        high = self.trigger > (self.trigger.max() + self.trigger.min()) / 2
        falls = self.time_s[1:][high[:-1] & ~high[1:]]
        if len(falls) % 2 or not len(falls):
            raise ArtifactError(
                f"the trigger falls {len(falls)} times; it should fall when inferences begin and "
                f"when they end"
            )
        return [
            (float(begin), float(end)) for begin, end in zip(falls[::2], falls[1::2], strict=True)
        ]

    def compute_window_joules(self, inferences: int) -> list[float]:
        """Return the joules of one inference in each of the :meth:`find_windows`, which hold so
        many inferences each.

        Raises
        ------
        ArtifactError
            As :meth:`find_windows` and :meth:`compute_energy` do.
        """
        return [self.compute_energy(begin, end) / inferences for begin, end in self.find_windows()]


def read_power_trace(path: Path) -> PowerTrace:
    """Read a CSV file with a line of headings, and a line for each sample.

    The columns are ``time`` (seconds; ``time_ms``, ``time_us``, ``time_ns``), and ``power`` (watts;
    ``power_mw``, ``power_uw``) or both ``voltage`` (volts; ``voltage_mv``) and ``current``
    (amperes; ``current_ma``, ``current_ua``), and may be ``trigger``.  Further columns are ignored.

    Raises
    ------
    ArtifactError
        If the file is missing, too large or malformed; the message names it.
    """
    check_call(read_power_trace, locals())
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ArtifactError(f"{path}: more than {_MOST_BYTES >> 20} MiB")
        text = path.read_text("utf-8-sig")
        return trace_of_csv(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path} cannot be read as a trace of power: {error}") from None
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None


def trace_of_csv(text: str) -> PowerTrace:
    """Return the trace that the text of a CSV file holds; see :func:`read_power_trace`."""
    heading, _, body = text.partition("\n")
    names = [name.strip().lower() for name in next(csv.reader([heading.strip()]), [])]
    time, power = _find_column(names, _TIMES), _find_column(names, _POWERS)
    voltage, current, trigger = (
        _find_column(names, known) for known in (_VOLTAGES, _CURRENTS, _TRIGGERS)
    )
    if time is None or (power is None and (voltage is None or current is None)):
        raise ArtifactError(
            "the first line must name the columns: time and power, or time, voltage and current, "
            "in seconds, watts, "
            f"volts and amperes; it names {', '.join(names)[:100] or 'none'}"
        )
    if not body.strip():
        raise ArtifactError("there are no samples")
    wanted = [each for each in (time, power, voltage, current, trigger) if each is not None]
    try:
        table = np.loadtxt(
            io.StringIO(body),
            np.float64,
            delimiter=",",
            usecols=[place for place, _ in wanted],
            ndmin=2,
        )
    except ValueError as error:
        raise ArtifactError(f"a line is no sample: {str(error).splitlines()[0][:200]}") from None
    columns = {place: table[:, number] * unit for number, (place, unit) in enumerate(wanted)}
    if power is not None:
        watts = columns[power[0]]
    else:
        assert voltage is not None
        assert current is not None
        watts = columns[voltage[0]] * columns[current[0]]
    return PowerTrace(columns[time[0]], watts, () if trigger is None else columns[trigger[0]])


def _find_column(names: list[str], known: dict[str, float]) -> tuple[int, float] | None:
    """Return the place of the first column with a known name, and the unit of its numbers."""
    return next(((place, known[name]) for place, name in enumerate(names) if name in known), None)
