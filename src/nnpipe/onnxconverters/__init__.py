"""ONNX conversions, which test how well frameworks write and read ONNX.

The classes are here, each imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.onnxconverters.jax import JAXONNXConversion as JAXONNXConversion
    from nnpipe.onnxconverters.keras import KerasONNXConversion as KerasONNXConversion
    from nnpipe.onnxconverters.pytorch import PyTorchONNXConversion as PyTorchONNXConversion
    from nnpipe.onnxconverters.sklearn import SklearnONNXConversion as SklearnONNXConversion

__getattr__ = lazy_getattr(
    __name__,
    {
        "jax": ("JAXONNXConversion",),
        "keras": ("KerasONNXConversion",),
        "pytorch": ("PyTorchONNXConversion",),
        "sklearn": ("SklearnONNXConversion",),
    },
)
