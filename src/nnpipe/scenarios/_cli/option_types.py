"""Parsers of option values that are more than a number or a string, for the argument ``type`` of
argparse.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import check_writable
from nnpipe.core.graph import parse_shape
from nnpipe.core.secret import Secret


def output_file(text: str) -> Path:
    """Return the path of a file to be written, after checking that it can be written before
    anything slow begins.
    """
    return _check_destination(text, folder=False)


def output_folder(text: str) -> Path:
    """Return the path of a folder to be written, after checking that it can be written before
    anything slow begins.
    """
    return _check_destination(text, folder=True)


def assignment(text: str) -> tuple[str, str]:
    """Return the name and the value of ``NAME=VALUE``; the value may be empty or contain further
    ``=``.
    """
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=VALUE")
    return name, value


def secret_assignment(text: str) -> tuple[str, Secret]:
    """Return the name and the value of ``NAME=VALUE``, whose value no result, report or list of
    processes shows.
    """
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    return name, Secret(value)


def input_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and the shape of ``INPUT=1,224,224,3``; names may contain ``=``."""
    try:
        return parse_shape(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def metric_limit(text: str) -> tuple[str, float]:
    """Return the name and the limit of ``METRIC=LIMIT``; a limit may be a percentage, such as
    ``0.5%``.
    """
    name, limit = assignment(text)
    number, sign, rest = limit.strip().partition("%")
    try:
        value = float(number) / (100 if sign else 1)
    except ValueError:
        value = math.nan
    if rest or not math.isfinite(value):
        raise argparse.ArgumentTypeError(
            f"{text}: expected METRIC=LIMIT, such as map=0.5% or mae=0.1"
        )
    return name.strip(), value


def _check_destination(text: str, folder: bool) -> Path:
    try:
        return check_writable(text, folder=folder)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(frozen=True)
class Percentage:
    """A parser of percentages such as ``2%``; the percent sign is required, because 0.5 alone would
    be ambiguous.

    Parameters
    ----------
    minimum, maximum
        The smallest and the largest share that is accepted.
    """

    minimum: float = 0.0
    maximum: float = 1.0

    def __call__(self, text: str) -> float:
        """Return the percentage in the text of an option as a share of one."""
        number, sign, rest = text.strip().partition("%")
        try:
            share = float(number) / 100
        except ValueError:
            share = math.nan
        if not sign or rest or not math.isfinite(share):
            raise argparse.ArgumentTypeError(f"expected a percentage such as 2%, found {text!r}")
        if not self.minimum <= share <= self.maximum:
            low, high = 100 * self.minimum, 100 * self.maximum
            raise argparse.ArgumentTypeError(
                f"{text.strip()} is out of range: give {low:g}% to {high:g}%"
            )
        return share
