"""What a training takes of the machine, its profile, and where the first NaN occurs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.core.files import replace_atomically, write_text
from nnpipe.experiment.state import State
from nnpipe.measuring.resource_sampler import UsageSampler
from nnpipe.training.callbacks._arrays import find_nonfinite_weights, iter_leaf_layers
from nnpipe.training.callbacks.callback import (
    Callback,
    WritingCallback,
    create_figure,
    get_run_folder,
    save_figure,
    write_table,
)

if TYPE_CHECKING:
    import logging

    from nnpipe.training.fit import TrainingRun

_MOST = 1000
"""The greatest number of observations in the table and the picture."""

_PANELS = (
    (("cpu_percent", "machine_cpu_percent"), "load in %", 1.0),
    (("process_bytes", "memory_bytes"), "memory in GB", 1e-9),
    (("gpu_percent",), "load of the GPU in %", 1.0),
    (("gpu_bytes",), "memory of the GPU in GB", 1e-9),
)
_LABELS = {
    "cpu_percent": "this process, 100 for a core",
    "machine_cpu_percent": "the machine, 100 for all cores",
    "process_bytes": "this process",
    "memory_bytes": "the machine, not available to others",
}


class ResourceMonitor(WritingCallback):
    """Record the load of processors and GPUs and the memory in use, in a thread.

    Writes ``tables/resources.json`` and ``pictures/resources.png`` at the end of each epoch.  Of a
    long training, the two show a thousand moments.  Times are seconds since the process joined the
    training: a resumed run begins anew.

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
            raise ConfigError(
                f"ResourceMonitor: interval is {interval}; it takes 0.01 to 3600 seconds"
            )
        self.interval = interval
        self._sampler: UsageSampler | None = None
        self._epochs: list[tuple[int, float]] = []

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Begin to observe."""
        super().on_fit_begin(fit)
        self._sampler = UsageSampler(self.interval).__enter__()
        self._sampler.resume()
        self._epochs = []

    def on_epoch_end(self, fit: TrainingRun) -> None:
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
            name: series[name][chosen].astype(np.float64)
            for names, _, _ in _PANELS
            for name in names
            if name in series
        }
        write_table(
            fit,
            "resources",
            (
                {"seconds": float(seconds[n])}
                | {name: float(values[n]) for name, values in columns.items()}
                for n in range(len(chosen))
            ),
        )
        self._draw(fit, seconds, columns)

    def _draw(self, fit: TrainingRun, seconds: Any, columns: dict[str, Any]) -> None:
        panels = [panel for panel in _PANELS if any(name in columns for name in panel[0])]
        picture = create_figure(8, 2.4 * len(panels))
        for axes, (names, label, factor) in zip(
            picture.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True
        ):
            for name in names:
                if name in columns:
                    axes.plot(seconds, columns[name] * factor, label=_LABELS.get(name, name), lw=1)
            for _, moment in self._epochs[-_MOST:] if len(self._epochs) <= 50 else ():
                axes.axvline(moment, color="grey", lw=0.6, ls=":")
            axes.set(
                ylabel=label, xlabel="seconds; dotted lines are ends of epochs", ylim=(0, None)
            )
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
        save_figure(fit, "resources", picture)

    def close(self) -> None:
        """End the thread."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.__exit__(None, None, None)


class ProfilerTrace(WritingCallback):
    """Record some batches of the first epoch that has enough batches, with PyTorch's profiler.

    Writes ``profile/trace.json.gz`` for Perfetto (https://ui.perfetto.dev) and
    ``tables/profile.txt`` with the operators that took the most time.

    Parameters
    ----------
    skip
        Number of batches before recording starts, in which memory is still being allocated.
    batches
        Number of batches to record.
    """

    formerly: ClassVar[tuple[str, ...]] = ("CallbackProfiler",)

    def __init__(self, skip: int = 3, batches: int = 5) -> None:
        check_call(ProfilerTrace, locals())
        self.skip = skip
        self.batches = batches
        self.state = State(done=False)
        self._profiler: Any = None
        self._recorded = 0

    def on_batch_begin(self, fit: TrainingRun, batch: dict[str, Any]) -> None:
        """Start recording after ``skip`` batches."""
        # A run that was killed while recording records other batches.
        if self._profiler is None and not self.state.done and fit.batch >= self.skip:
            from torch.profiler import ProfilerActivity, profile

            kinds = [
                ProfilerActivity.CPU,
                *([ProfilerActivity.CUDA] if fit.device.startswith("cuda") else []),
            ]
            self._profiler = profile(activities=kinds, record_shapes=True)
            self._profiler.start()
            self._recorded = 0

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Stop and write after ``batches`` batches."""
        if self._profiler is not None:
            self._recorded += 1
            if self._recorded >= self.batches:
                self._write(fit)

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Stop and write if the epoch had fewer batches."""
        if self._profiler is not None:
            self._write(fit)

    def _write(self, fit: TrainingRun) -> None:
        profiler, self._profiler = self._profiler, None
        self.state.done = True
        profiler.stop()
        with replace_atomically(get_run_folder(fit).trace) as path:
            # The profiler compresses only if the name ends in .gz, which a temporary name may not.
            packed = path.with_name(f".{os.getpid()}.partial.json.gz")
            profiler.export_chrome_trace(str(packed))
            packed.replace(path)
        order = "self_cuda_time_total" if fit.device.startswith("cuda") else "self_cpu_time_total"
        write_text(
            get_run_folder(fit).table("profile", ending="txt"),
            profiler.key_averages().table(sort_by=order, row_limit=25),
        )

    def close(self) -> None:
        """Stop recording."""
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None


class NanWatch(Callback):
    """Name the layer or the parameter in which NaN or infinity occurred first.

    The trainer itself stops when the loss is not finite.  This callback checks each
    layer's output and logs the name of the first bad layer as an error.  It also
    checks each gradient, and stops the training before the loss is affected.  It
    fetches results from the device only every few steps.

    Keras gives no access to gradients, so there it checks the weights after a step.

    Parameters
    ----------
    every
        Check the gradients every so many steps; on a GPU each check makes the host wait.
    layers
        Whether to check the layers, too, which costs a pass over each output at each step.
        Layers of a compiled model cannot be checked.
    """

    frameworks = ("torch", "keras")

    def __init__(self, every: int = 20, layers: bool = True) -> None:
        check_call(NanWatch, locals())
        self.every = every
        self.layers = layers
        self._handles: list[Any] = []
        self._finite: dict[str, Any] = {}
        self._log: logging.Logger | None = None

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Hook the layers."""
        self._log = fit.log
        if self.layers and not fit.options.compile and fit.framework == "torch":
            for name, layer in iter_leaf_layers(fit.model):
                self._handles.append(layer.register_forward_hook(self._make_hook(name)))

    def _make_hook(self, name: str) -> Any:
        import torch

        def check_output(layer: Any, arguments: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.is_floating_point():
                self._finite[name] = torch.isfinite(output.detach()).all()

        return check_output

    def on_batch_begin(self, fit: TrainingRun, batch: dict[str, Any]) -> None:
        """Forget the layers of the last batch, in which all was well."""
        self._finite = {}

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Check the gradients every ``every`` steps."""
        self._finite = {}
        # A scaler skips steps with infinite gradients; this is how it finds its scale.
        if fit.step % self.every or fit.options.precision == "float16":
            return
        if fit.framework == "keras":
            weights = find_nonfinite_weights(fit.model)
            if weights:
                raise TrainingError(
                    f"the weight {', '.join(weights[:5])} is not finite; use a smaller learning "
                    f"rate"
                )
            return
        import torch

        named = [(n, p.grad) for n, p in fit.model.named_parameters() if p.grad is not None]
        if not named:
            return
        finite = torch.stack([torch.isfinite(gradient).all() for _, gradient in named]).tolist()
        if not all(finite):
            names = [name for (name, _), good in zip(named, finite, strict=True) if not good]
            raise TrainingError(
                f"the gradient of {', '.join(names[:5])} is not finite; the loss may still be"
            )

    def close(self) -> None:
        """Log the bad layer if the training ended within a batch, and remove the hooks."""
        bad = [name for name, finite in self._finite.items() if not bool(finite)]
        if bad and self._log is not None:
            self._log.error("the first layer whose output is not finite is %s", bad[0])
        self._finite = {}
        while self._handles:
            self._handles.pop().remove()
