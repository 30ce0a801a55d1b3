"""Runs a recipe again and again, each time killed with -9 before one of its batches, until it is through.

``python killed_recipe.py RECIPE FOLDER N ...``: the numbers count batches since the process began.  Prints how often
it was killed.  Each attempt is a fork, so that PyTorch is imported once.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import warnings

import torch
import torch._dynamo  # the first step of an optimiser would import it, in each child anew

from nnpipe.training._steps import Steps


def run(recipe: str, folder: str, last: int) -> None:
    begin, count = Steps.begin, 0

    def counted(*arguments: object) -> None:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)
        begin(*arguments)  # type: ignore[arg-type]

    Steps.begin = counted  # type: ignore[method-assign]
    sys.argv = [recipe, folder]
    runpy.run_path(recipe, run_name="__main__")


def main(recipe: str, folder: str, *kills: str) -> None:
    torch.set_num_threads(1)
    killed = 0
    for last in [*map(int, kills), 0]:
        child = os.fork()
        if child == 0:
            run(recipe, folder, last)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        elif os.WEXITSTATUS(status):
            sys.exit("a recipe failed")
    print(killed)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
