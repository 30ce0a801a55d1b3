"""Options of measurements: batch size, duration, warm-up, pace, and energy."""

from __future__ import annotations

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component, parse_arguments
from nnpipe.core.energy_meter import EnergyMeter
from nnpipe.core.errors import ConfigError
from nnpipe.core.registry import find
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.pace import Pace


class MeasureOptions(Component):
    """Options of the measurement of inference.

    Examples
    --------
    >>> MeasureOptions(measure_seconds=5, inference_batch_size=8).inference_batch_size
    8
    """

    inference_batch_size: int = argument(1, help="samples in one inference", minimum=1)
    measure_samples: int | None = argument(
        None,
        help="how many of the test samples to use, drawn from a fixed seed; by default all",
        minimum=1,
    )
    measure_seconds: float = argument(
        1.0,
        help="seconds to measure inference at least; samples are repeated if all of them take less",
        minimum=0.0,
        maximum=86_400.0,
    )
    warmup_runs: int = argument(
        10, help="inferences before the measurement, which are not recorded", minimum=0
    )
    sampling_interval: float = argument(
        0.05,
        help="seconds between two observations of processor and memory",
        minimum=0.001,
        maximum=3600.0,
    )
    pace: str | None = argument(
        None,
        help="also measure at the rhythm of the application: the time from call to call, such as "
        "33ms, or a rate, such as 30/s; between calls the process sleeps, so that caches get cold "
        "and the clock rate falls as in use",
    )
    pace_seconds: float | None = argument(
        None,
        help="seconds to measure at the pace; by default the time of 266 calls, from 1 to 10",
        minimum=0.001,
        maximum=86_400.0,
    )
    energy_meter: str | None = argument(
        None,
        help="also measure the energy of an inference, by an EnergyMeter: MachineMeter for the "
        "machine's own counters, or an instrument, such as SerialMeter (nnpipe list meters)",
    )
    energy_meter_options: tuple[str, ...] = argument(
        (), help="the meter's arguments, such as meter_port=/dev/ttyACM0", metavar="NAME=VALUE"
    )
    energy_seconds: float = argument(
        5.0,
        help="seconds to measure the energy at least; a slow sensor takes longer",
        minimum=0.1,
        maximum=86_400.0,
    )
    idle_seconds: float = argument(
        0.0,
        help=(
            "seconds to measure the idle power before the energy, to subtract it; 0 subtracts "
            "nothing"
        ),
        minimum=0.0,
        maximum=3600.0,
    )
    profile: bool = argument(
        False,
        help="afterwards also time each layer, in a process of its own that leaves the timed "
        "calls alone, and keep the layers with the result; reports show them",
    )
    worst_samples: int = argument(
        6,
        help="how many of the samples with which the model did worst are kept with the result, as "
        "small pictures or curves that reports show; 0 for none",
        minimum=0,
        maximum=50,
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` if ``pace`` or the meter is malformed, or if options are
        given without them.
        """
        if self.pace is not None:
            Pace.parse(self.pace)
        elif self.pace_seconds is not None:
            raise ConfigError("--pace-seconds is for a pace: name one with --pace")
        if self.energy_meter is not None:
            self.create_meter()
        elif self.energy_meter_options or self.idle_seconds:
            raise ConfigError(
                "--energy-meter-options and --idle-seconds are for a meter: name one with "
                "--energy-meter"
            )

    def create_meter(self) -> EnergyMeter | None:
        """Return the energy meter, if one is named.

        Raises
        ------
        ComponentNotFound
            If there is no such class.
        ConfigError
            If it does not accept its arguments.
        """
        if self.energy_meter is None:
            return None
        cls = find(self.energy_meter, EnergyMeter)
        return cls.from_json(parse_arguments(cls, self.energy_meter_options))

    def check_with(self, load: LoadOptions) -> None:
        """Raise :class:`~nnpipe.core.errors.ConfigError` if a load is given, and a pace or an
        energy meter, too.
        """
        if self.pace is not None and load.wanted:
            raise ConfigError(
                "a load has a rhythm of its own: leave out --pace, or --load and --find-max-rate"
            )
        if self.energy_meter is not None and load.wanted:
            raise ConfigError(
                "energy is measured without a load: leave out --energy-meter, or --load"
            )
