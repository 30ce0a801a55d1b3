"""Searches whose workers and whose host are killed: nothing is lost, done twice or left running.

Four workers carry out 100 trials of one search, and 20 times a worker or the command itself is
killed with signal 9, at random; the command is then started again.  So on SQLite, on a PostgreSQL
server and, with ``--ray``, on a Ray cluster of three nodes of this machine, of which one is killed
with all that runs on it.  At the end exactly 100 trials are finished, no configuration twice, and
none is left running.  A search with one worker and a seed gives the same trials whether it was
killed ten times or not.

    python benchmarks/search_kills.py [--quick] [--ray]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _postgresql import postgresql
from _table import EPYC, report

import nnpipe
from nnpipe.core.errors import NNPipeError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.agent.processes import find_processes_with_variable
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import SearchTrial, build_configuration_key

WORKERS = 4
LIMIT = 900.0  # seconds for one case
MARK = "NNPIPE_BENCHMARK_MARK"
MODULE = """import time

def trained(x, n, seconds=0.2):
    time.sleep(seconds)
    return (x - 0.3) ** 2 + abs(n - 3)
"""
SEARCH = {
    "title": "kills",
    "function": "killed_trials.trained",
    "sampler": "tpe",
    "seed": 5,
    "space": {
        "x": {"kind": "uniform", "low": 0, "high": 1},
        "n": {"kind": "int", "low": 0, "high": 9},
    },
}


class Command:
    """``nnpipe search``, started again when it has been killed.

    Parameters
    ----------
    folder
        Where it runs.
    arguments
        Its arguments.
    """

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        self.mark = uuid.uuid4().hex
        self._folder, self._arguments = folder, [*arguments, "--env", f"{MARK}={self.mark}"]
        self.process = self._started()

    def kill(self) -> None:
        """Kill the command, and start it again."""
        self.process.kill()
        self.process.wait()
        self.process = self._started()

    def workers(self) -> list[int]:
        """Return the processes of its workers."""
        return [pid for pid in find_processes_with_variable(MARK, self.mark) if _is_worker(pid)]

    def _started(self) -> subprocess.Popen[bytes]:
        with open(self._folder / "log.txt", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "nnpipe", "search", "search.json", *self._arguments],
                cwd=self._folder,
                env={**os.environ, MARK: self.mark},
                stdout=log,
                stderr=log,
            )


def killed(
    name: str,
    address: str,
    trials: int,
    kills: int,
    options: Sequence[str] = (),
    node: Callable[[], int] | None = None,
) -> dict[str, Any]:
    """Kill workers and the command of a search; return a row of the table.

    Parameters
    ----------
    name, address
        The case, and the run database.
    trials, kills
        How many of each.
    options
        Further options of the command.
    node
        Kills a node of the cluster with all that runs on it, instead of one of the other kills.
    """
    rng = random.Random(3)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nnpipe-kills-") as where:
        folder = Path(where)
        (folder / "killed_trials.py").write_text(MODULE, "utf-8")
        (folder / "search.json").write_text(json.dumps({**SEARCH, "trials": trials}), "utf-8")
        command = Command(
            folder, ["--database", address, *(options or ["--workers", str(WORKERS)])]
        )
        done = hosts = 0
        trials_of = Trials(address, str(SEARCH["title"]))
        try:
            while done < kills:
                _within(begin, folder)
                if command.process.poll() is not None:
                    break
                if trials_of.ended() < (done + 1) * trials // (kills + 5):
                    time.sleep(0.05)
                    continue
                workers = command.workers()
                if node is not None and done == kills // 2:
                    node()
                elif rng.random() < 0.25:
                    command.kill()
                    hosts += 1
                elif workers:
                    os.kill(rng.choice(workers), signal.SIGKILL)
                else:
                    time.sleep(0.05)
                    continue
                done += 1
            while command.process.poll() is None:
                _within(begin, folder)
                time.sleep(0.1)
            status = command.process.returncode
            found = trials_of.all()
        finally:
            command.process.kill()
            _end(command)
        log = (folder / "log.txt").read_text("utf-8", "replace")
    finished = sum(trial.state == "finished" for trial in found)
    twice = len(found) - len(
        {build_configuration_key(trial.configuration or {}) for trial in found}
    )
    left = sum(not trial.ended for trial in found)
    holds = (status, finished, len(found), twice, left, done) == (0, trials, trials, 0, 0, kills)
    if not holds:
        print(log[-3000:], file=sys.stderr)
    return {
        "search": name,
        "kills": done,
        "of the command": hosts,
        "finished": finished,
        "twice": twice,
        "left": left,
        "attempts": sum(trial.fence for trial in found),
        "seconds": time.monotonic() - begin,
        "holds": holds,
    }


def repeated(trials: int, kills: int) -> dict[str, Any]:
    """Compare a search of one worker with the same one that is killed again and again."""
    begin = time.monotonic()
    seen: list[list[Any]] = []
    with tempfile.TemporaryDirectory(prefix="nnpipe-kills-") as where:
        folder = Path(where)
        (folder / "killed_trials.py").write_text(MODULE, "utf-8")
        for times in (0, kills):
            content = {
                **SEARCH,
                "title": f"kills {times}",
                "trials": trials,
                "arguments": {"seconds": 0.05},
            }
            (folder / "search.json").write_text(json.dumps(content), "utf-8")
            address = str(folder / f"runs{times}.sqlite")
            command = Command(folder, ["--database", address])
            done, trials_of = 0, Trials(address, str(content["title"]))
            while command.process.poll() is None:
                _within(begin, folder)
                if done < times and trials_of.ended() >= (done + 1) * trials // (times + 2):
                    command.kill()
                    done += 1
                time.sleep(0.02)
            seen.append([(t.configuration, dict(t.values), t.state) for t in trials_of.all()])
    same = sum(a == b for a, b in zip(*seen, strict=False))
    return {
        "search": "one worker and a seed",
        "kills": done,
        "of the command": done,
        "finished": len(seen[1]),
        "twice": 0,
        "left": trials - same,
        "attempts": trials,
        "seconds": time.monotonic() - begin,
        "holds": done == kills and len(seen[0]) == trials and seen[0] == seen[1],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer trials and kills")
    parser.add_argument(
        "--ray", action="store_true", help="also on a Ray cluster; needs PostgreSQL and Ray"
    )
    parser.add_argument(
        "--only", choices=("sqlite", "postgresql", "seed", "ray"), nargs="+", help="these cases"
    )
    options = parser.parse_args()
    only = options.only or ["sqlite", "postgresql", "seed", *(["ray"] if options.ray else [])]
    if "ray" in only and importlib.util.find_spec("ray") is None:
        parser.error("the cases on Ray need it: pip install 'nnpipe[ray]'")
    trials, kills = (30, 5) if options.quick else (100, 20)
    rows = []
    if "sqlite" in only:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(killed("four workers, SQLite", f"{folder}/runs.sqlite", trials, kills))
    if "seed" in only:
        rows.append(repeated(*((15, 3) if options.quick else (60, 10))))
    if "postgresql" in only or "ray" in only:
        with postgresql() as address:
            if address is None:
                print("PostgreSQL is not installed: its cases are left out")
            elif "postgresql" in only:
                rows.append(killed("four workers, PostgreSQL", address, trials, kills))
        with postgresql() as address:
            if "ray" in only and address is not None:
                rows.append(on_ray(address, trials, kills))
    good = sum(row["holds"] for row in rows)
    return report(
        rows,
        "searches whose workers and command are killed",
        float(good),
        "cases",
        float(len(rows)),
        good / max(1, len(rows)),
        "all trials finished once, none left, after all kills; with a seed, the same trials",
        good == len(rows) and bool(rows),
        seen_on=EPYC,
    )


def on_ray(address: str, trials: int, kills: int) -> dict[str, Any]:
    """Kill workers, the command and a node of a Ray cluster."""
    from _ray_cluster import cluster

    with cluster(3, 2, {"PYTHONPATH": str(Path(nnpipe.__file__).parents[1])}) as found:
        options = ["--on", f"{found.address}={WORKERS}", "--python", sys.executable]
        return killed(
            "four workers, Ray with three nodes",
            address,
            trials,
            kills,
            options,
            lambda: found.kill_node(0),
        )


def _is_worker(pid: int) -> bool:
    try:
        return b"worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class Trials:
    """The trials of a search, which may not be there yet.

    Parameters
    ----------
    address, search
        The run database, and the title.
    """

    def __init__(self, address: str, search: str) -> None:
        self._address, self._search = address, search
        self._trials: DatabaseTrials | None = None
        self._database: RunDatabase | None = None

    def all(self) -> list[SearchTrial]:
        """Return them by number."""
        if self._trials is None:
            if "://" not in self._address and not Path(self._address).exists():
                return []
            try:
                self._database = self._database or RunDatabase(self._address, create=False)
                self._trials = DatabaseTrials(self._database, self._search)
            except NNPipeError:
                return []
        return list(self._trials.trials())

    def ended(self) -> int:
        """Return how many have ended."""
        return sum(trial.ended for trial in self.all())


def _within(begin: float, folder: Path) -> None:
    if time.monotonic() - begin > LIMIT:
        raise SystemExit(
            (folder / "log.txt").read_text("utf-8", "replace")[-3000:] + "\nit takes too long"
        )


def _end(command: Command) -> None:
    """Kill what a failed case has left."""
    for _ in range(20):
        left = find_processes_with_variable(MARK, command.mark)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not left:
            return
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
