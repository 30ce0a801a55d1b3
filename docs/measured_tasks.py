"""Run the pipelines of ``examples/tasks``, and bring what they have measured into
``docs/breadth.md``.

    python docs/measured_tasks.py                 (all; or some: python docs/measured_tasks.py pose forecast)

Networks that no pipeline trains are made first.  Each pipeline may take 60 s of processor time,
with what is made for it; the exit status is 1 if one takes more or fails."""

from __future__ import annotations

import argparse
import math
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from measured import PAGE, conditions, row

from nnpipe.measuring.run import Run
from nnpipe.report.formatting import NOTHING, format_duration, format_size
from nnpipe.report.inputs.candidate import Candidate, create_candidates
from nnpipe.report.inputs.quality import compare_quality
from nnpipe.report.quantity_text import format_figure, format_metric_difference

ROOT = PAGE.parents[1]
FOLDER, OUTPUT = ROOT / "examples" / "tasks", ROOT / "build" / "tasks"
BEGIN, END = "<!-- tasks -->\n", "<!-- end of tasks -->"
MOST_SECONDS, SECONDS = 60.0, "processor_seconds.txt"
COLUMNS = (
    "task",
    "way",
    "Size",
    "Median",
    "Quality, 95 %",
    "less the first way's, 95 %",
    "Processor time, s",
)

MADE_FIRST = {
    "detection": ("small_detectors.py", "boxes", "build/tasks/detection/boxes.onnx"),
    "instance_segmentation": (
        "small_detectors.py",
        "masks",
        "build/tasks/instance_segmentation/masks.onnx",
    ),
    "generation": (
        "tiny_language_model.py",
        "build/tasks/generation/tiny",
        "--text",
        "README.md",
        "docs/tasks.md",
    ),
}


def commands_of(name: str) -> list[list[str]]:
    """Return the commands that make the network of a task where its pipeline does not, and run
    the pipeline.
    """
    made = (
        [[sys.executable, f"examples/{MADE_FIRST[name][0]}", *MADE_FIRST[name][1:]]]
        if name in MADE_FIRST
        else []
    )
    return [*made, [sys.executable, "-m", "nnpipe", "run", f"examples/tasks/{name}.yaml"]]


def measure(name: str) -> float:
    """Run the commands of a task, and return the seconds of processor time that they took.

    Raises
    ------
    subprocess.CalledProcessError
        If one fails.
    """
    shutil.rmtree(OUTPUT / name, ignore_errors=True)  # trained networks would not be trained again
    before = _used()
    for command in commands_of(name):
        subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
    return _used() - before


def _used() -> float:
    """Return the processor time of all processes that were started here and have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def runs_of(folder: Path) -> list[Run]:
    """Return what the pipeline of a task has measured, in the order of its candidates, given its
    output.
    """
    return [
        Run.read(path) for path in sorted(folder.glob("[0-9]*-*.json")) if len(path.suffixes) == 1
    ]


def rows_of(name: str, seconds: float) -> Iterator[str]:
    """Yield a row for each candidate of a task."""
    found = create_candidates(runs_of(OUTPUT / name))
    for place, candidate in enumerate(found):
        first = place == 0
        yield row(
            (
                name.replace("_", " ") if first else "",
                candidate.name,
                NOTHING if candidate.size is None else format_size(candidate.size),
                format_duration(candidate.latency.median) if candidate.latency else NOTHING,
                _quality(candidate),
                NOTHING if first else _gap(found[0], candidate),
                f"{seconds:.0f}" if first else "",
            )
        )


def _quality(candidate: Candidate) -> str:
    known = candidate.quality
    return (
        NOTHING
        if known is None
        else f"{known.metric.heading} {format_figure(known.quantity, known.figure)}"
    )


def _gap(first: Candidate, other: Candidate) -> str:
    found = compare_quality(first.quality, other.quality)
    if found is None or first.quality is None:
        return NOTHING
    gap = found.gap
    value, low, high = (
        format_metric_difference(first.quality.metric, each)
        for each in (gap.value, gap.low, gap.high)
    )
    return f"{value} ({low} to {high})" if math.isfinite(gap.low + gap.high) else value


def table(seconds: dict[str, float]) -> str:
    """Return the conditions and the table of all tasks as Markdown."""
    runs = [run for name in seconds for run in runs_of(OUTPUT / name)]
    lines = [row(COLUMNS), row(["---", "---", *["---:"] * (len(COLUMNS) - 2)])]
    lines += [each for name, used in seconds.items() for each in rows_of(name, used)]
    return conditions(runs) + "\n" + "\n".join(lines) + "\n"


def main() -> int:
    """Measure and rewrite the page."""
    known = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "tasks",
        nargs="*",
        metavar="TASK",
        help=f"those to run, of {', '.join(known)}; by default all",
    )
    chosen = parser.parse_args().tasks or known
    if wrong := set(chosen) - set(known):
        parser.error(f"there is no examples/tasks/{min(wrong)}.yaml")
    failed = []
    for name in chosen:
        try:
            used = measure(name)
        except subprocess.CalledProcessError:
            failed.append(name)
            continue
        (OUTPUT / name / SECONDS).write_text(f"{used:.1f}\n", "utf-8")
        sys.stdout.write(f"{name}: {used:.1f} s of processor time\n")
        sys.stdout.flush()
    paths = {name: OUTPUT / name / SECONDS for name in known}
    seconds = {
        name: float(path.read_text("utf-8")) for name, path in paths.items() if path.is_file()
    }
    if not seconds:
        return 1
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table(seconds)}{END}{rest.partition(END)[2]}", "utf-8")
    slow = [name for name, used in seconds.items() if used > MOST_SECONDS]
    for name in (*failed, *slow):
        sys.stderr.write(
            f"{name}: {'failed' if name in failed else f'took {seconds[name]:.0f} s'}\n"
        )
    return 1 if failed or slow else 0


if __name__ == "__main__":
    sys.exit(main())
