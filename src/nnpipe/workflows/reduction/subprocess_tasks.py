"""What ``nnpipe reduce`` does in processes of their own: recording values, and trying a model
with a chain.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.analysis.agreement import AgreementAccumulator, Tolerances
from nnpipe.core.artifact import Artifact, normalize_claims
from nnpipe.core.child_processes import die_with_parent, get_signal_name
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ConfigError, MissingDependency, NNPipeError, SpecMismatch
from nnpipe.core.messages import format_one_line
from nnpipe.core.quantization import adapt
from nnpipe.core.registry import create_component
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import TensorSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.workflows.candidates.stages import get_file_suffix
from nnpipe.workflows.recipes import PlannedRecipe, Recipe, plan_recipe
from nnpipe.workflows.reduction.onnx_parts import TensorValues
from nnpipe.workflows.reduction.reference import check_reference, record
from nnpipe.workflows.reduction.symptom import Symptom
from nnpipe.workflows.user_inputs.inputs import create_wrappers
from nnpipe.workflows.verification.compare_outputs import dequantize_values

TASKS = __name__
"""The module of :class:`Tries`, for the subprocess."""

STAGE, REPLY = "stage", "reply.json"
"""Files in the folder of a try: what was being done last, and what came of it."""

_PAUSE = 0.01  # seconds between looks at a child


class Tries:
    """Carries out each request in a fork of this process, which has imported the frameworks
    already.
    """

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply of a task.

        It is ``{"crash": SIGNAL}`` if its process ended before it was done, and ``{"hang": True}``
        if that did not end within the seconds of ``"within"``, where they are given.
        """
        if request["do"] == "import":
            for compiler in map(_create_compiler, request["compilers"]):
                compiler.check_installed()
            runtime = create_component(request["runtime"], Runtime)
            runtime.check_installed()
            runtime.import_framework()
            return {}
        parent = os.getpid()
        with warnings.catch_warnings():
            # of forks beside threads, which are checked to work
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            _run_child(parent, request)
        code = _exit_code(child, request.get("within"))
        if code is None:
            return {"hang": True}
        if code:
            return {"crash": get_signal_name(-code) if code < 0 else f"status {code}"}
        reply: dict[str, Any] = json.loads(Path(request["folder"], REPLY).read_text("utf-8"))
        return reply


def _exit_code(child: int, seconds: float | None) -> int | None:
    """Wait for a child; return ``None`` if it does not end in time, and kill it and all that it
    started.
    """
    end = math.inf if seconds is None else time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_PAUSE)
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(child).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _run_child(parent: int, request: Mapping[str, Any]) -> None:
    status = 120
    try:
        die_with_parent(parent)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        start = time.perf_counter()
        tasks = {"record": record, "reference": check_reference, "try": _try_part}
        found = tasks[request["do"]](request)
        found["seconds"] = time.perf_counter() - start
        Path(request["folder"], REPLY).write_text(json.dumps(found), "utf-8")
        status = 0
    except NNPipeError as error:
        told = {"failed": type(error).__name__, "message": str(error)}
        Path(request["folder"], REPLY).write_text(json.dumps(told), "utf-8")
        status = 0
    finally:
        os._exit(status)


def _create_compiler(described: Mapping[str, Any]) -> ModelCompiler:
    return create_component(described, ModelCompiler)


def parse_recipe(request: Mapping[str, Any]) -> Recipe:
    """Return the chain of a request."""
    compilers = tuple(map(_create_compiler, request["compilers"]))
    return Recipe("", compilers, create_component(request["runtime"], Runtime), request["export"])


def _try_part(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compile and run a part of the graph, and return the symptom, or ``None``."""
    folder = Path(request["folder"])

    def record_stage(stage: str) -> None:
        (folder / STAGE).write_text(stage, "utf-8")

    try:
        found = _find_symptom(request, folder, record_stage)
    except MissingDependency:
        raise
    except Exception as error:  # frameworks raise any class
        stage = (folder / STAGE).read_text("utf-8")
        cause = (
            error.__cause__
            if isinstance(error, NNPipeError) and error.__cause__ is not None
            else error
        )
        found = Symptom(
            "error",
            stage,
            type(cause).__name__,
            format_one_line(_remove_paths(request["model"], error), 1000),
        )
    return {"symptom": None if found is None else found.to_json()}


def _remove_paths(path: str, error: BaseException) -> str:
    return (
        str(error).replace(path, "the model").replace(str(Path(path).parent), "")
        or type(error).__name__
    )


def _find_symptom(request: Mapping[str, Any], folder: Path, now: Any) -> Symptom | None:
    values = TensorValues(Path(request["values"]), request["names"], request["samples"])
    batches = [
        {name: np.array(values.read(name, sample)) for name in request["inputs"]}
        for sample in range(values.samples)
    ]
    now("exporting")
    chosen = match_recipe(parse_recipe(request), Path(request["model"]), folder)
    artifact = export_source(chosen, folder)
    source = read_onnx(Path(request["model"])).io()
    names = _match_names(source.inputs, artifact.io.inputs)
    observed = [{names[name]: array for name, array in batch.items()} for batch in batches]
    claims: list[str] = []
    assert chosen.plan is not None
    assert chosen.runtime is not None
    for number, compiler in enumerate(chosen.compilers):
        now(f"compiling with {type(compiler).__name__}")
        to = (
            folder
            / f"step{number + 1}{get_file_suffix(chosen.plan, chosen.compilers[: number + 1])}"
        )
        artifact = compiler.compile(artifact, to, lambda: iter(observed))
        claims += compiler.claims()
    now("loading")
    with chosen.runtime.load(artifact) as session:
        now("running")
        inputs, outputs = (
            _match_names(getattr(source, side), getattr(session.io, side))
            for side in ("inputs", "outputs")
        )
        comparison, worst = AgreementAccumulator(), ""
        for sample, batch in enumerate(batches):
            renamed = {inputs[name]: array for name, array in batch.items()}
            taken = tuple(replace(spec, name=inputs[spec.name]) for spec in source.inputs)
            given = session.infer(adapt(renamed, taken, session.io.inputs))
            specs = {spec.name: spec for spec in session.io.outputs}
            theirs = {
                name: dequantize_values(given[own], specs[own]) for name, own in outputs.items()
            }
            ours = {name: values.read(name, sample) for name in request["outputs"]}
            now("comparing")
            comparison.add(ours, {name: theirs[name] for name in ours}, samples=1)
            bad = (
                name
                for name in ours
                if np.isfinite(ours[name]).all() and not np.isfinite(theirs[name]).all()
            )
            worst = worst or next(bad, "")
            now("running")
    if worst:
        return Symptom("not finite", "comparing", message=repr(worst))
    result = comparison.result()
    verdict, reason = result.verdict(
        Tolerances.from_json(request["tolerances"]), normalize_claims(claims)
    )
    if verdict != "different":
        return None
    return Symptom("difference", "comparing", message=reason, error=min(result.mean_relative, 1e30))


def _match_names(ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec]) -> dict[str, str]:
    """Return the session's names of a model's tensors; declared layers have names of their own,
    in the same order.
    """
    names, others = [spec.name for spec in ours], [spec.name for spec in theirs]
    if set(names) == set(others):
        return {name: name for name in names}
    if len(names) != len(others):
        raise SpecMismatch(
            f"the compiled model has the tensors {', '.join(others)}, not {', '.join(names)}"
        )
    return dict(zip(names, others, strict=True))


def match_recipe(way: str | Recipe, path: Path, folder: Path) -> PlannedRecipe:
    """Return how a chain takes an ONNX file: as it is, or as declared layers that become another
    format.

    Raises
    ------
    ConfigError
        If it does not take one.
    """
    try:
        return plan_recipe(way, create_wrappers(path, folder, None, {}, as_given=True))
    except SpecMismatch as error:
        raise ConfigError(str(error)) from None


def export_source(chosen: PlannedRecipe, folder: Path) -> Artifact:
    """Return the file that the first stage of a chain reads."""
    assert chosen.plan is not None
    if chosen.plan.export == chosen.wrapper.weights_format == "onnx":
        return Artifact.create(chosen.path, "onnx", read_onnx(chosen.path).io())
    with chosen.wrapper.open(chosen.path) as model:
        return model.export(folder / f"step0{get_file_suffix(chosen.plan, ())}", chosen.plan.export)
