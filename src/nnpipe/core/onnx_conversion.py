"""The interface of ONNX conversions, by which a framework's support of ONNX is tested."""

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
    """One model of a framework, with inputs on which to compare outputs.

    Parameters
    ----------
    name
        Unique among the framework's models; letters, digits and hyphens.
    model
        The framework's model object.
    inputs
        The input arrays by name, in the order of the model's parameters.
    """

    name: str
    model: Any
    inputs: Batch


class ONNXConversion(Component):
    """Exports and imports the models of one framework.

    :meth:`models` makes the same models at every call.  An error that an author's
    methods raise becomes a row of the support table.

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
        """Return the models to try; each is made only when it is needed."""

    @abstractmethod
    def run_model(self, model: Any, inputs: Batch) -> list[np.ndarray]:
        """Run a model of :meth:`models` or :meth:`import_model`, and return its outputs in
        order.
        """

    @abstractmethod
    def export_model(self, case: ConversionCase, path: Path, opset: int) -> None:
        """Write the model to ``path`` as ONNX; on failure raise :class:`ConversionError` or the
        framework's error.
        """

    @abstractmethod
    def import_model(self, path: Path) -> Any:
        """Read an ONNX file as a model of the framework; raise :class:`NotSupported` if the
        framework cannot.
        """
