"""What a training takes of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.measuring.resource_sampler import UsageSampler
from nnpipe.training.callbacks.writing_callback import WritingCallback, new_figure, save_figure, write_table

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_MOST = 1000
"""The greatest number of observations in the table and the picture."""

_PANELS = (
    (("cpu_percent", "machine_cpu_percent"), "load in %", 1.0),
    (("process_bytes", "memory_bytes"), "memory in GB", 1e-9),
    (("gpu_percent",), "load of the GPU in %", 1.0),
    (("gpu_bytes",), "memory of the GPU in GB", 1e-9),
)
_LABELS = {
    "cpu_percent": "this process, 100 for a core", "machine_cpu_percent": "the machine, 100 for all cores",
    "process_bytes": "this process", "memory_bytes": "the machine, not available to others",
}  # fmt: skip


class ResourceMonitor(WritingCallback):
    """Record the load of processors and GPUs and the memory in use, in a thread.

    Writes ``tables/resources.json`` and ``pictures/resources.png`` at the end of each epoch.  Of a long training, the
    two show a thousand moments.  Times are seconds since the process joined the training: a resumed run begins anew.

    Parameters
    ----------
    interval
        The seconds between two observations.
    """

    frameworks = ("torch", "keras")
    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackDebugProcesses",)

    def __init__(self, interval: float = 1.0) -> None:
        check_call(ResourceMonitor, locals())
        if not 0.01 <= interval <= 3600:
            raise ConfigError(f"ResourceMonitor: interval is {interval}; it takes 0.01 to 3600 seconds")
        self.interval = interval
        self._sampler: UsageSampler | None = None
        self._epochs: list[tuple[int, float]] = []

    def on_fit_begin(self, fit: Fit) -> None:
        """Begin to observe."""
        super().on_fit_begin(fit)
        self._sampler = UsageSampler(self.interval).__enter__()
        self._sampler.resume()
        self._epochs = []

    def on_epoch_end(self, fit: Fit) -> None:
        """Write what was observed so far."""
        sampler = self._sampler
        assert sampler is not None  # on_fit_begin has made it
        sampler.pause()
        sampler.resume()
        series = sampler.series()
        count = len(series)
        if not count:
            return  # the epoch was shorter than an observation
        origin = int(series["time_ns"][0])
        chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST)).astype(np.int64))
        seconds = (series["time_ns"][chosen] - origin) / 1e9
        self._epochs.append((fit.epoch, float((series["time_ns"][-1] - origin) / 1e9)))
        columns = {
            name: series[name][chosen].astype(np.float64) for names, _, _ in _PANELS for name in names if name in series
        }
        write_table(
            fit,
            "resources",
            (
                {"seconds": float(seconds[n])} | {name: float(values[n]) for name, values in columns.items()}
                for n in range(len(chosen))
            ),
        )
        self._draw(fit, seconds, columns)

    def _draw(self, fit: Fit, seconds: Any, columns: dict[str, Any]) -> None:
        panels = [panel for panel in _PANELS if any(name in columns for name in panel[0])]
        picture = new_figure(8, 2.4 * len(panels))
        for axes, (names, label, factor) in zip(
            picture.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True
        ):
            for name in names:
                if name in columns:
                    axes.plot(seconds, columns[name] * factor, label=_LABELS.get(name, name), lw=1)
            for _, moment in self._epochs[-_MOST:] if len(self._epochs) <= 50 else ():
                axes.axvline(moment, color="grey", lw=0.6, ls=":")
            axes.set(ylabel=label, xlabel="seconds; dotted lines are ends of epochs", ylim=(0, None))
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
        save_figure(fit, "resources", picture)

    def close(self) -> None:
        """End the thread."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.__exit__(None, None, None)
