"""Making the standard streams of a command usable, whatever it was started with."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper


def prepare_standard_streams() -> None:
    """Open the standard streams that are closed, on nothing, and let the others replace letters
    that they lack.

    A file that is opened later could otherwise get the number of a closed stream, and be written to
    as if it were one.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            # has the stream's number, unless a file has got it already
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, opened == number)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8"))
        elif (
            number
            and isinstance(stream, TextIOWrapper)
            and stream.errors in ("strict", "surrogateescape")
        ):
            with suppress(ValueError):  # it has been closed
                stream.reconfigure(errors="replace")
