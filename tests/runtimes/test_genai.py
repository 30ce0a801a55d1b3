"""Language models that onnxruntime-genai runs."""

from __future__ import annotations

import pytest
from installed import needs
from tiny_generators import BATCHES, exported, write_tiny_generator

from nnpipe.compilers.genai import ONNXRuntimeGenAIBuilder
from nnpipe.core.artifact import Artifact
from nnpipe.core.generation import TOKENS, GenerationSession
from nnpipe.core.tensors import Batch
from nnpipe.runtimes.genai import ONNXRuntimeGenAI
from nnpipe.testing.runtime import RuntimeContract

needs("onnxruntime_genai", "torch", "transformers", "tokenizers", "safetensors")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, list[Batch]]:
    folder = write_tiny_generator(tmp_path_factory.mktemp("tiny"))
    source, answers = exported(
        folder, tmp_path_factory.mktemp("exported") / "m.json", max_new_tokens=5
    )
    made = ONNXRuntimeGenAIBuilder(precision="fp32").compile(
        source, tmp_path_factory.mktemp("built") / "model.genai"
    )
    return made, answers


@pytest.mark.slow
class TestONNXRuntimeGenAI(RuntimeContract):
    varying = GenerationSession.varying
    expected_rtol = 1e-3

    @pytest.fixture
    def runtime(self) -> ONNXRuntimeGenAI:
        return ONNXRuntimeGenAI()

    @pytest.fixture
    def artifact(self, built: tuple[Artifact, list[Batch]]) -> Artifact:
        return built[0]

    @pytest.fixture
    def batch(self) -> Batch:
        return BATCHES[0]

    @pytest.fixture
    def other_batch(self) -> Batch:
        return BATCHES[1]

    @pytest.fixture
    def expected(self, built: tuple[Artifact, list[Batch]]) -> Batch:
        return built[1][0]

    def test_an_answer_is_as_long_as_the_model_was_exported_for(self, artifact: Artifact) -> None:
        with ONNXRuntimeGenAI(ignore_end=True).load(artifact) as session:
            assert session.infer(BATCHES[0])[TOKENS].shape == (1, 5)
            assert (session.infer(BATCHES[0])[TOKENS] >= 0).all()
        assert ONNXRuntimeGenAI().io_of(artifact.path) == artifact.io
