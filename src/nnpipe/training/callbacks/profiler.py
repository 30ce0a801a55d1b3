"""Profiling some training steps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.argument_checks import check_call
from nnpipe.core.files import replacing, write_text
from nnpipe.experiment.state import State
from nnpipe.training.callbacks.writing_callback import WritingCallback, folder_of

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


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

    def on_batch_begin(self, fit: Fit, batch: dict[str, Any]) -> None:
        """Start recording after ``skip`` batches."""
        # A run that was killed while recording records other batches.
        if self._profiler is None and not self.state.done and fit.batch >= self.skip:
            from torch.profiler import ProfilerActivity, profile

            kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if fit.device.startswith("cuda") else [])]
            self._profiler = profile(activities=kinds, record_shapes=True)
            self._profiler.start()
            self._recorded = 0

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Stop and write after ``batches`` batches."""
        if self._profiler is not None:
            self._recorded += 1
            if self._recorded >= self.batches:
                self._write(fit)

    def on_epoch_end(self, fit: Fit) -> None:
        """Stop and write if the epoch had fewer batches."""
        if self._profiler is not None:
            self._write(fit)

    def _write(self, fit: Fit) -> None:
        profiler, self._profiler = self._profiler, None
        self.state.done = True
        profiler.stop()
        with replacing(folder_of(fit).trace) as path:
            # The profiler compresses only if the name ends in .gz, which a temporary name may not.
            packed = path.with_name(f".{os.getpid()}.partial.json.gz")
            profiler.export_chrome_trace(str(packed))
            packed.replace(path)
        order = "self_cuda_time_total" if fit.device.startswith("cuda") else "self_cpu_time_total"
        write_text(
            folder_of(fit).table("profile", ending="txt"), profiler.key_averages().table(sort_by=order, row_limit=25)
        )

    def close(self) -> None:
        """Stop recording."""
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None
