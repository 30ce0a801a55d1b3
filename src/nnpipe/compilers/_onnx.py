"""Steps that compilers of ONNX models share."""

from __future__ import annotations

from pathlib import Path

from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_joined import write_joined

_FATAL = 4  # log severity: what goes wrong is raised, so that nothing is left to print


def in_one_file(source: Path, folder: Path) -> Path:
    """Give a file that holds the model with its weights: the source itself, or one written into ``folder``.

    Raises
    ------
    ArtifactError
        If the source is damaged, or its weights lie where they may not.
    """
    file = read_onnx(source)
    file.check_external()
    if not file.external:
        return source
    whole = folder / "whole.onnx"
    write_joined(file, whole)
    return whole


def optimised(source: Path, destination: Path, level: str) -> None:
    """Let ONNX Runtime optimise a model and write what it made of it.

    Parameters
    ----------
    source, destination
        ONNX files.
    level
        A member of ``onnxruntime.GraphOptimizationLevel``.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(destination)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
