"""Tuning within a time budget: a search in a subprocess, and the results that it finds in time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.compilers._tvm_search import FAILED, NOTHING, REQUEST
from nnpipe.core.artifact import Artifact
from nnpipe.core.child_processes import kill_group
from nnpipe.core.tensors import IOSpec, random_batch

_SEARCH = "nnpipe.compilers._tvm_search"
_WORKLOADS, _RECORDS = "database_workload.json", "database_tuning_record.json"
_FAILED_S = 1e9  # TVM records at least this time for a candidate that could not be built or run
# Compiling with the schedules found takes about as long as without, and is reserved in the budget.
_RESERVED = 1.5
_REPEATS, _LEAST_REPEATS, _COMPARING_S = 15, 3, 2.0


@dataclass(frozen=True)
class TuningBudget:
    """The budget of tuning in time and trials.

    Attributes
    ----------
    trials
        Number of schedules to try, at least one for each operation; 0 for as many as time allows.
    seconds
        Wall-clock time in s that tuning may add to compiling; 0 for no limit.
    seed
        Seed of the search.
    """

    trials: int
    seconds: float
    seed: int = 0


@dataclass(frozen=True)
class Tuned:
    """The result of a search.

    Attributes
    ----------
    executable
        The module compiled with the best schedules found; ``None`` if none was found.
    seconds
        Duration of the search in s.
    trials
        Number of schedules that were tried.
    why
        The reason why there is no executable; empty if there is one.
    """

    executable: Any
    seconds: float
    trials: int
    why: str = ""


def tuned(
    artifact: Artifact, batch: int | None, module: Any, target: Any, budget: TuningBudget, compiling_s: float
) -> Tuned:
    """Search for schedules, and compile a module with the best ones.

    Parameters
    ----------
    artifact, batch
        The model file that the module was imported from, and the batch size.
    module
        A Relax module of fixed shapes.
    target
        TVM's target for this processor.
    budget
        When to end the search, together with all processes that it started.
    compiling_s
        Duration of compiling without tuning, in s.
    """
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.relax_integration import compile_relax

    began = time.monotonic()
    allowed = budget.seconds - _RESERVED * compiling_s if budget.seconds else None
    if allowed is not None and allowed <= 0:
        return Tuned(None, 0.0, 0, f"compiling took {compiling_s:.0f} s, which leaves none of {budget.seconds:g} s")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        why = _search(artifact, batch, budget, folder, allowed)
        took = time.monotonic() - began
        for table in (_WORKLOADS, _RECORDS):
            _drop_half_a_line(folder / table)
        database = ms.database.JSONDatabase(work_dir=name)
        records = database.get_all_tuning_records()
        if any(_ran(record) for record in records):
            return Tuned(compile_relax(database, module, target, {}), took, len(records))
        return Tuned(None, took, len(records), why or "not one trial could be built and run")


def _search(artifact: Artifact, batch: int | None, budget: TuningBudget, folder: Path, allowed: float | None) -> str:
    """Run the search in a subprocess for at most ``allowed`` s; return why it ended early, empty if it did not."""
    request = {
        "artifact": artifact.to_json() | {"path": str(artifact.path.resolve()), "parent": None},
        "batch": batch,
        "trials": budget.trials,
        "seconds": budget.seconds,
        "seed": budget.seed,
    }
    (folder / REQUEST).write_text(json.dumps(request))
    # The subprocess gets this process's module search path.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = folder / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", _SEARCH, str(folder)],
            stdin=subprocess.PIPE,  # the subprocess exits when this end is closed
            stdout=out, stderr=out, env=environment, start_new_session=True,
        )  # fmt: skip
    try:
        status = process.wait(allowed)
    except subprocess.TimeoutExpired:
        return f"{budget.seconds:g} s were too few for one trial"
    finally:
        _kill(process)
    if status == NOTHING:
        return "there is nothing to tune in it"
    lines = said.read_text(errors="replace").strip().splitlines() if status else []
    last = lines[-1] if lines else "it said nothing"
    return "" if not status else last if status == FAILED else f"the search ended with status {status}: {last}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a search with the builders and runners that it started."""
    kill_group(process)
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _drop_half_a_line(path: Path) -> None:
    """Remove an incomplete last line, which a killed process leaves."""
    if path.exists():
        content = path.read_bytes()
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def _ran(record: Any) -> bool:
    return record.run_secs is not None and any(float(seconds) < _FAILED_S for seconds in record.run_secs)


def fastest(executables: Mapping[str, Any], io: IOSpec) -> str:
    """Return the name of the executable that is fastest on random inputs, in a short comparison by turns."""
    import tvm
    from tvm import relax

    batch = random_batch(io, 1)
    inputs = [tvm.runtime.tensor(np.ascontiguousarray(batch[spec.name])) for spec in io.inputs]
    machines = {name: relax.VirtualMachine(executable, tvm.cpu()) for name, executable in executables.items()}
    timed = {name: machine.time_evaluator("main", tvm.cpu(), number=1, repeat=1) for name, machine in machines.items()}
    times: dict[str, list[float]] = {name: [] for name in timed}
    end = time.monotonic() + _COMPARING_S * len(timed)
    for turn in range(_REPEATS):
        if turn >= _LEAST_REPEATS and time.monotonic() >= end:
            break
        for name, evaluate in timed.items():
            times[name].append(float(evaluate(*inputs).results[0]))
    return min(times, key=lambda name: float(np.median(times[name])))
