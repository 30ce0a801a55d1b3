"""Converting one model of a framework to ONNX and back, with a check of each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nnpipe.analysis.agreement import Tolerances, compare
from nnpipe.core.errors import ConversionError, NNPipeError, NotSupported
from nnpipe.core.messages import format_one_line
from nnpipe.core.onnx_conversion import ConversionCase, ONNXConversion
from nnpipe.core.registry import find

T = TypeVar("T")

TASKS = __name__
"""The module of the functions that subprocesses call."""

STEPS = ("made", "exported", "valid", "run", "imported")
"""The steps in order; a row names the last successful step, or the one that failed."""


@dataclass(frozen=True)
class RoundtripRow:
    """The result of one model in one operator set.

    Parameters
    ----------
    conversion, framework, model
        The class that converts, its framework, and the model.
    opset
        The requested operator set.
    written
        The operator set that the file needs; 0 if there is no file.
    failed
        The step that failed: ``made``, ``exported``, ``valid`` or ``run``, or ``crashed``; empty if
        none did.
    cause
        Why it failed.
    verdict, error
        Whether the outputs of ONNX Runtime agree with the framework's (``same``, ``close``,
        ``different``; empty if it was not run), and the largest relative error.
    imported, import_cause
        The verdict on the model imported from the file, ``none`` if there is no importer, or
        ``failed``; and the cause.
    """

    conversion: str
    framework: str
    model: str
    opset: int
    written: int = 0
    failed: str = ""
    cause: str = ""
    verdict: str = ""
    error: float = 0.0
    imported: str = ""
    import_cause: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON can hold it."""
        return asdict(self) | {"error": self.error if np.isfinite(self.error) else -1.0}


class _StepFailed(Exception):
    """A step failed; the arguments are the step and the cause."""


def list_model_names(request: Mapping[str, Any]) -> list[str]:
    """Return the names of a conversion's models."""
    conversion = find(request["conversion"], ONNXConversion)()
    return [case.name for case in conversion.models()]


def convert(request: Mapping[str, Any]) -> dict[str, Any]:
    """Export, check, run and import one model in this process, and return the row."""
    conversion = find(request["conversion"], ONNXConversion)()
    path, opset = Path(request["path"]), int(request["opset"])
    told: dict[str, Any] = {
        "conversion": request["conversion"],
        "framework": conversion.framework,
        "model": request["model"],
        "opset": opset,
    }
    try:
        case, expected = _run_step("made", lambda: _build_case(conversion, request["model"]))
        _run_step("exported", lambda: conversion.export_model(case, path, opset))
        told["written"] = _run_step("valid", lambda: _check_file(path))
        found = _run_step("run", lambda: _run(path, case))
        told |= dict(zip(("verdict", "error"), _compare_outputs(expected, found), strict=True))
    except _StepFailed as failure:
        step, cause = failure.args
        return RoundtripRow(**told, failed=step, cause=cause).to_json()
    told |= _import_file(conversion, path, case, expected)
    return RoundtripRow(**told).to_json()


def _run_step(step: str, action: Callable[[], T]) -> T:
    """Return the result of a step; any error of a framework becomes this step's failure."""
    try:
        return action()
    except Exception as error:
        raise _StepFailed(step, _format_cause(error)) from None


def _format_cause(error: Exception) -> str:
    text = format_one_line(error, 500)
    return (
        text
        if isinstance(error, NNPipeError)
        else f"{type(error).__name__}: {text}"
        if text
        else type(error).__name__
    )


def _build_case(
    conversion: ONNXConversion, name: str
) -> tuple[ConversionCase, list[np.ndarray[Any, Any]]]:
    for case in conversion.models():
        if case.name == name:
            return case, conversion.run_model(case.model, case.inputs)
    raise ConversionError(f"{type(conversion).__name__} has no model {name!r}")


def _check_file(path: Path) -> int:
    """Check a file with onnx, and return the operator set that it needs."""
    import onnx

    model = onnx.load_model(str(path))
    onnx.checker.check_model(model, full_check=True)
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    return max(versions, default=0)


def _run(path: Path, case: ConversionCase) -> list[np.ndarray[Any, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    if set(names) != set(case.inputs):
        raise ConversionError(
            f"the file takes {', '.join(names)}, the model {', '.join(case.inputs)}"
        )
    return [np.asarray(array) for array in session.run(None, dict(case.inputs))]


def _compare_outputs(
    expected: Sequence[np.ndarray[Any, Any]], found: Sequence[np.ndarray[Any, Any]]
) -> tuple[str, float]:
    if len(expected) != len(found):
        raise _StepFailed("run", f"the model gives {len(expected)} outputs, the file {len(found)}")
    try:
        agreement = compare([_index_outputs(expected)], [_index_outputs(found)])
    except NNPipeError as error:
        raise _StepFailed("run", str(error)) from None
    return agreement.verdict(Tolerances())[0], agreement.max_relative


def _index_outputs(arrays: Sequence[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    return {f"output {number}": np.asarray(array) for number, array in enumerate(arrays)}


def _import_file(
    conversion: ONNXConversion,
    path: Path,
    case: ConversionCase,
    expected: Sequence[np.ndarray[Any, Any]],
) -> dict[str, str]:
    try:
        model = conversion.import_model(path)
    except NotSupported as error:
        return {"imported": "none", "import_cause": _format_cause(error)}
    except Exception as error:
        return {"imported": "failed", "import_cause": _format_cause(error)}
    try:
        verdict, error_found = _compare_outputs(expected, conversion.run_model(model, case.inputs))
    except _StepFailed as failure:
        return {"imported": "failed", "import_cause": failure.args[1]}
    except Exception as error:
        return {"imported": "failed", "import_cause": _format_cause(error)}
    return {"imported": verdict, "import_cause": f"largest relative error {error_found:.1e}"}
