"""Compilation of ONNX models and exported PyTorch programs to shared libraries, by Apache TVM."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from nnpipe.compilers._tvm_import import import_relax_module
from nnpipe.compilers._tvm_search import FAILED, NOTHING, REQUEST
from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.batching import FixesBatch
from nnpipe.core.child_processes import kill_group
from nnpipe.core.compiler import Calibration
from nnpipe.core.discoverable import CXX, Tool
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.tensors import IOSpec, generate_random_batch
from nnpipe.formats.sealed import SealedFile, read_sealed, write_sealed
from nnpipe.frameworks.processors import FEATURES, MACHINE, get_machine
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.tvm import (
    FORMAT,
    SCHEDULES,
    TUNING,
    get_native_target,
    get_processor_features,
)

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
class TuningResult:
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


def tune_schedules(
    artifact: Artifact,
    batch: int | None,
    module: Any,
    target: Any,
    budget: TuningBudget,
    compiling_s: float,
) -> TuningResult:
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
        return TuningResult(
            None,
            0.0,
            0,
            f"compiling took {compiling_s:.0f} s, which leaves none of {budget.seconds:g} s",
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        why = _search(artifact, batch, budget, folder, allowed)
        took = time.monotonic() - began
        for table in (_WORKLOADS, _RECORDS):
            _remove_incomplete_line(folder / table)
        database = ms.database.JSONDatabase(work_dir=name)
        records = database.get_all_tuning_records()
        if any(_has_run(record) for record in records):
            return TuningResult(compile_relax(database, module, target, {}), took, len(records))
        return TuningResult(None, took, len(records), why or "not one trial could be built and run")


def _search(
    artifact: Artifact, batch: int | None, budget: TuningBudget, folder: Path, allowed: float | None
) -> str:
    """Run the search in a subprocess for at most ``allowed`` s; return why it ended early, empty
    if it did not.
    """
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
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
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
    return (
        ""
        if not status
        else last
        if status == FAILED
        else f"the search ended with status {status}: {last}"
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a search with the builders and runners that it started."""
    kill_group(process)
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _remove_incomplete_line(path: Path) -> None:
    """Remove an incomplete last line, which a killed process leaves."""
    if path.exists():
        content = path.read_bytes()
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def _has_run(record: Any) -> bool:
    return record.run_secs is not None and any(
        float(seconds) < _FAILED_S for seconds in record.run_secs
    )


def find_fastest(executables: Mapping[str, Any], io: IOSpec) -> str:
    """Return the name of the executable that is fastest on random inputs, in a short comparison
    by turns.
    """
    import tvm
    from tvm import relax

    batch = generate_random_batch(io, 1)
    inputs = [tvm.runtime.tensor(np.ascontiguousarray(batch[spec.name])) for spec in io.inputs]
    machines = {
        name: relax.VirtualMachine(executable, tvm.cpu())
        for name, executable in executables.items()
    }
    timed = {
        name: machine.time_evaluator("main", tvm.cpu(), number=1, repeat=1)
        for name, machine in machines.items()
    }
    times: dict[str, list[float]] = {name: [] for name in timed}
    end = time.monotonic() + _COMPARING_S * len(timed)
    for turn in range(_REPEATS):
        if turn >= _LEAST_REPEATS and time.monotonic() >= end:
            break
        for name, evaluate in timed.items():
            times[name].append(float(evaluate(*inputs).results[0]))
    return min(times, key=lambda name: float(np.median(times[name])))


_NATIVE, _GENERIC = "native", "generic"
_TUNED, _UNTUNED = "tuned", "untuned"


class TVMCompiler(WritingCompiler, FixesBatch):
    """Compiles ONNX models and exported PyTorch programs to shared libraries with Apache TVM,
    optionally tuned.
    """

    requires: ClassVar[tuple[str, ...]] = ("tvm",)
    install: ClassVar[str] = "nnpipe[tvm]"
    accepts: ClassVar[tuple[str, ...]] = ("onnx", "torch-export")
    unsupported_types: ClassVar[tuple[str, ...]] = ("bfloat16",)
    one_file: ClassVar[bool] = True
    produces: ClassVar[str] = FORMAT
    suffix: ClassVar[str] = ".so"
    needs_tools: ClassVar[tuple[Tool, ...]] = (CXX,)
    packages: ClassVar[tuple[str, ...]] = ("apache-tvm", "apache-tvm-ffi", "onnx", "torch")

    no_options: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "--opt-level": "TVM no longer has optimisation levels; --tune-trials finds faster schedules"
        }
    )

    target: str = argument(
        _NATIVE,
        help="processor to compile for: native (this one), generic (any of this kind), or a "
        "triple such as aarch64-linux-gnu, for which aarch64-linux-gnu-g++ must be installed",
    )
    mcpu: str = argument(
        "", help="LLVM's name of the processor model, such as cortex-a72; only with a triple"
    )
    tune_trials: int = argument(
        0,
        help=(
            "number of schedules to try on this machine; 0 without --tune-seconds uses TVM's slow "
            "default schedules"
        ),
        minimum=0,
    )
    tune_seconds: float = argument(
        0.0,
        help="seconds that trying schedules on this machine may add to compiling; with "
        "--tune-trials, whichever limit is reached first; the tuned library is kept if it is "
        "faster than the untuned one",
        minimum=0.0,
    )
    tune_seed: int = argument(0, help="seed of the search for schedules", minimum=0)

    def validate(self) -> None:
        """Check that tuning is for this processor, and a processor model is only given with a
        triple.
        """
        name = type(self).__name__
        if " " in self.target or self.target == "llvm":
            mcpu = re.search(r"-mcpu=(\S+)", self.target)
            triple = re.search(r"-mtriple=(\S+)", self.target)
            found = [
                triple and f"--target {triple[1]}",
                mcpu and f"--mcpu {mcpu[1]} beside the triple",
            ]
            told = ", ".join(filter(None, found)) or "native, generic or a triple"
            raise ConfigError(
                f"{name}: --target {self.target!r} is how TVM's own tools say it; say {told} "
                f"(native is this processor)"
            )
        if self._is_tuning() and self.target != _NATIVE:
            flag = "--tune-trials" if self.tune_trials else "--tune-seconds"
            raise ConfigError(f"{name}: {flag} measures on this machine and needs --target native")
        if self.mcpu and self.target in (_NATIVE, _GENERIC):
            raise ConfigError(f"{name}: --mcpu needs a triple as --target, not {self.target}")

    def variant(self) -> str:
        """Return ``"tuned"`` or ``"untuned"``."""
        if not self._is_tuning():
            return "untuned"
        return (
            "tuned"
            + str(self.tune_trials or "")
            + (f"-{self.tune_seconds:g}s" if self.tune_seconds else "")
        )

    def performance_caveats(self) -> tuple[str, ...]:
        """Return handicaps: generic code, no tuning."""
        generic = ("code for any processor",) if self.target == _GENERIC else ()
        return (
            *super().performance_caveats(),
            *generic,
            *(() if self._is_tuning() else ("TVM without tuning",)),
        )

    def _is_tuning(self) -> bool:
        return bool(self.tune_trials or self.tune_seconds)

    def target_name(self) -> str:
        """Return the name of the processor."""
        return self.target

    def tools(self) -> tuple[Tool, ...]:
        """Return the C++ compiler that links the library, for a triple its cross compiler."""
        if self.target in (_NATIVE, _GENERIC):
            return self.needs_tools
        command = f"{self.target}-g++"
        return (
            Tool(
                f"a C++ compiler for {self.target}",
                (command,),
                f"apt install g++-{self.target.replace('_', '-')}",
            ),
        )

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        linker = self._choose_linker()
        module, io = import_relax_module(artifact, self.batch)
        if self._is_tuning() and any(None in spec.shape for spec in io.inputs):
            raise CompileError(
                "tuning needs inputs of fixed shape; set --fixed-batch, for example to 1"
            )
        with suppress_output(), tempfile.TemporaryDirectory() as folder:
            import tvm

            target, notes = self._choose_target()
            library = Path(folder, "model.so")
            began = time.monotonic()
            executables = {_UNTUNED: tvm.compile(module, target=target)}
            chosen = _UNTUNED
            if self._is_tuning():
                budget = TuningBudget(self.tune_trials, self.tune_seconds, self.tune_seed)
                found = tune_schedules(
                    artifact, self.batch, module, target, budget, time.monotonic() - began
                )
                notes |= {TUNING: {"seconds": round(found.seconds, 1), "trials": found.trials}}
                if found.executable is not None:
                    executables[_TUNED] = found.executable
                    chosen = find_fastest(executables, io)
                if chosen == _UNTUNED:
                    none = f"{found.trials} trials in {found.seconds:.0f} s found nothing faster"
                    notes[TUNING]["untuned"] = found.why or none
            executables[chosen].export_library(str(library), **linker)
            notes |= {SCHEDULES: chosen}
            write_sealed(destination, SealedFile(library.read_bytes(), FORMAT, io, notes))
        return io

    def _describe_outcome(self, destination: Path) -> Mapping[str, Any]:
        if not self._is_tuning():
            return {}
        notes = read_sealed(destination, FORMAT).notes
        found: dict[str, Any] = {SCHEDULES: notes[SCHEDULES], TUNING: notes[TUNING]}
        if notes[SCHEDULES] == _UNTUNED:
            found["handicaps"] = [f"TVM untuned: {notes[TUNING]['untuned']}"]
        return found

    def _choose_target(self) -> tuple[Any, dict[str, Any]]:
        import tvm

        _, triple, features = get_processor_features()
        if self.target == _NATIVE:
            return get_native_target(), {MACHINE: get_machine(), FEATURES: features}
        if self.target == _GENERIC:
            return tvm.target.Target({"kind": "llvm", "mtriple": triple}), {MACHINE: get_machine()}
        found = {"kind": "llvm", "mtriple": self.target} | (
            {"mcpu": self.mcpu} if self.mcpu else {}
        )
        return tvm.target.Target(found), {MACHINE: get_machine(self.target)}

    def _choose_linker(self) -> dict[str, Any]:
        """Return how the library is linked."""
        found = self.tools()[0].check(type(self).__name__)
        if self.target in (_NATIVE, _GENERIC):
            return {"cc": found}
        with suppress_output():
            from tvm.support import cc

        return {"fcompile": cc.cross_compiler(found)}
