"""Commands that are ended at any moment: nothing is left, measured twice or lost, whatever ended
them.

``run``, ``sweep``, ``search``, ``compare``, ``model_training``, ``jobs``, ``storage`` and
``inference_server`` are each ended at random moments of their own duration, by SIGTERM, SIGKILL,
Ctrl-C and SIGHUP in random order: several times one after the other, and then started once more and
left alone.  Ten seconds after each end none of the processes is left. After the last start the
working folder holds what it holds after an undisturbed run and nothing else, the folder of
temporary files nothing, and what had been measured is as it was.

    python benchmarks/kills.py [--quick] [--only COMMAND ...] [--rounds N] [--seed N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _table import report

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.agent.processes import find_processes_with_variable
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import build_configuration_key

XEON = "Intel Xeon, 2 cores, a virtual machine (KVM)"
MARK = "NNPIPE_BENCHMARK_MARK"
SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)
SOON = 10.0  # seconds within which all processes have ended
LIMIT = 300.0  # seconds for one run
TURNS = "nnpipe-turns-"  # the locks by which workers of all commands of a user take turns stay
TRIALS = 12
MODULE = """import tempfile, time

def trained(x):
    with tempfile.NamedTemporaryFile():
        time.sleep(0.1)
    return (x - 0.3) ** 2
"""
SCRIPT = """import json, os, time
for step in range(10):
    time.sleep(0.1)
    with open(os.environ["NNPIPE_PROGRESS"], "a") as progress:
        progress.write(json.dumps({"fraction": (step + 1) / 10}) + "\\n")
with open("written.txt", "w") as file:
    file.write("done")
"""
DIGITS = {
    "class": "ONNXModel",
    "arguments": {"scale": 16},
    "path": "model.onnx",
}
PIPELINE = {
    "title": "killed",
    "output": "out",
    "dataset": "DigitsDataset",
    "model": DIGITS,
    "candidates": [
        {"title": "plain", "runtime": "ONNXRuntime"},
        {"title": "int8", "compilers": ["ONNXDynamicQuantizer"], "runtime": "ONNXRuntime"},
    ],
}
SWEEP = {
    "title": "killed",
    "output": "out",
    "dataset": "DigitsDataset",
    "models": [{"title": "digits", **DIGITS}],
    "compilers": [[], "ONNXDynamicQuantizer"],
    "runtimes": ["ONNXRuntime"],
    "threads": [1],
    "batch_sizes": [1],
    "measure": {"measure_seconds": 0.1},
    "choose": "latency_median",
    "accept_doubts": ["chance"],  # the weights are random
}
SEARCH = {
    "title": "killed",
    "function": "killed_trials.trained",
    "sampler": "random",
    "seed": 5,
    "trials": TRIALS,
    "objectives": {"value": "minimize"},
    "space": {"x": {"kind": "uniform", "low": 0, "high": 1}},
}


@dataclass(frozen=True)
class Command:
    """A command that is ended again and again.

    Parameters
    ----------
    arguments
        Its arguments.
    kept
        Patterns of files that must not change once they are there: what was measured.
    once
        Whether that holds also when it is started again after it was complete.
    right
        Is given the folder after the last start, and returns what is wrong; empty if nothing is.
    ends
        Whether it ends by itself; otherwise it is told to, with SIGTERM.
    """

    arguments: Sequence[str]
    kept: Sequence[str] = ()
    once: bool = True
    right: Callable[[Path], str] = lambda folder: ""
    ends: bool = True


def right_trials(folder: Path) -> str:
    """Return what is wrong with the trials of a search."""
    with RunDatabase(str(folder / "runs.sqlite"), create=False) as database:
        found = list(DatabaseTrials(database, str(SEARCH["title"])).trials())
    finished = sum(trial.state == "finished" for trial in found)
    alike = len(found) - len(
        {build_configuration_key(trial.configuration or {}) for trial in found}
    )
    return (
        ""
        if (finished, len(found), alike) == (TRIALS, TRIALS, 0)
        else f"{finished} of {len(found)}, {alike} twice"
    )


def right_copy(folder: Path) -> str:
    """Return what is wrong with the stored file."""
    there = folder / "store" / "datasets" / "large.bin"
    return (
        ""
        if there.read_bytes() == (folder / "large.bin").read_bytes()
        else "the stored file is another one"
    )


COMMANDS: Mapping[str, Command] = {
    "run": Command(["run", "pipeline.json"], kept=["out/[0-9][0-9]-*.json"], once=False),
    "sweep": Command(["sweep", "sweep.json"], kept=["out/results/*.json"]),
    "sweep --workers": Command(
        ["sweep", "sweep.json", "--workers", "2"], kept=["out/results/*.json"]
    ),
    "search": Command(["search", "search.json", "--database", "runs.sqlite"], right=right_trials),
    "search --workers": Command(
        ["search", "search.json", "--database", "runs.sqlite", "--workers", "2"], right=right_trials
    ),
    "compare": Command(
        [
            "compare",
            "model.onnx",
            "model.onnx",
            "--dataset",
            "DigitsDataset",
            "--scale",
            "16",
            "--max-seconds",
            "2",
        ]
    ),
    "model_training": Command(
        [
            "model_training",
            "SklearnTabularModel",
            "SyntheticTabularDataset",
            "--model-path",
            "trained.skops",
            "--num-epochs",
            "20",
        ]
    ),
    "jobs": Command(["jobs", "submit", "script.py", "--output", "written.txt", "--watch"]),
    "storage": Command(
        ["storage", "put", "large.bin", "datasets", "--at", "store", "--replace"], right=right_copy
    ),
    "inference_server": Command(
        ["inference_server", "NetworkProtocol", "ONNXRuntime", "--port", "0"], ends=False
    ),
}


class Place:
    """A working folder with a folder for temporary files, in which a command is started.

    Parameters
    ----------
    command
        The command.
    folder
        Where the two are.
    """

    def __init__(self, command: Command, folder: Path) -> None:
        self.work, self.temporary, self.mark = (
            folder / "work",
            folder / "temporary",
            uuid.uuid4().hex,
        )
        self._command = command
        self.temporary.mkdir(parents=True)
        write_inputs(self.work)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("NNPIPE_")
        }
        environment |= {MARK: self.mark, "TMPDIR": str(self.temporary), "PYTHONFAULTHANDLER": "1"}
        with open(self.work.parent / "log.txt", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "nnpipe", *self._command.arguments],
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                preexec_fn=_hear_signals,
            )

    def run(self) -> float:
        """Run the command undisturbed, and return how long it took; a server is ended when it
        serves.
        """
        begin, written = time.monotonic(), len(self.log())
        with self.start() as process:
            if not self._command.ends:
                while b" is served at " not in self.log()[written:] and process.poll() is None:
                    time.sleep(0.02)
                process.terminate()
            status = process.wait(LIMIT)
        if status:
            raise SystemExit(
                f"{self._command.arguments} ended with status "
                f"{status}:\n{self.log().decode()[-3000:]}"
            )
        return time.monotonic() - begin

    def log(self) -> bytes:
        """Return what the command has written so far."""
        path = self.work.parent / "log.txt"
        return path.read_bytes() if path.exists() else b""

    def files(self) -> set[str]:
        """Return the working folder's files and folders, with each identity replaced by a star.

        Intermediate files of compilers are kept on purpose; which there are depends on what was
        compiled in one run. The files of the run database are its records of each job, of which
        there are more after each start.
        """
        paths = (str(path.relative_to(self.work)) for path in self.work.rglob("*"))
        left_out = re.compile(r"__pycache__|\.step\d|^runs\.sqlite\.artifacts/")
        return {re.sub(r"[0-9a-f]{12,}", "*", path) for path in paths if not left_out.search(path)}

    def measured(self) -> dict[Path, str]:
        """Return the hashes of the files that must not change any more."""
        found = {path for pattern in self._command.kept for path in self.work.glob(pattern)}
        kept = [
            path
            for path in found
            if not path.name.startswith(".") and not path.name.endswith(".failed.json")
        ]
        return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}

    def left_processes(self) -> list[int]:
        """Return the processes that are left after the time in which all should have ended."""
        limit = time.monotonic() + SOON
        while left := find_processes_with_variable(MARK, self.mark):
            if time.monotonic() > limit:
                return sorted(left)
            time.sleep(0.1)
        return []


def write_inputs(folder: Path) -> None:
    """Write what the commands read."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    folder.mkdir(parents=True)
    weights = np.random.default_rng(0).normal(0, 0.1, (64, 10)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["y"]),
        ],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 8, 8, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "model.onnx"))
    for name, content in (("pipeline", PIPELINE), ("sweep", SWEEP), ("search", SEARCH)):
        (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
    (folder / "killed_trials.py").write_text(MODULE, "utf-8")
    (folder / "script.py").write_text(SCRIPT, "utf-8")
    (folder / "large.bin").write_bytes(np.random.default_rng(1).bytes(40_000_000))


def disturbed(
    command: Command, folder: Path, duration: float, wanted: set[str], chance: random.Random
) -> list[str]:
    """Return what is wrong after the command has been ended by each signal, and was then left
    alone.
    """
    place, wrong = Place(command, folder), []
    complete = False
    for number in chance.sample(SIGNALS, len(SIGNALS)):
        with place.start() as process:
            try:
                complete |= process.wait(chance.uniform(0, duration)) == 0
            except subprocess.TimeoutExpired:
                process.send_signal(number)
            try:
                process.wait(SOON)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # shows in the log where it is
                wrong.append(f"{number.name} did not end it within {SOON:g} s")
        if left := place.left_processes():
            wrong.append(
                f"{number.name}: {len(left)} processes are left: {' | '.join(map(_words_of, left))}"
            )
            for pid in left:
                os.kill(pid, signal.SIGKILL)
    measured = {} if complete and not command.once else place.measured()
    place.run()
    if place.left_processes():
        wrong.append("processes are left at the end")
    now = place.measured()
    wrong += [
        f"measured twice: {path.name}"
        for path, digest in measured.items()
        if now.get(path) != digest
    ]
    wrong += [f"foreign: {path}" for path in sorted(place.files() - wanted)]
    wrong += [f"missing: {path}" for path in sorted(wanted - place.files())]
    wrong += [
        f"temporary: {path.name}"
        for path in place.temporary.iterdir()
        if not path.name.startswith(TURNS)
    ]
    if text := command.right(place.work):
        wrong.append(text)
    # Where the interpreter itself is still starting, Ctrl-C is a traceback of Python's own.
    if re.search(rb'^ +File ".*/nnpipe/', place.log(), re.MULTILINE):
        wrong.append("a traceback")
    if wrong:
        told = "\n  ".join(wrong)
        print(
            f"{place.log().decode()[-2000:]}\n{' '.join(command.arguments)}:\n  {told}",
            file=sys.stderr,
        )
    shutil.rmtree(folder)
    return wrong


def case(name: str, rounds: int, seed: int) -> dict[str, Any]:
    """Return a row of the table: a command that is ended four times in each round."""
    command, begin = COMMANDS[name], time.monotonic()
    chance = random.Random(f"{name} {seed}")
    with tempfile.TemporaryDirectory(prefix="nnpipe-kills-") as where:
        reference = Place(command, Path(where, "undisturbed"))
        duration = reference.run()
        wanted = reference.files()
        wrong = [
            text
            for number in range(rounds)
            for text in disturbed(command, Path(where, str(number)), duration, wanted, chance)
        ]
    return {
        "command": name,
        "ended": rounds * len(SIGNALS),
        "undisturbed (s)": duration,
        "wrong": len(wrong),
        "seconds": time.monotonic() - begin,
        "holds": not wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two commands, one round each")
    parser.add_argument("--only", choices=COMMANDS, nargs="+", help="these commands")
    parser.add_argument(
        "--rounds", type=int, default=8, help="of four ends each, for each command (default: 8)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of the moments and the order of signals"
    )
    options = parser.parse_args()
    names = options.only or (["search", "storage"] if options.quick else list(COMMANDS))
    rounds = 1 if options.quick else options.rounds
    rows = [case(name, rounds, options.seed) for name in names]
    ended, wrong = sum(row["ended"] for row in rows), sum(row["wrong"] for row in rows)
    return report(
        rows,
        "commands that were ended at any moment",
        float(wrong),
        "faults",
        0.0,
        float(wrong),
        f"after {ended} ends no foreign file, nothing measured twice, no process after {SOON:g} s",
        not wrong,
        seen_on=XEON,
    )


def _hear_signals() -> None:
    for number in SIGNALS:
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)


def _words_of(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")[:120]
        )
    except OSError:
        return "one that has just ended"


if __name__ == "__main__":
    sys.exit(main())
