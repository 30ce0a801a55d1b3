"""The run's page, kept up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from nnpipe.training.callbacks.writing_callback import WritingCallback, folder_of, writes_after
from nnpipe.training.run_page import write_run_page

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class RunPage(WritingCallback):
    """Write ``index.html``, which shows what the run's folder holds, after each epoch; less often after many.

    Callbacks are called in the order in which they are named: name this one last.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingStartServer",)

    def on_epoch_end(self, fit: Fit) -> None:
        """Write the page."""
        if writes_after(fit):
            write_run_page(folder_of(fit).path)

    def on_fit_end(self, fit: Fit) -> None:
        """Write the page a last time, with files that other callbacks wrote at the end."""
        write_run_page(folder_of(fit).path)
