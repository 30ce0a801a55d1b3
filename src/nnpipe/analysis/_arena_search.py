"""The search of all placements of buffers below a capacity, by a program in C."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nnpipe.analysis._arena_sections import ORDERS, Sections
from nnpipe.core.errors import NNPipeError
from nnpipe.core.external_tools import C
from nnpipe.core.messages import one_line

SOURCE = Path(__file__).with_name("arena_search.c")
MOST_BUFFERS = 2000


@dataclass(frozen=True)
class Answer:
    """What a search found: offsets, or that there are none, or neither in its time, which is in seconds."""

    offsets: list[int] | None
    impossible: bool
    seconds: int


def searched(sections: Sections, capacity: int, seconds: int) -> Answer:
    """Search for offsets with which all buffers lie below the capacity.

    Raises
    ------
    MissingTool
        If no C compiler is installed.
    """
    compiler = C.check("the search for the smallest arena")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "arena_search")
        built = subprocess.run([compiler, "-O2", "-o", program, SOURCE], capture_output=True, text=True, check=False)
        if built.returncode:
            raise NNPipeError(f"{compiler} cannot compile {SOURCE.name}: {one_line(built.stderr, 200)}")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        given = " ".join(map(str, _numbers(sections, capacity, seconds)))
        done = subprocess.run([program, *ORDERS], input=given, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise NNPipeError(f"the search for the smallest arena ended with status {done.returncode}")
    answer, *offsets = done.stdout.split()
    took = after.ru_utime - before.ru_utime
    return Answer([int(at) for at in offsets] if answer == "fits" else None, answer == "impossible", int(took) + 1)


def _numbers(sections: Sections, capacity: int, seconds: int) -> Iterator[int]:
    """Yield what the program reads."""
    yield from (len(sections.size), sections.count, capacity, seconds)
    for one in zip(sections.first, sections.after, sections.size, sections.lengths, strict=True):
        yield from one
