"""Language models of transformers, built for onnxruntime-genai."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from installed import needs
from tiny_generators import BATCHES, exported, write_tiny_generator

from nnpipe.compilers.genai import ONNXRuntimeGenAIBuilder
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, CompileError, ConfigError
from nnpipe.core.generation import LOG_LIKELIHOOD
from nnpipe.core.tensors import Batch
from nnpipe.modelwrappers.files.text_generator import TransformersGenerator
from nnpipe.runtimes.genai import ONNXRuntimeGenAI
from nnpipe.testing.compiler import ModelCompilerContract, run_compiled

needs("onnxruntime_genai", "torch", "transformers", "tokenizers", "safetensors")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, list[Batch]]:
    folder = write_tiny_generator(tmp_path_factory.mktemp("tiny"))
    return exported(
        folder,
        tmp_path_factory.mktemp("exported") / "model.json",
        max_new_tokens=5,
        ignore_end=True,
    )


@pytest.mark.slow
class TestONNXRuntimeGenAIBuilder(ModelCompilerContract):
    tolerance = 1e-3

    @pytest.fixture
    def compiler(self) -> ONNXRuntimeGenAIBuilder:
        return ONNXRuntimeGenAIBuilder(precision="fp32")

    @pytest.fixture
    def artifact(self, source: tuple[Artifact, list[Batch]]) -> Artifact:
        return source[0]

    @pytest.fixture
    def runtime(self) -> ONNXRuntimeGenAI:
        return ONNXRuntimeGenAI(ignore_end=True)

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        return BATCHES

    @pytest.fixture
    def expected(self, source: tuple[Artifact, list[Batch]]) -> Sequence[Batch]:
        return source[1]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_fewer_bits_give_nearly_the_same_probabilities(
    source: tuple[Artifact, list[Batch]], tmp_path: Path, precision: Literal["int8", "int4"]
) -> None:
    artifact, expected = source
    made = ONNXRuntimeGenAIBuilder(precision=precision).compile(artifact, tmp_path / "made.genai")
    assert made.claims == (f"{precision}-weights",)
    found = run_compiled(ONNXRuntimeGenAI(ignore_end=True), made, artifact.io, BATCHES)
    for one, other in zip(found, expected, strict=True):
        assert one[LOG_LIKELIHOOD] != other[LOG_LIKELIHOOD]
        np.testing.assert_allclose(one[LOG_LIKELIHOOD], other[LOG_LIKELIHOOD], rtol=0.02)


@pytest.mark.slow
def test_what_changed_since_the_export_is_not_built(tmp_path: Path) -> None:
    folder = write_tiny_generator(tmp_path / "tiny")
    artifact, _ = exported(folder, tmp_path / "model.json", max_new_tokens=2)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "auto_map": {"AutoConfig": "evil.Config"}})
    )
    with pytest.raises((ArtifactError, CompileError), match="has changed since"):
        ONNXRuntimeGenAIBuilder().compile(artifact, tmp_path / "made.genai")
    assert not (tmp_path / "made.genai").exists()


def test_a_block_is_a_power_of_two() -> None:
    with pytest.raises(ConfigError, match="16, 32, 64, 128 or 256"):
        ONNXRuntimeGenAIBuilder(block_size=48)


def test_weights_that_pytorch_quantises_are_not_exported(tmp_path: Path) -> None:
    wrapper = TransformersGenerator(model_folder=tmp_path, weight_bits="4")
    with wrapper.open() as model, pytest.raises(ConfigError, match="--weight-bits is for PyTorch"):
        model.export(tmp_path / "out", "transformers-folder")
