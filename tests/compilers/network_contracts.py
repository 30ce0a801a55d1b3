"""The contract of compilers with the networks that most of them are tried with."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.testing.compiler import ModelCompilerContract, run_compiled
from nnpipe.testing.model_files import (
    NETWORK_IO,
    create_torch_network,
    run_network,
    write_onnx_network,
)


def onnx_reference(path: Path, batches: Sequence[Batch]) -> list[Batch]:
    """Compute with ONNX's own reference."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(path))
    return [
        dict(zip(evaluator.output_names, evaluator.run(None, dict(batch)), strict=True))
        for batch in batches
    ]


class _NetworkContract(ModelCompilerContract):
    samples: ClassVar[Sequence[Batch]] = [
        generate_random_batch(NETWORK_IO, size, seed=size) for size in (1, 5)
    ]

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        return self.samples

    @pytest.fixture
    def calibration(self, batches: Sequence[Batch]) -> Calibration:
        return lambda: batches  # what lay outside the range seen would saturate, and rightly


class ONNXNetworkContract(_NetworkContract):
    """From a small ONNX network."""

    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Artifact:
        return write_onnx_network(tmp_path / "network.onnx")

    @pytest.fixture
    def runtime(self) -> Runtime:
        return ONNXRuntime()

    @pytest.fixture
    def expected(self, artifact: Artifact, batches: Sequence[Batch]) -> Sequence[Batch]:
        return onnx_reference(artifact.path, batches)


class TorchNetworkContract(_NetworkContract):
    """From a small network that PyTorch exported; ``source`` has been made of what ``network``
    gives.
    """

    network: ClassVar[Callable[[], Any]] = staticmethod(create_torch_network)

    @pytest.fixture
    def artifact(self, source: Artifact) -> Artifact:
        return source

    @pytest.fixture
    def runtime(self) -> Runtime:
        return PyTorchRuntime()

    @pytest.fixture
    def expected(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        network = self.network()
        return [run_network(network, batch) for batch in batches]


def trained_resnet(
    folder: Path, shared_data: Path
) -> tuple[Artifact, Callable[[], list[Batch]], Callable[[Artifact], float]]:
    """Export the trained ResNet20; give it, images that it has seen, and its accuracy on 500
    that it has not.
    """
    from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet

    model = PyTorchCIFARResNet().open(
        shared_data / "models" / "torch_resnet" / "resnet20-12fca82f.th"
    )

    def images(name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        records = np.frombuffer(
            gzip.decompress((shared_data / "cifar10" / name).read_bytes()), "uint8"
        )
        labels, pixels = np.split(records.reshape(-1, 3073)[:count], [1], axis=1)
        planes = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return model.wrapper.preprocess({"image": planes})["image"], labels[:, 0]

    seen, _ = images("train_00000-03999.bin.gz", 1000)
    unseen, labels = images("test_000-499.bin.gz", 500)

    def accuracy(made: Artifact) -> float:
        (found,) = run_compiled(PyTorchRuntime(), made, model.io, [{"image": unseen}])
        return float(np.mean(found["scores"].argmax(1) == labels))

    source = model.export(folder / "resnet.pt2", "torch-export")
    return source, lambda: [{"image": image[None]} for image in seen], accuracy
