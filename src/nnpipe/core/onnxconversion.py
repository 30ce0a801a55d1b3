"""Judging how well a framework speaks ONNX."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.component import Component
from nnpipe.core.tensors import Batch


@dataclass(frozen=True)
class ConversionCase:
    """One model of a framework, with inputs to compare outputs on."""

    name: str
    model: Any
    inputs: Batch


class ONNXConversion(Component):
    """Exports and imports the models of one framework.

    Attributes
    ----------
    framework
        The framework's name in the support table.
    """

    framework: ClassVar[str] = ""

    @abstractmethod
    def models(self) -> Iterable[ConversionCase]:
        """Give the models to try."""
        raise NotImplementedError

    @abstractmethod
    def export_model(self, case: ConversionCase, path: Path, opset: int) -> None:
        """Write the model to ``path`` as ONNX; raise :class:`ConversionError` or the framework's own error."""
        raise NotImplementedError

    @abstractmethod
    def import_model(self, path: Path) -> Any:
        """Read an ONNX file as the framework's model; :class:`NotSupported` where it cannot."""
        raise NotImplementedError
