"""Writing how a training ended, into its status file and its page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nnpipe.training.fit import Fit
from nnpipe.training.run_page import write_run_page
from nnpipe.training.run_status import tell


@contextmanager
def told(fit: Fit) -> Iterator[None]:
    """Write that a training is running, and at the end of the block how it ended."""
    tell(fit, "running")
    try:
        yield
    except BaseException as error:
        tell_end(fit, error)
        raise
    tell_end(fit, None)


def tell_end(fit: Fit, error: BaseException | None) -> None:
    """Write how a training ended, also to its page if it has one; a full disk must not hide the original error."""
    if error is None:
        tell(fit, "cancelled" if fit.unfinished else "completed", fit.stopping or "")
        _tell_page(fit)
        return
    state = "cancelled" if isinstance(error, KeyboardInterrupt) else "failed"
    with suppress(OSError):
        tell(fit, state, f"{type(error).__name__}: {error}".rstrip(": "))
        _tell_page(fit)


def _tell_page(fit: Fit) -> None:
    if fit.folder is not None and fit.folder.page.exists():
        write_run_page(fit.folder.path)
