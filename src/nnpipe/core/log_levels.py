"""Keeping what libraries log off the terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def suppress_log_messages(*names: str, level: int = logging.CRITICAL) -> Iterator[None]:
    """Let loggers pass only messages of a level or above inside the block."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, each in zip(loggers, before, strict=True):
            logger.setLevel(each)
