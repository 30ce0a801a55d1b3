"""Keeping frameworks that print, log and warn about themselves away from the terminal."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

from nnpipe.core.native_output import native_output_held


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Hold what Python and native code print, log and warn while the block runs; errors are raised all the same.

    That holds for the whole process, threads included, so the block should be
    one call into a framework.
    """
    with native_output_held(), warnings.catch_warnings():  # the first lets only one thread in at a time
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            logging.disable(before)
