"""Imports torchvision also beside a build of PyTorch for CPUs, where PyPI has it only for CUDA.

Its compiled operators cannot be loaded there, and it fails at once for two that it describes to
PyTorch whether they exist or not.  Transforms and classifiers call none of them, so it is enough
that PyTorch knows their signatures.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any

import pytest

_DESCRIBED = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def torchvision() -> ModuleType:
    """Return torchvision, or skip the test where it is not installed."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    try:
        return pytest.importorskip("torchvision", reason="torchvision is not installed")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    _signatures()
    return pytest.importorskip("torchvision", reason="torchvision is not installed")


@cache
def _signatures() -> Any:
    """Declare the operators, for as long as what is returned lives."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for signature in _DESCRIBED:
        library.define(signature)
    return library
