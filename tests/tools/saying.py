"""What a command says when a test calls it in its own process."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def said_by_nnpipe() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Yield two buffers, of standard output and of standard error with the log, as a process of
    its own would show.
    """
    out, err = io.StringIO(), io.StringIO()
    handler, logger = logging.StreamHandler(err), logging.getLogger("nnpipe")
    logger.addHandler(handler)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            yield out, err
    finally:
        logger.removeHandler(handler)
