"""The interface of energy meters: how many joules a machine or a board takes, and which sensor
says so.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import ClassVar

from nnpipe.core.closing import Closing
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError


class MeterReading(Closing):
    """An open energy meter, to be used in a ``with`` block.

    Attributes
    ----------
    source
        The sensor, as results name it: ``"RAPL: package-0"``.
    resolution_s
        The seconds between two values of the sensor.  A measurement should last many times as long.
    """

    source: str
    resolution_s: float

    @abstractmethod
    def mark(self) -> None:
        """End the span that the last call began, and begin the next; the first call begins the
        first.
        """

    @abstractmethod
    def joules(self) -> list[float]:
        """Return the energy of each span between two marks, in joules.

        Raises
        ------
        NNPipeError
            If the sensor gave no usable values; the message says why.
        """

    def close(self) -> None:
        """Release the sensor."""


class EnergyMeter(Component):
    """Measures energy: a counter in the machine, an instrument on its supply, or a trace that one
    has written.

    Meters never estimate.  Where a sensor is missing, or may not be read, :meth:`open` raises an
    error that says why.

    Attributes
    ----------
    measures_host
        Whether it can measure nothing but the machine on which nnpipe runs.

    Examples
    --------
    >>> class ConstantMeter(EnergyMeter):
    ...     'A supply that always gives one joule.'
    ...     def _open(self):
    ...         return ConstantReading()
    >>> class ConstantReading(MeterReading):
    ...     source, resolution_s, marks = "a constant", 0.001, 0
    ...     def mark(self):
    ...         self.marks += 1
    ...     def joules(self):
    ...         return [1.0] * (self.marks - 1)
    >>> with ConstantMeter().open() as reading:
    ...     reading.mark()
    ...     reading.mark()
    ...     reading.joules()
    [1.0]
    """

    measures_host: ClassVar[bool] = False

    def open(self) -> MeterReading:
        """Return the open meter.

        Raises
        ------
        MissingDependency
            If a package is not installed.
        NotSupported
            If the machine has no such sensor, or it may not be read; the message says why.
        TransportError
            If an instrument cannot be reached.
        """
        self.check_ready()
        return self._open()

    @abstractmethod
    def _open(self) -> MeterReading: ...


def counter_differences(readings: list[int], modulus: int | None = None) -> list[int]:
    """Return the differences of the readings of a counter that begins again at ``modulus``.

    Raises
    ------
    ConfigError
        If the counter fell although it does not begin again.

    Examples
    --------
    >>> counter_differences([90, 95, 3], modulus=100)
    [5, 8]
    """
    steps = [after - before for before, after in pairwise(readings)]
    if modulus is not None:
        return [step % modulus for step in steps]
    if min(steps, default=0) < 0:
        raise ConfigError("the energy counter fell: it was reset during the measurement")
    return steps
