"""The contract of energy meters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nnpipe.core.component import Component
from nnpipe.core.energy_meter import EnergyMeter, MeterReading
from nnpipe.testing.component import ComponentContract


class EnergyMeterContract(ComponentContract):
    """What every energy meter must do; subclass it and define the fixtures ``meter``, ``reading``
    and ``work``.

    ``reading`` is what the meter gives when it is open, on a sensor or on the fake of one.
    ``work`` lets time pass until the sensor has counted some energy: a function without arguments.
    """

    @pytest.fixture
    def meter(self) -> EnergyMeter:
        raise NotImplementedError("a subclass of EnergyMeterContract gives the fixture `meter`")

    @pytest.fixture
    def reading(self) -> MeterReading:
        raise NotImplementedError("a subclass of EnergyMeterContract gives the fixture `reading`")

    @pytest.fixture
    def work(self) -> Callable[[], object]:
        raise NotImplementedError("a subclass of EnergyMeterContract gives the fixture `work`")

    @pytest.fixture
    def component(self, meter: EnergyMeter) -> Component:
        return meter

    def test_it_names_its_sensor_and_how_often_that_counts(self, reading: MeterReading) -> None:
        with reading:
            assert reading.source.strip()
            assert 0 < reading.resolution_s < 60

    def test_each_span_between_two_marks_has_its_energy(
        self, reading: MeterReading, work: Callable[[], object]
    ) -> None:
        with reading:
            reading.mark()
            for _ in range(3):
                work()
                reading.mark()
            joules = reading.joules()
        assert len(joules) == 3
        assert all(each > 0 for each in joules)

    def test_without_a_span_there_is_no_energy(
        self, reading: MeterReading, work: Callable[[], object]
    ) -> None:
        with reading:
            work()
            reading.mark()
            work()
            assert reading.joules() == []
