"""Judging how well a framework speaks ONNX."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.component import Component
from nnpipe.core.tensors import Batch

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class ConversionCase:
    """One model of a framework, with inputs to compare outputs on.

    Parameters
    ----------
    name
        Unique among the framework's models; letters, digits and hyphens.
    model
        In the framework's own form.
    inputs
        By name, in the order in which the model takes them.
    """

    name: str
    model: Any
    inputs: Batch


class ONNXConversion(Component):
    """Exports and imports the models of one framework.

    Models are made in :meth:`models`, the same ones every time.  Whatever an
    author's methods raise becomes a row of the support table.

    Attributes
    ----------
    framework
        The framework's name in the support table.

    Examples
    --------
    >>> from nnpipe import components
    >>> "PyTorch" in {cls.framework for cls in components(ONNXConversion)}
    True
    """

    framework: ClassVar[str] = ""

    @abstractmethod
    def models(self) -> Iterable[ConversionCase]:
        """Return the models to try; each is made only when its turn comes."""

    @abstractmethod
    def run_model(self, model: Any, inputs: Batch) -> list[np.ndarray]:
        """Run one of the models, or one that :meth:`import_model` gave, and give its outputs in order."""

    @abstractmethod
    def export_model(self, case: ConversionCase, path: Path, opset: int) -> None:
        """Write the model to ``path`` as ONNX; raise :class:`ConversionError` or the framework's own error."""

    @abstractmethod
    def import_model(self, path: Path) -> Any:
        """Read an ONNX file as the framework's model; :class:`NotSupported` where it cannot."""
