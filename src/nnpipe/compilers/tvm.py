"""Compilation of ONNX models and exported PyTorch programs to shared libraries, by Apache TVM."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from nnpipe.compilers._tvm_import import imported
from nnpipe.compilers._tvm_tuning import TuningBudget, fastest, tuned
from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.batching import FixesBatch
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.external_tools import CXX, Tool
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.sealed import SealedFile, read_sealed, write_sealed
from nnpipe.frameworks.framework_output import hushed
from nnpipe.frameworks.processors import FEATURES, MACHINE, machine
from nnpipe.frameworks.tvm import FORMAT, SCHEDULES, TUNING, features_here, native_target

_NATIVE, _GENERIC = "native", "generic"
_TUNED, _UNTUNED = "tuned", "untuned"


class TVMCompiler(WritingCompiler, FixesBatch):
    """Compiles ONNX models and exported PyTorch programs to shared libraries with Apache TVM, optionally tuned."""

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
        {"--opt-level": "TVM no longer has optimisation levels; --tune-trials finds faster schedules"}
    )

    target: str = argument(
        _NATIVE,
        help="processor to compile for: native (this one), generic (any of this kind), or a triple such as "
        "aarch64-linux-gnu, for which aarch64-linux-gnu-g++ must be installed",
    )
    mcpu: str = argument("", help="LLVM's name of the processor model, such as cortex-a72; only with a triple")
    tune_trials: int = argument(
        0,
        help="number of schedules to try on this machine; 0 without --tune-seconds uses TVM's slow default schedules",
        minimum=0,
    )
    tune_seconds: float = argument(
        0.0,
        help="seconds that trying schedules on this machine may add to compiling; with --tune-trials, whichever limit "
        "is reached first; the tuned library is kept if it is faster than the untuned one",
        minimum=0.0,
    )
    tune_seed: int = argument(0, help="seed of the search for schedules", minimum=0)

    def validate(self) -> None:
        """Check that tuning is for this processor, and a processor model is only given with a triple."""
        name = type(self).__name__
        if " " in self.target or self.target == "llvm":
            mcpu = re.search(r"-mcpu=(\S+)", self.target)
            triple = re.search(r"-mtriple=(\S+)", self.target)
            found = [triple and f"--target {triple[1]}", mcpu and f"--mcpu {mcpu[1]} beside the triple"]
            told = ", ".join(filter(None, found)) or "native, generic or a triple"
            raise ConfigError(
                f"{name}: --target {self.target!r} is how TVM's own tools say it; say {told} (native is this processor)"
            )
        if self._tunes() and self.target != _NATIVE:
            flag = "--tune-trials" if self.tune_trials else "--tune-seconds"
            raise ConfigError(f"{name}: {flag} measures on this machine and needs --target native")
        if self.mcpu and self.target in (_NATIVE, _GENERIC):
            raise ConfigError(f"{name}: --mcpu needs a triple as --target, not {self.target}")

    def variant(self) -> str:
        """Return ``"tuned"`` or ``"untuned"``."""
        if not self._tunes():
            return "untuned"
        return "tuned" + str(self.tune_trials or "") + (f"-{self.tune_seconds:g}s" if self.tune_seconds else "")

    def handicaps(self) -> tuple[str, ...]:
        """Return handicaps: generic code, no tuning."""
        generic = ("code for any processor",) if self.target == _GENERIC else ()
        return (*super().handicaps(), *generic, *(() if self._tunes() else ("TVM without tuning",)))

    def _tunes(self) -> bool:
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
            Tool(f"a C++ compiler for {self.target}", (command,), f"apt install g++-{self.target.replace('_', '-')}"),
        )

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        linker = self._linker()
        module, io = imported(artifact, self.batch)
        if self._tunes() and any(None in spec.shape for spec in io.inputs):
            raise CompileError("tuning needs inputs of fixed shape; set --fixed-batch, for example to 1")
        with hushed(), tempfile.TemporaryDirectory() as folder:
            import tvm

            target, notes = self._target()
            library = Path(folder, "model.so")
            began = time.monotonic()
            executables = {_UNTUNED: tvm.compile(module, target=target)}
            chosen = _UNTUNED
            if self._tunes():
                budget = TuningBudget(self.tune_trials, self.tune_seconds, self.tune_seed)
                found = tuned(artifact, self.batch, module, target, budget, time.monotonic() - began)
                notes |= {TUNING: {"seconds": round(found.seconds, 1), "trials": found.trials}}
                if found.executable is not None:
                    executables[_TUNED] = found.executable
                    chosen = fastest(executables, io)
                if chosen == _UNTUNED:
                    none = f"{found.trials} trials in {found.seconds:.0f} s found nothing faster"
                    notes[TUNING]["untuned"] = found.why or none
            executables[chosen].export_library(str(library), **linker)
            notes |= {SCHEDULES: chosen}
            write_sealed(destination, SealedFile(library.read_bytes(), FORMAT, io, notes))
        return io

    def _outcome(self, destination: Path) -> Mapping[str, Any]:
        if not self._tunes():
            return {}
        notes = read_sealed(destination, FORMAT).notes
        found: dict[str, Any] = {SCHEDULES: notes[SCHEDULES], TUNING: notes[TUNING]}
        if notes[SCHEDULES] == _UNTUNED:
            found["handicaps"] = [f"TVM untuned: {notes[TUNING]['untuned']}"]
        return found

    def _target(self) -> tuple[Any, dict[str, Any]]:
        import tvm

        _, triple, features = features_here()
        if self.target == _NATIVE:
            return native_target(), {MACHINE: machine(), FEATURES: features}
        if self.target == _GENERIC:
            return tvm.target.Target({"kind": "llvm", "mtriple": triple}), {MACHINE: machine()}
        found = {"kind": "llvm", "mtriple": self.target} | ({"mcpu": self.mcpu} if self.mcpu else {})
        return tvm.target.Target(found), {MACHINE: machine(self.target)}

    def _linker(self) -> dict[str, Any]:
        """Return how the library is linked."""
        found = self.tools()[0].check(type(self).__name__)
        if self.target in (_NATIVE, _GENERIC):
            return {"cc": found}
        with hushed():
            from tvm.support import cc

        return {"fcompile": cc.cross_compiler(found)}
