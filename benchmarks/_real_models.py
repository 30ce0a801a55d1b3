"""Trained models with samples, and all the ways in which they are converted."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.core.tensors import Batch
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset

IMAGENET = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)[:, :, None, None]

ONNX: tuple[tuple[str, ...], ...] = (
    (),
    ("ONNXRuntimeOptimizer",),
    ("ONNXFloat16",),
    ("ONNXStaticQuantizer",),
    ("ONNXDynamicQuantizer",),
    ("OpenVINOCompiler",),
    ("OpenVINOCompiler precision=int8",),
    ("OpenVINOCompiler precision=fp16",),
    ("IREECompiler",),
    ("TVMCompiler",),
)
TORCH: tuple[tuple[str, ...], ...] = (
    ("TorchFloat16",),
    ("TorchFloat16 precision=bfloat16",),
    ("TorchPT2EQuantizer",),
    ("TorchToTFLite",),
    ("TorchToTFLite target=float16",),
    ("TorchToTFLite target=dynamic",),
    ("TorchToTFLite target=int8",),
    ("ExecuTorchCompiler",),
    ("ExecuTorchCompiler precision=int8",),
    ("TorchInductorCompiler",),
)
KERAS: tuple[tuple[str, ...], ...] = tuple(
    (f"TFLiteCompiler target={target}",) for target in ("default", "float16", "dynamic", "int8")
)
TFLITE: tuple[tuple[str, ...], ...] = (
    (),
    ("OpenVINOCompiler",),
    ("OpenVINOCompiler precision=int8",),
)
QUICK = {
    (),
    ("ONNXRuntimeOptimizer",),
    ("ONNXFloat16",),
    ("ONNXStaticQuantizer",),
    ("ONNXDynamicQuantizer",),
}


@dataclass(frozen=True)
class Model:
    """A trained model, samples as it takes them, and the ways it is converted by format of
    export.
    """

    name: str
    live: LiveModel
    samples: np.ndarray[Any, Any]
    ways: Mapping[str, tuple[tuple[str, ...], ...]]
    origin: LiveModel | None = None
    """What is exported, if that is not the model itself."""

    def batches(self, numbers: Sequence[int]) -> list[Batch]:
        """Return samples as batches of one."""
        name = self.live.io.inputs[0].name
        return [{name: self.samples[number : number + 1]} for number in numbers]


def models(data: Path, quick: bool) -> Iterator[Model]:
    """Yield the models that are there, and say of the others that they are not."""
    digits = DigitsDataset()
    network = find("PyTorchDigitsCNN", ModelWrapper).from_json({}).open()
    network.train(digits, TrainingOptions(num_epochs=2 if quick else 8))
    taken = [
        network.wrapper.preprocess(raw) for raw, _ in digits.batches(digits.split("test")[:200], 1)
    ]
    ways = {"onnx": ONNX, "torch-export": TORCH}
    yield Model(
        "digits CNN", network, np.concatenate([next(iter(batch.values())) for batch in taken]), ways
    )
    found: list[tuple[str, str, str, Callable[[], np.ndarray[Any, Any]], dict[str, Any]]] = [
        ("MNIST", "ONNXModel", "models/mnist-8.onnx", lambda: _mnist(data), {"onnx": ONNX}),
        (
            "ResNet20",
            "PyTorchCIFARResNet",
            "models/torch_resnet/resnet20-12fca82f.th",
            lambda: (_cifar(data) / 255 - IMAGENET[0]) / IMAGENET[1],
            ways,
        ),
        (
            "ResNet8",
            "KerasModel",
            "models/mlperf_tiny_ic/pretrainedResnet.h5",
            lambda: np.ascontiguousarray(_cifar(data).transpose(0, 2, 3, 1)),
            {"keras": KERAS, "onnx": ONNX},
        ),
        (
            "keyword",
            "TFLiteModel",
            "models/mlperf_tiny_kws/kws_ref_model_float32.tflite",
            lambda: _keywords(data),
            {"tflite": TFLITE},
        ),
    ]
    for name, cls, file, samples, converted in found[: 1 if quick else None]:
        path = data / file
        if not path.is_file():
            print(f"left out: {name}, {file} is not below {data}")
            continue
        own = cls == "PyTorchCIFARResNet"
        model = (
            find(cls, ModelWrapper).from_json({} if own else {"model_path": str(path)}).open(path)
        )
        yield Model(name, model, samples(), converted)


def _mnist(data: Path) -> np.ndarray[Any, Any]:
    raw = gzip.decompress((data / "mnist/t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    return np.frombuffer(raw, np.uint8).reshape(-1, 1, 28, 28)[:400].astype(np.float32) / 255


def _cifar(data: Path) -> np.ndarray[Any, Any]:
    raw = gzip.decompress((data / "cifar10/test_000-499.bin.gz").read_bytes())
    return (
        np.frombuffer(raw, np.uint8)
        .reshape(-1, 3073)[:400, 1:]
        .reshape(-1, 3, 32, 32)
        .astype(np.float32)
    )


def _keywords(data: Path) -> np.ndarray[Any, Any]:
    real = np.load(data / "vectors/kws_mfcc_tf.npz")["mfcc"].astype(np.float32)
    # five clips are few: others are theirs, moved in time and made louder
    random = np.random.default_rng(0)
    moved = [
        np.roll(clip, random.integers(-8, 9), 0) * random.uniform(0.8, 1.2)
        for clip in real
        for _ in range(40)
    ]
    return np.stack(moved).reshape(-1, 49, 10, 1).astype(np.float32)


def ways_of(model: Model, quick: bool) -> Iterator[tuple[Model, str, tuple[str, ...]]]:
    """Yield the ways of converting a model: the format of its export, and the compilers behind."""
    for format, ways in model.ways.items():
        yield from ((model, format, way) for way in ways if not quick or way in QUICK)
