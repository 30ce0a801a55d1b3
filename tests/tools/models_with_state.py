"""Models that keep something from one run to the next, for tests of what starts each sample
afresh.
"""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.tflite import read_tflite
from nnpipe.testing.model_files import _pack_model

IO = IOSpec((TensorSpec("x", (1, 4), "float32"),), (TensorSpec("add", (1, 4), "float32"),))
"""Of :func:`write_program`."""

# y = h = h / 2 + x, where h is a variable of TensorFlow that begins with ones; deflated, in base
# 85.
_RESOURCES = (
    "c-n<kJ!n%=6h8TBnx-*^HpVDLia0n(O{<7Vp_W>)(m&cz9K`fVUL}|xNnc6@sR|uMJ2-"
    "Zb;^62|M8rYFp@Wlj5Xs;Wq&PWrD4O>9o%>E+Z=&LbulL?_zkANP-"
    "#IVsBBIpg(K9jXrY=fQjG`2VEl7T>2{xidU<3H*A*ukY0U{svSb{}#tY+I`;hqH!0`q2RAzQeW&X{vXIcK@tonN*ckTu)xYJOhftZwI+Uf`6RB"
    "@v@t)}6r6#Q4nc)bz;2czSF&HF#+-HApFNLK-KZEu>53f|bpi=>@YipDh;D+c>}urYcYYHu-"
    "J92jDHR3OofY@iks^@|p#r<cuIiltw|Zolw?*ven<mBkXGGSFwN0u8tIM2k-"
    "gheSUR|sIRB5w<k&TMq)*k?HrrjvHsJxzi8(~4+eB>;`}pE0lorNAhhf7C7*#E*lGaRXl!(3s(YwdfHszy=~4M4Jr4KVo^99b|44(<qd0MgB>$"
    "6QJHF@i0Ha0n^-"
    "3*y#Kj**F)4k*XF=Fm!<f>PXvQdIjhi`Bd$!_vsBy6Geu@1anlL3Me%c($fdu|+p{Lq3zkPClN$x~NOODO_M6HqEtG&a~FydB}YaNl8tkW})o&"
    "zsL!@Q9#@QqgB8f@E`-*MG|QBAuWwxeBCixrTW_e=KQwe`xrWV_n7M<pNjTg6*E!trW7xwg+gROfR)#&#XPU-"
    "&*(_mKPEkmRA~>eF)7^=TJ<x}@&srDm$`;x8!L|F8aDcNd|!iofqa;T+sbxa<Az(9`5cw{cxou(<+6f!EkC1Cye`+FoOiv`WqTVLyU-"
    "+A=J2uAG}RN><jwuZx)(GIF^K$)=w9-"
    "sC4B^D^wLosr2j@Q>P!{1%zlg`Y3y8u(Y6_<qs63O?&IWg3~fuKeXT_H$hQ?jM#4*OiHjWHGHj>fcnq?R>M%wffYQhga_AU~h5qKE3ExBd+>{{"
    "t>tCgY)bLUcyJ`pZ{0Vi%?sC4{LiJxX8a{ayKDo8}PB>_`mNbzp_<e>u_uxTUbAl^KGmj%Q~!jjg%Me{fA=z4aFfMQ2"
)


def write_filter(path: Path) -> Artifact:
    """Write a TensorFlow Lite file with SVDF, whose state is a tensor; requires
    ``ai_edge_litert``.
    """
    from ai_edge_litert import schema_py_generated as schema

    random = np.random.default_rng(0)
    weights = [random.normal(size=shape).astype(np.float32) for shape in ((3, 4), (3, 2), (3,))]
    buffers, tensors = [schema.BufferT()], []
    for name, shape, held in (
        ("x", (1, 4), None),
        ("features", (3, 4), weights[0]),
        ("times", (3, 2), weights[1]),
        ("bias", (3,), weights[2]),
        ("state", (1, 6), None),
        ("y", (1, 3), None),
    ):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type = name, list(shape), schema.TensorType.FLOAT32
        tensor.isVariable = name == "state"
        if held is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(held.tobytes(), np.uint8)
            tensor.buffer = len(buffers)
            buffers.append(buffer)
        tensors.append(tensor)
    code, operator, graph, model = (
        schema.OperatorCodeT(),
        schema.OperatorT(),
        schema.SubGraphT(),
        schema.ModelT(),
    )
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.SVDF
    code.version = 1
    operator.inputs, operator.outputs = [0, 1, 2, 3, 4], [5]
    operator.builtinOptionsType, operator.builtinOptions = (
        schema.BuiltinOptions.SVDFOptions,
        schema.SVDFOptionsT(),
    )
    operator.builtinOptions.rank = 1
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, [operator], [0], [5]
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [code], [graph], buffers
    signature, given, made = schema.SignatureDefT(), schema.TensorMapT(), schema.TensorMapT()
    given.name, given.tensorIndex, made.name, made.tensorIndex = "x", 0, "y", 5
    signature.inputs, signature.outputs, signature.signatureKey = [given], [made], "serving_default"
    model.signatureDefs = [signature]
    path.write_bytes(_pack_model(model))
    return Artifact.create(path, "tflite", read_tflite(path).io)


def write_resources(path: Path) -> Artifact:
    """Write a TensorFlow Lite file whose state is a resource, which LiteRT does not reset."""
    path.write_bytes(zlib.decompress(base64.b85decode(_RESOURCES)))
    return Artifact.create(path, "tflite", read_tflite(path).io)


def decaying_module() -> Any:
    """Return a module of PyTorch that adds to a buffer, which begins with twos; requires
    ``torch``.
    """
    import torch

    class Decaying(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.full((1, 4), 2.0))

        def forward(self, x: Any) -> Any:
            self.held.mul_(0.5).add_(torch.tanh(x))
            return self.held + 0.0

    return Decaying().eval()


def remembering_module() -> Any:
    """Return a module of PyTorch that keeps what it has seen in attributes of its own; requires
    ``torch``.
    """
    import torch

    class Remembering(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = None
            self.seen: list[Any] = []
            self.table = None  # kept to save time, no state

        def forward(self, x: Any) -> Any:
            if self.table is None:
                self.table = torch.arange(4.0)
            self.last = x if self.last is None else 0.5 * self.last + x
            self.seen.append(float(x.sum()))
            return self.last + self.table + len(self.seen)

    return Remembering().eval()


def write_program(path: Path) -> Artifact:
    """Write :func:`decaying_module` as an exported program; requires ``torch``."""
    import torch

    from nnpipe.frameworks.torch_program import serialize_program

    path.write_bytes(
        serialize_program(torch.export.export(decaying_module(), (torch.zeros(1, 4),)))
    )
    return Artifact.create(path, "torch-export", IO)
