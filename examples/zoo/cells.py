"""One cell of the matrix: a model, compiled in one way, compared with its source and timed."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import nnpipe
from nnpipe.core.artifact import SLOW_PARTS, Artifact
from nnpipe.core.errors import NNPipeError
from nnpipe.core.files import write_text
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.workflows.candidates.stages import get_file_suffix
from nnpipe.workflows.isolation.subprocess_worker import WorkerDied
from nnpipe.workflows.recipes import PlannedRecipe, plan_recipe
from nnpipe.workflows.user_inputs.inputs import import_inputs
from zoo.matrix_file import Row

AS_GIVEN = {"scale": 1.0}
REFERENCE = "onnx"
_ROUNDS, _SECONDS = 100, 2.0


def make(row: Row, folder: Path) -> Row:
    """Train a model, and write it with its samples to a folder, unless that has been done;
    return where all is.
    """
    if row.path is not None:
        return row
    if not (folder / "done").exists():
        module, function = row.make.rsplit(".", 1)
        network, test, calibration, score = getattr(
            importlib.import_module(f"zoo.{module}"), function
        )()
        path = import_inputs(network, test, folder, calibration=calibration).models[0][1]
        if row.format == "onnx":
            _write_onnx(path, folder / "model.onnx")
        for name, (inputs, labels) in (("test", test), ("calibration", calibration)):
            np.savez(folder / f"{name}.npz", labels=labels, **inputs)
        write_text(folder / "score.json", json.dumps(score, indent=1) + "\n")
        (folder / "done").touch()
    names = ("model.onnx", "model.pt2", "model.keras")
    path = next(folder / name for name in names if (folder / name).exists())
    return Row(
        path=path,
        test=folder / "test.npz",
        calibration=folder / "calibration.npz",
        preparation=AS_GIVEN,
    )


def _write_onnx(program: Path, path: Path) -> None:
    """Write a program as PyTorch's own exporter does, since most ONNX files come from it."""
    import torch

    torch.onnx.export(
        torch.export.load(program), f=str(path), dynamo=True, external_data=False, verbose=False
    )


def cell(row: Row, way: str, folder: Path, samples: int) -> dict[str, Any]:
    """Return the verdict of a model that was compiled in one way, the reason, and its time
    relative to ONNX Runtime.
    """
    row = make(row, folder)
    assert row.path is not None
    test, calibration = _samples(row.test), _samples(row.calibration)
    more: dict[str, Any] = {"calibration": calibration, "preparation": row.preparation}
    try:
        plan, made = _compiled(row.path, way, folder, test, more)
        found = nnpipe.verify(
            row.path,
            made,
            data=test,
            samples=samples,
            runtime=plan.runtime,
            preparation=row.preparation,
        )
    except WorkerDied as error:
        return {"verdict": "unclear", "reason": str(error)}
    except NNPipeError as error:
        # An error that is no subclass was raised by a framework, and only passed on.
        return {
            "verdict": "unclear" if type(error) is NNPipeError else "refused",
            "reason": str(error),
        }
    worst = max(found.agreement.tensors, key=lambda tensor: tensor.mean_relative)
    outcome = {
        "verdict": found.verdict,
        "reason": found.reason,
        "error": worst.mean_relative,
        "samples": samples,
        "same_class": found.agreement.same_class,
        "slow": [*made.performance_caveats(), *made.outcome.get(SLOW_PARTS, ())],
    }
    try:
        reference = (
            _compiled(row.path, REFERENCE, folder, test, more) if way != REFERENCE else (plan, made)
        )
        outcome["time"] = _relative(made, plan, *reversed(reference), test[0])
    except NNPipeError as error:
        outcome["untimed"] = str(error)
    return outcome


def _samples(path: Path | None) -> Any:
    assert path is not None
    with np.load(path, allow_pickle=False) as content:
        arrays = dict(content)
    return arrays, arrays.pop("labels")


def _compiled(
    source: Path, way: str, folder: Path, test: Any, more: Mapping[str, Any]
) -> tuple[PlannedRecipe, Artifact]:
    """Return a model compiled in one way, from an earlier cell where that made it, and how it is
    run.
    """
    plan = plan_recipe(way, import_inputs(source, test, folder / way).models)
    to = folder / way / f"compiled{get_file_suffix(plan.plan, plan.compilers) if plan.plan else ''}"
    if to.exists():
        return plan, Artifact.read(to)
    return plan, nnpipe.compile(source, way, to, **more)


def _relative(
    made: Artifact,
    plan: PlannedRecipe,
    reference: Artifact,
    base: PlannedRecipe,
    inputs: Mapping[str, Any],
) -> float:
    """Return the median time of one sample on one thread relative to the reference, both
    measured in turn.
    """
    assert plan.runtime is not None
    assert base.runtime is not None
    one = [array[:1] for array in inputs.values()]
    with plan.runtime.load(made) as ours, base.runtime.load(reference) as theirs:
        feeds = [(session, _fed(session, one)) for session in (ours, theirs)]
        times: list[list[float]] = [[], []]
        end = time.perf_counter() + _SECONDS
        while len(times[0]) < _ROUNDS and (len(times[0]) < 3 or time.perf_counter() < end):
            for kept, (session, batch) in zip(times, feeds, strict=True):
                session.infer(batch)  # the first after another model pays for the caches
                start = time.perf_counter()
                session.infer(batch)
                kept.append(time.perf_counter() - start)
    return float(np.median(times[0]) / np.median(times[1]))


def _fed(session: InferenceSession, arrays: list[np.ndarray]) -> Batch:
    return {
        spec.name: _shaped(array, spec)
        for spec, array in zip(session.io.inputs, arrays, strict=True)
    }


def _shaped(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    wanted = tuple(
        have if length is None else length
        for have, length in zip(array.shape, spec.shape, strict=True)
    )
    if array.shape != wanted:
        array = np.moveaxis(array, 1, -1)  # pictures with channels last
    return np.ascontiguousarray(array, spec.dtype)
