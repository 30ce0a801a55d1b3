"""Layers: declare a network once, with inferred shapes, and build it in PyTorch and in Keras.

::

    from nnpipe import layers

    x = layers.Input((28, 28, 1))
    y = layers.MaxPool2d(layers.Conv2d(x, 16, 5, activation="relu"), 2)
    graph = layers.network(x, layers.Dense(layers.Flatten(y), 10, activation="softmax"))
    assert graph.problems() == ()

``to_torch`` and ``to_keras`` build a network, and ``to_trainer`` prepares it for
training with the losses of its outputs.  ``from_description`` reads a network from
YAML, ``from_keras`` and ``read_keras`` from Keras's configurations and files,
``from_onnx`` from an ONNX file, ``from_torch`` from a PyTorch module.  These are
imported when they are first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_exports
from nnpipe.layers.catalogue import list_layer_classes
from nnpipe.layers.graph.graph import NetworkGraph, network
from nnpipe.layers.graph.shape_inference import LayerEntry, Ref, Use
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary.activation_layers import (
    ELU,
    Activation,
    LeakyReLU,
    PReLU,
    ReLU,
    Softmax,
)
from nnpipe.layers.vocabulary.attention import AdditiveAttention, Attention, MultiHeadAttention
from nnpipe.layers.vocabulary.convolutions import (
    Conv1d,
    Conv1dTranspose,
    Conv2d,
    Conv2dTranspose,
    Conv3d,
    Conv3dTranspose,
    DepthwiseConv1d,
    DepthwiseConv2d,
    SeparableConv1d,
    SeparableConv2d,
)
from nnpipe.layers.vocabulary.dense import Dense, Embedding
from nnpipe.layers.vocabulary.dropout import (
    AlphaDropout,
    Dropout,
    GaussianDropout,
    GaussianNoise,
    SpatialDropout1d,
    SpatialDropout2d,
    SpatialDropout3d,
)
from nnpipe.layers.vocabulary.input import Input, Unknown
from nnpipe.layers.vocabulary.layer import Layer, LayerCall, LayerOutput, LayerVariable
from nnpipe.layers.vocabulary.normalisation import (
    BatchNorm,
    GroupNorm,
    LayerNorm,
    RMSNorm,
    UnitNorm,
)
from nnpipe.layers.vocabulary.outputs import (
    OutputClassification,
    OutputClassificationBinary,
    OutputEmbedding,
    OutputRegression,
    OutputSegmentation,
    OutputTriplets,
)
from nnpipe.layers.vocabulary.pooling import (
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    GlobalAvgPool1d,
    GlobalAvgPool2d,
    GlobalAvgPool3d,
    GlobalMaxPool1d,
    GlobalMaxPool2d,
    GlobalMaxPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)
from nnpipe.layers.vocabulary.recurrent import GRU, LSTM, SimpleRNN
from nnpipe.layers.vocabulary.reshaping import (
    ActivityRegularization,
    Add,
    Average,
    Concatenate,
    Dot,
    Flatten,
    Identity,
    Maximum,
    Minimum,
    Multiply,
    Permute,
    RepeatVector,
    Rescaling,
    Reshape,
    Subtract,
)
from nnpipe.layers.vocabulary.resizing import (
    Crop1d,
    Crop2d,
    Crop3d,
    UpSample1d,
    UpSample2d,
    UpSample3d,
    ZeroPad1d,
    ZeroPad2d,
    ZeroPad3d,
)
from nnpipe.layers.vocabulary.wrappers import Bidirectional, TimeDistributed

if TYPE_CHECKING:
    from nnpipe.layers.description.from_description import from_description as from_description
    from nnpipe.layers.description.from_description import to_description as to_description
    from nnpipe.layers.graph.loss_outputs import to_inference as to_inference
    from nnpipe.layers.graph.shape_inference import infer as infer
    from nnpipe.layers.graph.transfer import transfer as transfer
    from nnpipe.layers.graph.weights import initial_weights as initial_weights
    from nnpipe.layers.imports.from_torch import from_torch as from_torch
    from nnpipe.layers.imports.network_files import from_onnx as from_onnx
    from nnpipe.layers.imports.network_files import read_network as read_network
    from nnpipe.layers.keras.from_config import from_keras as from_keras
    from nnpipe.layers.keras.open_file import open_keras as open_keras
    from nnpipe.layers.keras.read_file import read_keras as read_keras
    from nnpipe.layers.keras.to_config import network_config as network_config
    from nnpipe.layers.keras.to_config import write_keras as write_keras
    from nnpipe.layers.keras.to_keras import keras_layer as keras_layer
    from nnpipe.layers.keras.to_keras import to_keras as to_keras
    from nnpipe.layers.torch.network_module import torch_layer as torch_layer
    from nnpipe.layers.torch.to_torch import to_torch as to_torch
    from nnpipe.layers.torch.to_torch import torch_weights as torch_weights
    from nnpipe.layers.torch.to_trainer import compile_arguments as compile_arguments
    from nnpipe.layers.torch.to_trainer import to_trainer as to_trainer

__getattr__, _LAZY = lazy_exports(
    __name__,
    {
        "description.from_description": ("from_description", "to_description"),
        "graph.loss_outputs": ("to_inference",),
        "graph.shape_inference": ("infer",),
        "graph.transfer": ("transfer",),
        "graph.weights": ("initial_weights",),
        "imports.from_torch": ("from_torch",),
        "imports.network_files": ("from_onnx", "read_network"),
        "keras.from_config": ("from_keras",),
        "keras.open_file": ("open_keras",),
        "keras.read_file": ("read_keras",),
        "keras.to_config": ("network_config", "write_keras"),
        "keras.to_keras": ("keras_layer", "to_keras"),
        "torch.network_module": ("torch_layer",),
        "torch.to_torch": ("to_torch", "torch_weights"),
        "torch.to_trainer": ("compile_arguments", "to_trainer"),
    },
)

__all__ = [
    "ELU",
    "GRU",
    "LSTM",
    "Activation",
    "ActivityRegularization",
    "Add",
    "AdditiveAttention",
    "AlphaDropout",
    "Attention",
    "Average",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm",
    "Bidirectional",
    "Concatenate",
    "Conv1d",
    "Conv1dTranspose",
    "Conv2d",
    "Conv2dTranspose",
    "Conv3d",
    "Conv3dTranspose",
    "Crop1d",
    "Crop2d",
    "Crop3d",
    "Dense",
    "DepthwiseConv1d",
    "DepthwiseConv2d",
    "Dot",
    "Dropout",
    "Embedding",
    "Flatten",
    "GaussianDropout",
    "GaussianNoise",
    "GlobalAvgPool1d",
    "GlobalAvgPool2d",
    "GlobalAvgPool3d",
    "GlobalMaxPool1d",
    "GlobalMaxPool2d",
    "GlobalMaxPool3d",
    "GroupNorm",
    "Identity",
    "Input",
    "Layer",
    "LayerCall",
    "LayerEntry",
    "LayerNorm",
    "LayerOutput",
    "LayerVariable",
    "LeakyReLU",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Maximum",
    "Minimum",
    "MultiHeadAttention",
    "Multiply",
    "NetworkGraph",
    "NetworkProblem",
    "OutputClassification",
    "OutputClassificationBinary",
    "OutputEmbedding",
    "OutputRegression",
    "OutputSegmentation",
    "OutputTriplets",
    "PReLU",
    "Permute",
    "RMSNorm",
    "ReLU",
    "Ref",
    "RepeatVector",
    "Rescaling",
    "Reshape",
    "SeparableConv1d",
    "SeparableConv2d",
    "SimpleRNN",
    "Softmax",
    "SpatialDropout1d",
    "SpatialDropout2d",
    "SpatialDropout3d",
    "Submodel",
    "Subtract",
    "TimeDistributed",
    "UnitNorm",
    "Unknown",
    "UpSample1d",
    "UpSample2d",
    "UpSample3d",
    "Use",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
    "list_layer_classes",
    "network",
]
__all__ += _LAZY
