"""Suppression of output, log messages and warnings of frameworks."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

from nnpipe.core.native_output import native_output_held


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Suppress output, log messages and warnings of Python and native code inside the block; exceptions pass.

    This affects the whole process, including other threads, so the block should
    be one call into a framework.
    """
    with native_output_held(), warnings.catch_warnings():  # the first admits one thread at a time
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            logging.disable(before)
