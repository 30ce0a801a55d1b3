"""Running test vectors through every way from a model file to outputs, each case in a
subprocess.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.arguments import list_arguments
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.errors import NNPipeError
from nnpipe.core.files import compute_sha256
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.registry import components, create_component
from nnpipe.core.runtime import Runtime
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.tflite import read_tflite
from nnpipe.workflows.candidates.model_files import read_artifact
from nnpipe.workflows.isolation.subprocess_worker import UnexpectedError, Worker, WorkerDied
from nnpipe.workflows.recipes import Recipe
from nnpipe.workflows.verification.test_vectors import Case, Shape, describe_difference, read_side

PASSED, WRONG, REFUSED, FAILED, CRASHED = "passed", "wrong", "refused", "failed", "crashed"
STATUSES = (PASSED, WRONG, REFUSED, FAILED, CRASHED)
"""The statuses of a case; ``wrong`` is the most serious: it computed, but the outputs are wrong."""

_MAIN = {"onnx": "ONNXRuntime", "tflite": "LiteRTRuntime"}
# These change the model on purpose.
_LOSSY = re.compile(r"float16|fp16|bf16|int|dynamic|prun|cluster|channel")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBERS = re.compile(r"(?<![A-Za-z_])-?\d+(?:\.\d+)?(?:e-?\d+)?")
_PATH = re.compile(r"\S*/\S+?(?=[:\s]|$)")


@dataclass(frozen=True)
class Result:
    """The result of one case for one way."""

    case: Case
    status: str
    reason: str = ""

    @property
    def told(self) -> str:
        """The reason, without the path of the case."""
        return self.reason.replace(str(self.case.model), self.case.name)

    def to_json(self) -> dict[str, str]:
        """Return the status, and the reason if there is one, as JSON can hold it."""
        return (
            {"status": self.status, "reason": self.told} if self.reason else {"status": self.status}
        )

    @property
    def cause(self) -> str:
        """The reason without details of this case, so that similar failures can be counted."""
        text = self.told.replace(self.case.name, "…").lstrip("…: ")
        return _NUMBERS.sub("N", _QUOTED.sub("'…'", _PATH.sub("…", text)))[:160]


def list_recipes(format: str, further: Sequence[type[Runtime]] = ()) -> list[Recipe]:
    """Return every installed way from a format to outputs that should preserve the numbers.

    Parameters
    ----------
    format
        ``onnx`` or ``tflite``.
    further
        Runtimes to use besides the registered ones.
    """
    runtimes = [cls for cls in (*components(Runtime), *further) if _is_usable(cls)]
    found = []
    for cls in runtimes:
        if format in cls.accepts:
            found.append(_build_recipe((), cls()))
            if any(declared.name == "reference_kernels" for declared in list_arguments(cls)):
                found.append(_build_recipe((), cls.from_json({"reference_kernels": True})))
    for compiler in components(ModelCompiler):
        if format not in compiler.accepts or not _is_usable(compiler):
            continue
        made = compiler()
        if made.needs_calibration() or _LOSSY.search(made.variant()):
            continue
        takers = [cls for cls in runtimes if compiler.produces in cls.accepts]
        main = [cls for cls in takers if cls.__name__ == _MAIN.get(compiler.produces, cls.__name__)]
        found += [_build_recipe((made,), cls()) for cls in main[:1]]
    return found


def _build_recipe(compilers: tuple[ModelCompiler, ...], runtime: Runtime) -> Recipe:
    title = " → ".join(type(part).__name__ for part in (*compilers, runtime))
    reference = getattr(runtime, "reference_kernels", False)
    return Recipe(title + (", reference kernels" if reference else ""), compilers, runtime)


def _is_usable(cls: type[Component]) -> bool:
    return not cls.missing() and not any(declared.required for declared in list_arguments(cls))


def run_case(request: Mapping[str, Any]) -> list[str]:
    """Run one case in this process, and return its status and reason."""
    case = Case.from_json(request["case"])
    compilers = [create_component(item, ModelCompiler) for item in request["compilers"]]
    runtime = create_component(request["runtime"], Runtime)
    try:
        with create_temporary_folder() as folder:
            return _run_case(case, compilers, runtime, folder, request["rtol"], request["atol"])
    except NNPipeError as error:
        return [REFUSED, " ".join(str(error).split())]


def _run_case(
    case: Case,
    compilers: Sequence[ModelCompiler],
    runtime: Runtime,
    folder: Path,
    rtol: float,
    atol: float,
) -> list[str]:
    artifact = _read_case_artifact(case, runtime, bool(compilers))
    inputs, outputs = _read_shapes(case)
    for number, compiler in enumerate(compilers):
        artifact = compiler.compile(artifact, folder / f"step{number}{compiler.suffix}")
    with runtime.load(artifact) as session:
        for given, expected in case.sets:
            found = session.infer(read_side(given, tuple(inputs), inputs))
            for name, array in read_side(expected, tuple(outputs), outputs).items():
                told = describe_difference(array, np.asarray(found[name]), rtol, atol)
                if told:
                    return [WRONG, f"output {name!r} {told}"]
    return [PASSED, ""]


def _read_case_artifact(case: Case, runtime: Runtime, compiled: bool) -> Artifact:
    if not compiled:
        return read_artifact(case.model, case.format, runtime)
    io = read_onnx(case.model).io() if case.format == "onnx" else read_tflite(case.model).io
    return Artifact(case.model, case.format, io, compute_sha256(case.model))


def _read_shapes(case: Case) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Return shapes by name in the file's order, in which vectors are bound."""
    if case.format == "onnx":
        file = read_onnx(case.model)
        return dict.fromkeys(file.inputs, ()), dict.fromkeys(
            file.outputs, ()
        )  # the files of tensors contain their shapes
    io = read_tflite(case.model).io
    return {spec.name: spec.shape for spec in io.inputs}, {
        spec.name: spec.shape for spec in io.outputs
    }


def run_cases(
    cases: Sequence[Case], way: Recipe, rtol: float, atol: float, seconds: float, jobs: int
) -> Iterator[Result]:
    """Run cases in parallel subprocesses, and yield results in the order in which they finish."""
    waiting: queue.SimpleQueue[Case | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    stopped = threading.Event()

    def run_waiting() -> None:
        try:
            with Worker(f"{__name__}:run_case") as worker:
                while not stopped.is_set():
                    case = waiting.get_nowait()
                    assert case is not None
                    done.put(_run_in_worker(worker, case, way, rtol, atol, seconds))
        except queue.Empty:
            pass
        except BaseException as error:
            done.put(error)

    with ExitStack() as stack:
        stack.callback(stopped.set)
        for _ in range(min(jobs, len(cases))):
            threading.Thread(target=run_waiting, daemon=True).start()
        for _ in cases:
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield result


def _run_in_worker(
    worker: Worker, case: Case, way: Recipe, rtol: float, atol: float, seconds: float
) -> Result:
    assert way.runtime is not None
    request = {
        "case": case.to_json(),
        "compilers": [compiler.describe() for compiler in way.compilers],
        "runtime": way.runtime.describe(),
        "rtol": rtol,
        "atol": atol,
    }
    try:
        status, reason = worker.call(request, seconds)
    except WorkerDied as error:
        return Result(case, CRASHED, str(error))
    except UnexpectedError as error:
        return Result(case, FAILED, error.brief)
    except NNPipeError as error:
        return Result(case, REFUSED, str(error))
    return Result(case, status, reason)


def count_results(found: Iterable[Result]) -> dict[str, int]:
    """Return the number of results of each status, including those with none."""
    counts = dict.fromkeys(STATUSES, 0)
    for result in found:
        counts[result.status] += 1
    return counts


def group_by_cause(found: Iterable[Result]) -> list[tuple[str, str, list[Result]]]:
    """Return results that did not pass, grouped by status and cause, the most frequent first."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in found:
        if result.status != PASSED:
            groups.setdefault((result.status, result.cause), []).append(result)
    ordered = sorted(
        groups.items(), key=lambda item: (STATUSES.index(item[0][0]), -len(item[1]), item[0][1])
    )
    return [(status, cause, members) for (status, cause), members in ordered]
