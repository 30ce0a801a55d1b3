"""What reads the options of commands that are more than a number or a text."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import check_writable


def output_file(text: str) -> Path:
    """Read the path of a file that is to be written; whether it can be is known before anything slow begins."""
    return _destination(text, folder=False)


def output_folder(text: str) -> Path:
    """Read the path of a folder that is to be written; whether it can be is known before anything slow begins."""
    return _destination(text, folder=True)


def assignment(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``; the value may be empty or hold further signs."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=VALUE")
    return name, value


def _destination(text: str, folder: bool) -> Path:
    try:
        return check_writable(text, folder=folder)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(frozen=True)
class Percentage:
    """Reads ``2%`` as a share of one; the sign must be there, for 0.5 could be meant either way.

    Parameters
    ----------
    minimum, maximum
        The least and the greatest share that is accepted.
    """

    minimum: float = 0.0
    maximum: float = 1.0

    def __call__(self, text: str) -> float:
        """Read the text of an option."""
        number, sign, rest = text.strip().partition("%")
        try:
            share = float(number) / 100
        except ValueError:
            share = math.nan
        if not sign or rest or not math.isfinite(share):
            raise argparse.ArgumentTypeError(f"expected a percentage such as 2%, found {text!r}")
        if not self.minimum <= share <= self.maximum:
            low, high = 100 * self.minimum, 100 * self.maximum
            raise argparse.ArgumentTypeError(f"{text.strip()} cannot be meant: give {low:g}% to {high:g}%")
        return share
