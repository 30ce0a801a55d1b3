"""Model wrappers: models with the frameworks that train or run them.

The classes are here, each imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.modelwrappers.classification.mobilenet import (
        PyTorchMobileNetV2 as PyTorchMobileNetV2,
    )
    from nnpipe.modelwrappers.classification.mobilenet import (
        PyTorchPetDatasetMobileNetV2 as PyTorchPetDatasetMobileNetV2,
    )
    from nnpipe.modelwrappers.classification.mobilenet import (
        TensorFlowMobileNetV2 as TensorFlowMobileNetV2,
    )
    from nnpipe.modelwrappers.classification.mobilenet import (
        TensorFlowPetDatasetMobileNetV2 as TensorFlowPetDatasetMobileNetV2,
    )
    from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import (
        PyTorchCIFARResNet as PyTorchCIFARResNet,
    )
    from nnpipe.modelwrappers.classification.small_cnn import PyTorchCIFAR10CNN as PyTorchCIFAR10CNN
    from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN as PyTorchDigitsCNN
    from nnpipe.modelwrappers.classification.small_cnn import (
        PyTorchFashionMNISTCNN as PyTorchFashionMNISTCNN,
    )
    from nnpipe.modelwrappers.classification.small_cnn import (
        PyTorchImageFolderCNN as PyTorchImageFolderCNN,
    )
    from nnpipe.modelwrappers.classification.small_cnn import PyTorchMNISTCNN as PyTorchMNISTCNN
    from nnpipe.modelwrappers.classification.small_cnn import (
        PyTorchWornDigitsCNN as PyTorchWornDigitsCNN,
    )
    from nnpipe.modelwrappers.classification.small_cnn import (
        TensorFlowCIFAR10CNN as TensorFlowCIFAR10CNN,
    )
    from nnpipe.modelwrappers.classification.small_cnn import (
        TensorFlowDigitsCNN as TensorFlowDigitsCNN,
    )
    from nnpipe.modelwrappers.classification.small_cnn import (
        TensorFlowFashionMNISTCNN as TensorFlowFashionMNISTCNN,
    )
    from nnpipe.modelwrappers.classification.small_cnn import (
        TensorFlowImageFolderCNN as TensorFlowImageFolderCNN,
    )
    from nnpipe.modelwrappers.classification.small_cnn import (
        TensorFlowMNISTCNN as TensorFlowMNISTCNN,
    )
    from nnpipe.modelwrappers.classification.small_cnn import (
        TensorFlowWornDigitsCNN as TensorFlowWornDigitsCNN,
    )
    from nnpipe.modelwrappers.files.declared import DeclaredModel as DeclaredModel
    from nnpipe.modelwrappers.files.keras import KerasModel as KerasModel
    from nnpipe.modelwrappers.files.mimic import Mimic as Mimic
    from nnpipe.modelwrappers.files.onnx import ONNXModel as ONNXModel
    from nnpipe.modelwrappers.files.sklearn import SklearnModel as SklearnModel
    from nnpipe.modelwrappers.files.text_generator import (
        ONNXRuntimeGenAIModel as ONNXRuntimeGenAIModel,
    )
    from nnpipe.modelwrappers.files.text_generator import TextGenerator as TextGenerator
    from nnpipe.modelwrappers.files.text_generator import (
        TransformersGenerator as TransformersGenerator,
    )
    from nnpipe.modelwrappers.files.tflite import TFLiteModel as TFLiteModel
    from nnpipe.modelwrappers.files.torch_export import TorchExportModel as TorchExportModel
    from nnpipe.modelwrappers.files.torch_hub import TorchHubModel as TorchHubModel
    from nnpipe.modelwrappers.files.transformers import TransformersModel as TransformersModel
    from nnpipe.modelwrappers.files.yolov3 import YOLOv3 as YOLOv3
    from nnpipe.modelwrappers.tabular.pytorch_tabular import (
        PyTorchTabularNetwork as PyTorchTabularNetwork,
    )
    from nnpipe.modelwrappers.tabular.sklearn import SklearnTabularModel as SklearnTabularModel
    from nnpipe.modelwrappers.tabular.xgboost import XGBoostTabularModel as XGBoostTabularModel

__getattr__ = lazy_getattr(
    __name__,
    {
        "classification.mobilenet": (
            "PyTorchMobileNetV2",
            "PyTorchPetDatasetMobileNetV2",
            "TensorFlowMobileNetV2",
            "TensorFlowPetDatasetMobileNetV2",
        ),
        "classification.pytorch_cifar_resnet": ("PyTorchCIFARResNet",),
        "classification.small_cnn": (
            "PyTorchCIFAR10CNN",
            "PyTorchDigitsCNN",
            "PyTorchFashionMNISTCNN",
            "PyTorchImageFolderCNN",
            "PyTorchMNISTCNN",
            "PyTorchWornDigitsCNN",
            "TensorFlowCIFAR10CNN",
            "TensorFlowDigitsCNN",
            "TensorFlowFashionMNISTCNN",
            "TensorFlowImageFolderCNN",
            "TensorFlowMNISTCNN",
            "TensorFlowWornDigitsCNN",
        ),
        "files.declared": ("DeclaredModel",),
        "files.keras": ("KerasModel",),
        "files.mimic": ("Mimic",),
        "files.onnx": ("ONNXModel",),
        "files.sklearn": ("SklearnModel",),
        "files.text_generator": ("ONNXRuntimeGenAIModel", "TextGenerator", "TransformersGenerator"),
        "files.tflite": ("TFLiteModel",),
        "files.torch_export": ("TorchExportModel",),
        "files.torch_hub": ("TorchHubModel",),
        "files.transformers": ("TransformersModel",),
        "files.yolov3": ("YOLOv3",),
        "tabular.pytorch_tabular": ("PyTorchTabularNetwork",),
        "tabular.sklearn": ("SklearnTabularModel",),
        "tabular.xgboost": ("XGBoostTabularModel",),
    },
)
