"""Runs a recipe again and again, each time killed with -9 before one of its batches, until it is
through.

``python killed_recipe.py RECIPE FOLDER N ...``: the numbers count batches since the process began.
Prints how often it was killed.  Each attempt is a fork, so that PyTorch is imported once.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import warnings
from typing import Any

import torch
import torch._dynamo  # the first step of an optimiser would import it, in each child anew
from forks import through

from nnpipe.training._steps import Steps


def run(recipe: str, folder: str, kill: list[Any] | None) -> None:
    begin, count = Steps.begin, 0

    def counted(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if kill == ["batch", count]:
            os.kill(os.getpid(), signal.SIGKILL)
        begin(*arguments)

    Steps.begin = counted  # type: ignore[method-assign]
    sys.argv = [recipe, folder]
    runpy.run_path(recipe, run_name="__main__")


def main(recipe: str, folder: str, *kills: str) -> None:
    torch.set_num_threads(1)
    print(
        through(
            lambda kill, _: run(recipe, folder, kill), [["batch", int(number)] for number in kills]
        )
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
