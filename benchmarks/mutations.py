"""Whether the quick tests (`make test`) catch faults as the slow ones (`make test-all`) do.

    python benchmarks/mutations.py            # 40 faults
    python benchmarks/mutations.py --quick    # 3 faults in modules of the core that have a test file of their own

Small faults are drawn at random over the source, in lines that tests of their
module execute: a comparison flipped, a constant changed, a returned value
dropped.  Each is planted in a copy of the project, and those tests of the
module that reach it are run: first the quick ones, and if they do not notice,
those of `make test-all`: the slow ones, and the quick ones with all examples
that property tests draw.  The tests of `package/name.py` are those of
`tests/package/test_name.py`, or of the package's folder where no file is named
so.  A test that fails fails twice, or it does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _mutating import Mutation, mutations_of
from _table import report

ROOT = Path(__file__).parents[1]
PATIENCE = 3.0
"""How many times as long as without a fault tests may take before they count as hanging."""
GRACE = 60.0
"""Seconds that they may take in any case."""
LONGEST = 7200.0
"""Seconds that the tests of a module may take altogether."""
QUICK, SLOW = "not slow", "slow"


@dataclass(frozen=True)
class Site:
    """A mutation and where it is."""

    module: str
    """The file below ``src``, such as ``nnpipe/core/tensors.py``."""
    mutation: Mutation

    def __str__(self) -> str:
        return f"{self.module}:{self.mutation.lines[0]}"


def sites(root: Path, within: str = "", own: bool = False) -> list[Site]:
    """Return every mutation of modules whose path below ``src`` begins with ``within`` and that
    have tests.

    With ``own``, only of those that have a test file named like them: the tests of a folder take
    minutes to trace.
    """
    found = []
    for path in sorted((root / "src").rglob("*.py")):
        module = path.relative_to(root / "src").as_posix()
        if module.startswith(within) and (
            named_tests(root, module) if own else tests_of(root, module)
        ):
            found += [Site(module, mutation) for mutation in mutations_of(path.read_bytes())]
    return found


def tests_of(root: Path, module: str) -> tuple[str, ...]:
    """Return the test files of a module: those that are named like it, else all of the folder
    that mirrors its own.
    """
    named, folder = (
        named_tests(root, module),
        root / "tests" / Path(module).relative_to("nnpipe").parent,
    )
    while not named and folder != root / "tests":
        named, folder = sorted(folder.glob("test_*.py")), folder.parent
    return tuple(path.relative_to(root).as_posix() for path in named)


def named_tests(root: Path, module: str) -> list[Path]:
    """Return the test files that are named like a module."""
    place = Path(module).relative_to("nnpipe")
    folder, name = root / "tests" / place.parent, place.stem.strip("_")
    return sorted([*folder.glob(f"test_{name}.py"), *folder.glob(f"test_{name}_*.py")])


class Workplace:
    """A copy of the project in which faults are planted and tests run."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder / "project"
        unneeded = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.egg-info")
        shutil.copytree(root, self.root, ignore=unneeded, symlinks=True)
        if (root.parent / "shared").is_dir():
            (folder / "shared").symlink_to(root.parent / "shared")
        self._age = 1_000_000_000

    @contextmanager
    def planted(self, site: Site) -> Iterator[None]:
        """Have the fault in the source for a while."""
        path = self.root / "src" / site.module
        sound = path.read_bytes()
        self._write(path, site.mutation.apply(sound))
        try:
            yield
        finally:
            self._write(path, sound)

    def _write(self, path: Path, source: bytes) -> None:
        """Write, with a time that no compiled file of it has: two faults in a second would be
        taken for one.
        """
        path.write_bytes(source)
        self._age += 1
        os.utime(path, (self._age, self._age))

    def passes(
        self, tests: Sequence[str], options: Sequence[str], seconds: float, **variables: str
    ) -> str | None:
        """Run tests; return None if all pass, the id of the first that fails, or ``""`` if one
        cannot be told.
        """
        (self.root.parent / "tests.txt").write_text("\n".join(tests), "utf-8")
        run = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--tb=no",
                "-p",
                "no:cacheprovider",
                *options,
                "@../tests.txt",
            ],
            cwd=self.root,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(self.root / "src"), str(Path(__file__).parent)]),
                "OMP_NUM_THREADS": "1",
                "TF_NUM_INTRAOP_THREADS": "1",
                "TF_NUM_INTEROP_THREADS": "1",
            }
            | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            told, _ = run.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
            return ""
        if run.returncode in (0, 5):
            return None
        failed = [line for line in told.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return failed[0].split(" ", 1)[1].split(" - ")[0] if failed else ""


class Trial:
    """The tests of one project, run on one fault after another."""

    def __init__(self, root: Path, folder: Path, processes: int) -> None:
        self.root = root
        self.places: queue.Queue[Workplace] = queue.Queue()
        for number in range(processes):
            (folder / str(number)).mkdir()
            self.places.put(Workplace(root, folder / str(number)))
        self.threads = ThreadPoolExecutor(processes)
        self._reached: dict[tuple[Site, str], list[str]] = {}
        self._seconds: dict[tuple[tuple[str, ...], str], float] = {}

    def trace(self, chosen: Iterable[Site], marks: str) -> None:
        """Find out which tests of their modules reach these sites."""
        wanted: dict[tuple[str, ...], list[Site]] = defaultdict(list)
        for site in chosen:
            if (site, marks) not in self._reached:
                wanted[tests_of(self.root, site.module)].append(site)
        print(f"tracing {len(wanted)} groups of tests ({marks})", file=sys.stderr, flush=True)
        list(self.threads.map(lambda item: self._trace(*item, marks), wanted.items()))

    def _trace(self, files: tuple[str, ...], chosen: Sequence[Site], marks: str) -> None:
        lines: dict[str, set[int]] = defaultdict(set)
        place = self.places.get()
        try:
            for site in chosen:
                lines[str(place.root / "src" / site.module)].update(site.mutation.lines)
            given, told = place.root.parent / "lines.json", place.root.parent / "reached.json"
            told.unlink(missing_ok=True)
            wanted = {path: sorted(numbers) for path, numbers in lines.items()}
            given.write_text(json.dumps({"lines": wanted, "to": str(told)}), "utf-8")
            start = time.monotonic()
            place.passes(files, ["-m", marks, "-p", "_reaching"], LONGEST, REACHING=str(given))
            self._seconds[files, marks] = time.monotonic() - start
            if not told.exists():
                raise RuntimeError(
                    f"the tests do not start or do not end: pytest -m {marks!r} {' '.join(files)}"
                )
            tests = json.loads(told.read_text("utf-8"))
        finally:
            self.places.put(place)
        for site in chosen:
            path = place.root / "src" / site.module
            at = {f"{path}:{line}" for line in site.mutation.lines}
            self._reached[site, marks] = [
                test for test, reached in tests.items() if at & {*reached}
            ]

    def reached(self, site: Site, marks: str) -> list[str]:
        """Return the tests that reach a site, after :meth:`trace`."""
        return self._reached.get((site, marks), [])

    def caught(self, chosen: Sequence[Site], marks: str) -> list[str | None]:
        """Return the test that fails on each site, ``"hangs"``, or None where none does."""
        return list(self.threads.map(lambda site: self._caught_and_shown(site, marks), chosen))

    def _caught_and_shown(self, site: Site, marks: str) -> str | None:
        found = self._caught(site, marks)
        print(
            f"{marks}: {site} {site.mutation.kind}: {found or 'not noticed'}",
            file=sys.stderr,
            flush=True,
        )
        return found

    def _caught(self, site: Site, marks: str) -> str | None:
        tests = self.reached(site, marks)
        variables: dict[str, str] = {}
        if marks == SLOW:
            tests = [*self.reached(site, QUICK), *tests]
            variables["NNPIPE_TESTS"] = "all"
        if not tests:
            return None
        files = tests_of(self.root, site.module)
        seconds = GRACE + PATIENCE * sum(
            self._seconds.get((files, each), 0.0) for each in {QUICK, marks}
        )
        place = self.places.get()
        try:
            with place.planted(site):
                failed = place.passes(tests, ["-x"], seconds, **variables)
                if failed:  # once more, alone
                    return (
                        failed
                        if place.passes([failed], ["-x"], seconds, **variables) is not None
                        else None
                    )
                return failed if failed is None else "hangs or does not start"
        finally:
            self.places.put(place)


def draw(trial: Trial, everything: Sequence[Site], number: int, seed: int) -> list[Site]:
    """Return the first sites of a random order that any test of their module reaches."""
    order = random.Random(seed).sample(everything, len(everything))
    found: list[Site] = []
    batch = number
    while len(found) < number and order:
        tried, order = order[:batch], order[batch:]
        trial.trace(tried, QUICK)
        unreached = [site for site in tried if not trial.reached(site, QUICK)]
        trial.trace(unreached, SLOW)
        found += [site for site in tried if trial.reached(site, QUICK) or trial.reached(site, SLOW)]
        batch = number - len(found)
    return found[:number]


def judge(trial: Trial, chosen: Sequence[Site]) -> list[dict[str, Any]]:
    """Run the quick tests on every site, and the slow ones on those that pass; return a row for
    each.
    """
    by_quick = trial.caught(chosen, QUICK)
    missed = [site for site, test in zip(chosen, by_quick, strict=True) if test is None]
    trial.trace(missed, SLOW)
    by_slow = dict(zip(missed, trial.caught(missed, SLOW), strict=True))
    return [
        {
            "fault": str(site),
            "kind": site.mutation.kind,
            "becomes": site.mutation.new[:60].replace("\n", " "),
            "quick": test is not None,
            "all": test is not None or by_slow[site] is not None,
            "caught by": test or by_slow.get(site) or "-",
        }
        for site, test in zip(chosen, by_quick, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutations", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument(
        "--within", default="nnpipe/", help="only modules whose path below src begins so"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="test runs at once")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="3 faults in modules of the core that have a test file of their own",
    )
    given = parser.parse_args(arguments)
    number, within = (3, "nnpipe/core/") if given.quick else (given.mutations, given.within)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(given.root, Path(folder), given.processes)
        rows = judge(
            trial, draw(trial, sites(given.root, within, own=given.quick), number, given.seed)
        )
    quick, every = sum(row["quick"] for row in rows), sum(row["all"] for row in rows)
    kinds = Counter(row["kind"] for row in rows if not row["all"])
    missed = ", ".join(f"{count} of {kind}" for kind, count in kinds.items()) or "none"
    print(
        f"{len(rows)} faults with seed {given.seed}; missed by all tests of their modules: {missed}"
    )
    ratio = quick / every if every else 0.0
    return report(
        rows,
        "faults caught by the quick tests",
        quick,
        f"of {len(rows)}",
        every,
        ratio,
        ">= 0.9 of those that all tests catch",
        ratio >= 0.9,
        seen_on="AMD EPYC",
    )


if __name__ == "__main__":
    sys.exit(main())
