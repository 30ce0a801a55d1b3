"""Language models that generate text, and keep the time of each token."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from repeated import RULES_OF_SESSIONS, SAME_IN_A_FRAMEWORK
from tiny_generators import write_prompts, write_tiny_generator

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.generation import (
    LOG_LIKELIHOOD,
    PROMPT,
    REFERENCE,
    REQUEST_NS,
    TOKEN_NS,
    TOKENS,
    GenerationSession,
)
from nnpipe.core.model import ModelWrapper
from nnpipe.datasets.texts import PromptsDataset
from nnpipe.measuring.benchmark import benchmark
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.modelwrappers.files.text_generator import (
    ONNXRuntimeGenAIModel,
    TextGenerator,
    TransformersGenerator,
)
from nnpipe.testing.modelwrapper import ModelWrapperContract

needs("torch", "transformers", "tokenizers", "safetensors")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_generator(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def built(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("onnxruntime_genai")
    folder = tmp_path_factory.mktemp("built")
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-p", "fp32", "-e", "cpu"]
    subprocess.run(
        [*builder, "-i", str(tiny), "-o", str(folder), "-c", str(folder)],
        check=True,
        capture_output=True,
    )
    return folder


def prompts(folder: Path) -> PromptsDataset:
    found = PromptsDataset(dataset_root=write_prompts(folder / "prompts.jsonl"))
    found.prepare()
    return found


def answered(wrapper: TextGenerator, dataset: PromptsDataset) -> list[dict[str, np.ndarray]]:
    with wrapper.open() as model, model.session() as session:
        batches = dataset.batches(dataset.split("test"), 1)
        return [session.infer(wrapper.preprocess(inputs)) for inputs, _ in batches]


class _Contract(ModelWrapperContract):
    repeats = SAME_IN_A_FRAMEWORK | RULES_OF_SESSIONS
    varying = GenerationSession.varying

    @pytest.fixture
    def batch(self) -> dict[str, np.ndarray]:
        return {PROMPT: np.array([[5, 60, 100]]), REFERENCE: np.array([[7, 9]])}

    @pytest.fixture
    def other_batch(self) -> dict[str, np.ndarray]:
        return {PROMPT: np.array([[99, 8, 66]]), REFERENCE: np.array([[50, 11]])}


class TestTransformersGenerator(_Contract):
    @pytest.fixture
    def wrapper(self, tiny: Path) -> ModelWrapper:
        return TransformersGenerator(model_folder=tiny, max_new_tokens=3)


@pytest.mark.slow
class TestONNXRuntimeGenAIModel(_Contract):
    @pytest.fixture
    def wrapper(self, built: Path) -> ModelWrapper:
        return ONNXRuntimeGenAIModel(model_folder=built, max_new_tokens=3)


def test_it_generates_what_transformers_generates(tiny: Path, tmp_path: Path) -> None:
    import torch
    import transformers

    wrapper = TransformersGenerator(model_folder=tiny, max_new_tokens=12, ignore_end=True)
    found = answered(wrapper, prompts(tmp_path))[1]
    source = transformers.LlamaForCausalLM.from_pretrained(tiny).eval()
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tiny)
    ids = tokenizer("How many", return_tensors="pt")["input_ids"]
    answer = source.generate(
        ids, max_new_tokens=12, min_new_tokens=12, do_sample=False, eos_token_id=None
    )
    assert found[TOKENS][0].tolist() == answer[0, ids.shape[1] :].tolist()
    reference = tokenizer(" letters are in", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        both = torch.cat([ids, reference], dim=1)
        labels = torch.where(torch.arange(both.shape[1]) < ids.shape[1], -100, both)
        loss = source(both, labels=labels).loss.item()
    assert found[LOG_LIKELIHOOD][0] == pytest.approx(-loss * reference.shape[1], rel=1e-4)
    assert (found[TOKEN_NS] > 0).all()
    assert found[TOKEN_NS].sum() <= found[REQUEST_NS][0]


def test_a_run_keeps_the_time_of_every_token(tiny: Path, tmp_path: Path) -> None:
    wrapper, dataset = (
        TransformersGenerator(model_folder=tiny, max_new_tokens=8, ignore_end=True),
        prompts(tmp_path),
    )
    with wrapper.open() as model:
        run = benchmark(
            model.session,
            dataset=dataset,
            indices=dataset.split("test"),
            wrapper=wrapper,
            options=MeasureOptions(measure_seconds=0.0, warmup_runs=1),
        )
    found = run.evaluation
    assert found is not None
    assert found.ragged["token_ns"].counts.tolist() == [8, 8, 8]
    called = run.series["inference"]["latency_ns"][:3]
    assert (found.arrays["request_ns"] <= called).all()
    assert found.arrays["exact"].tolist() == [-1, 0, -1]


@pytest.mark.slow
def test_genai_generates_what_pytorch_generates(tiny: Path, built: Path, tmp_path: Path) -> None:
    dataset, options = prompts(tmp_path), {"max_new_tokens": 12, "ignore_end": True}
    ours = answered(TransformersGenerator(model_folder=tiny, **options), dataset)
    theirs = answered(ONNXRuntimeGenAIModel(model_folder=built, **options), dataset)
    for one, other in zip(ours, theirs, strict=True):
        assert one[TOKENS].tolist() == other[TOKENS].tolist()
        np.testing.assert_allclose(one[LOG_LIKELIHOOD], other[LOG_LIKELIHOOD], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"session_options": {"custom_ops_library": "evil.so"}}, "custom_ops_library"),
        ({"session_options": {"provider_options": [{"cuda": {}}]}}, "build the model with -e cpu"),
        ({"filename": "../model.onnx"}, "no file in this folder"),
        ({"filename": 3}, "no decoder of text"),
        ({"pipeline": [{"filename": "other.onnx"}]}, "networks beside the decoder"),
    ],
)
def test_hostile_folders_of_genai_are_refused(
    built: Path, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    shutil.copytree(built, tmp_path / "copy")
    path = tmp_path / "copy" / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"]["decoder"] |= change
    path.write_text(json.dumps(config))
    with (
        pytest.raises(ArtifactError, match=told) as caught,
        ONNXRuntimeGenAIModel(model_folder=path.parent).open() as m,
    ):
        _ = m.native
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "no tokenizer"),
        ("[]", "no tokenizer of the library"),
        ('{"model": {}}', "does not work"),
        ("[" * 100_000, "no tokenizer"),
    ],
)
def test_damaged_tokenizers_are_refused(
    tiny: Path, tmp_path: Path, content: str, told: str
) -> None:
    folder = shutil.copytree(tiny, tmp_path / "copy")
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(ArtifactError, match=told) as caught:
        _ = TransformersGenerator(model_folder=folder).tokenizer
    assert "\n" not in str(caught.value)


def test_tokenizers_that_would_fill_the_memory_are_refused_or_disarmed(
    tiny: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny, tmp_path / "copy")
    path = folder / "tokenizer.json"
    config = json.loads(path.read_text())
    strategy = {
        "strategy": {"Fixed": 1 << 40},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 1,
    }
    path.write_text(
        json.dumps(config | {"padding": strategy | {"pad_type_id": 0, "pad_token": "</s>"}})
    )
    assert len(TransformersGenerator(model_folder=folder).tokenizer.encode("dog")) < 4
    double = {"type": "Replace", "pattern": {"String": "d"}, "content": "dd"}
    path.write_text(
        json.dumps(config | {"normalizer": {"type": "Sequence", "normalizers": [double] * 40}})
    )
    with pytest.raises(ArtifactError, match="normalizer makes texts more than"):
        _ = TransformersGenerator(model_folder=folder).tokenizer
    with open(path, "wb") as file:
        file.truncate(1 << 33)  # takes no room on the disk
    with pytest.raises(ArtifactError, match="too large for a tokenizer"):
        _ = TransformersGenerator(model_folder=folder).tokenizer


def test_prompts_that_do_not_fit_are_refused(tiny: Path) -> None:
    wrapper = TransformersGenerator(model_folder=tiny, max_new_tokens=500)
    given = {
        "prompt": np.array(["The quick brown fox " * 9], object),
        "reference": np.array([""], object),
    }
    with pytest.raises(ConfigError, match=r"more than the 512 of .*--max-new-tokens"):
        wrapper.preprocess(given)
    with pytest.raises(ConfigError, match="longer than"):
        wrapper.preprocess({**given, "prompt": np.array(["x" * (1 << 23)], object)})
    with pytest.raises(ConfigError, match="--inference-batch-size 1"):
        wrapper.preprocess({name: np.repeat(array, 2) for name, array in given.items()})


def test_folders_of_pickles_and_changed_files_are_refused(tiny: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny, tmp_path / "copy")
    wrapper = TransformersGenerator(model_folder=folder)
    with wrapper.open() as model:
        saved = model.save(tmp_path / "weights")
        model.load(saved.path)
        config = folder / "config.json"
        config.write_text(config.read_text() + "\n")
        with pytest.raises(ArtifactError, match="has changed since"):
            model.load(saved.path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ArtifactError, match="pickled weights are not loaded"):
        TransformersGenerator(model_folder=folder).model_files()


@pytest.mark.slow
@pytest.mark.parametrize("bits", ["8", "4"])
def test_weights_of_fewer_bits_give_nearly_the_same_probabilities(
    tiny: Path, tmp_path: Path, bits: str
) -> None:
    needs("torchao")
    dataset, options = prompts(tmp_path), {"max_new_tokens": 4, "ignore_end": True}
    whole = answered(TransformersGenerator(model_folder=tiny, **options), dataset)[1]
    fewer = answered(
        TransformersGenerator(model_folder=tiny, weight_bits=bits, **options), dataset
    )[1]
    assert fewer[LOG_LIKELIHOOD][0] != whole[LOG_LIKELIHOOD][0]
    np.testing.assert_allclose(fewer[LOG_LIKELIHOOD], whole[LOG_LIKELIHOOD], rtol=0.05)


def test_ids_are_put_as_they_are(tiny: Path) -> None:
    wrapper = TransformersGenerator(model_folder=tiny, max_new_tokens=3)
    with wrapper.open() as model, model.session() as session:
        answer = session.infer({PROMPT: np.array([[5, 6]]), REFERENCE: np.zeros((1, 0), np.int64)})
    assert np.isnan(answer[LOG_LIKELIHOOD][0])
