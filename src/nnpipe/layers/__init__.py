"""Layers: a network declared once, without counting shapes, and built in PyTorch and in Keras.

::

    from nnpipe import layers as nn

    x = nn.Input((28, 28, 1))
    y = nn.MaxPool2d(nn.Conv2d(x, 16, 5, activation="relu"), 2)
    graph = nn.network(x, nn.Dense(nn.Flatten(y), 10, activation="softmax"))
    assert graph.problems() == ()

``to_torch`` and ``to_keras`` build it, ``to_trainer`` trains it by the losses
of its outputs, ``from_description`` reads it from YAML, ``from_keras`` and
``reading`` what Keras wrote, ``from_onnx`` an ONNX file, ``from_torch`` a module.
"""

from nnpipe.layers.activating import ELU, Activation, LeakyReLU, PReLU, ReLU, Softmax
from nnpipe.layers.attention import AdditiveAttention, Attention, MultiHeadAttention
from nnpipe.layers.convolutions import (
    Conv1d,
    Conv1dTranspose,
    Conv2d,
    Conv2dTranspose,
    Conv3d,
    Conv3dTranspose,
)
from nnpipe.layers.dense import Dense, Embedding
from nnpipe.layers.depthwise import DepthwiseConv1d, DepthwiseConv2d, SeparableConv1d, SeparableConv2d
from nnpipe.layers.dropouts import (
    AlphaDropout,
    Dropout,
    GaussianDropout,
    GaussianNoise,
    SpatialDropout1d,
    SpatialDropout2d,
    SpatialDropout3d,
)
from nnpipe.layers.graph import Entry, Graph, Ref, Use, network
from nnpipe.layers.layer import Call, Layer, Output, Variable, vocabulary
from nnpipe.layers.merging import Add, Average, Concatenate, Dot, Maximum, Minimum, Multiply, Subtract
from nnpipe.layers.normalisation import BatchNorm, GroupNorm, LayerNorm, RMSNorm, UnitNorm
from nnpipe.layers.outputs import (
    OutputClassification,
    OutputClassificationBinary,
    OutputEmbedding,
    OutputRegression,
    OutputSegmentation,
    OutputTriplets,
)
from nnpipe.layers.pooling import (
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
from nnpipe.layers.problems import Problem
from nnpipe.layers.recurrent import GRU, LSTM, SimpleRNN
from nnpipe.layers.reshaping import ActivityRegularization, Flatten, Identity, Permute, RepeatVector, Rescaling, Reshape
from nnpipe.layers.resizing import (
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
from nnpipe.layers.submodels import Input, Submodel, Unknown
from nnpipe.layers.wrappers import Bidirectional, TimeDistributed

__all__ = [
    "ELU", "GRU", "LSTM", "Activation", "ActivityRegularization", "Add", "AdditiveAttention", "AlphaDropout",
    "Attention", "Average", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm", "Bidirectional", "Call", "Concatenate",
    "Conv1d", "Conv1dTranspose", "Conv2d", "Conv2dTranspose", "Conv3d", "Conv3dTranspose", "Crop1d", "Crop2d", "Crop3d",
    "Dense", "DepthwiseConv1d", "DepthwiseConv2d", "Dot", "Dropout", "Embedding", "Entry", "Flatten", "GaussianDropout",
    "GaussianNoise", "GlobalAvgPool1d", "GlobalAvgPool2d", "GlobalAvgPool3d", "GlobalMaxPool1d", "GlobalMaxPool2d",
    "GlobalMaxPool3d", "Graph", "GroupNorm", "Identity", "Input", "Layer", "LayerNorm", "LeakyReLU", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "Maximum", "Minimum", "MultiHeadAttention", "Multiply", "Output", "OutputClassification",
    "OutputClassificationBinary", "OutputEmbedding", "OutputRegression", "OutputSegmentation", "OutputTriplets",
    "PReLU", "Permute", "Problem", "RMSNorm", "ReLU", "Ref", "RepeatVector", "Rescaling", "Reshape", "SeparableConv1d",
    "SeparableConv2d", "SimpleRNN", "Softmax", "SpatialDropout1d", "SpatialDropout2d", "SpatialDropout3d", "Submodel",
    "Subtract", "TimeDistributed", "UnitNorm", "Unknown", "UpSample1d", "UpSample2d", "UpSample3d", "Use", "Variable",
    "ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "network", "vocabulary",
]  # fmt: skip
