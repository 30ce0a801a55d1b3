"""Folders of Hugging Face transformers as models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed, needs
from repeated import RULES_OF_SESSIONS, SAME_IN_A_FRAMEWORK

import nnpipe
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import generate_random_batch
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.formats.model_folder import read_folder
from nnpipe.modelwrappers.files.transformers import TransformersModel
from nnpipe.testing.modelwrapper import ModelWrapperContract

needs("torch", "safetensors")
transformers: Any = ImportedWhenUsed("transformers")
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vit")
    config = transformers.ViTConfig(
        **SMALL, image_size=8, patch_size=2, num_channels=1, num_labels=10
    )
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    said = {"image_mean": [0.5], "image_std": [0.5], "rescale_factor": 1 / 16}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    return folder


class TestTransformersModel(ModelWrapperContract):
    repeats = (
        SAME_IN_A_FRAMEWORK
        | RULES_OF_SESSIONS
        | {
            "test_every_format_it_names_can_be_exported",
            "test_the_wrapper_stays_as_it_was_whatever_its_model_does",
        }
    )

    @pytest.fixture
    def wrapper(self, vit: Path) -> ModelWrapper:
        return TransformersModel(model_folder=vit, class_count=10, num_threads=2)

    @pytest.fixture
    def dataset(self) -> Dataset:
        return DigitsDataset(test_fraction=0.7)


def test_a_text_classifier_computes_what_transformers_computes(tmp_path: Path) -> None:
    import torch

    config = transformers.BertConfig(**SMALL, vocab_size=100, max_position_embeddings=16)
    source = transformers.BertForSequenceClassification(config).eval()
    source.save_pretrained(tmp_path)
    wrapper = TransformersModel(model_folder=tmp_path, sequence_length=12)
    batch = generate_random_batch(wrapper.io, 3)
    batch["attention_mask"][:, 0] = 1
    with wrapper.open().session() as session, torch.no_grad():
        expected = source(
            **{name: torch.from_numpy(array) for name, array in batch.items()}
        ).logits.numpy()
        np.testing.assert_allclose(session.infer(batch)["logits"], expected, atol=1e-5)
    with pytest.raises(ConfigError, match="--sequence-length 16"):
        _ = TransformersModel(model_folder=tmp_path).io


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "size", "edge"),
    [
        ({"size": {"height": 8, "width": 12}}, (8, 12), None),
        (
            {
                "size": {"shortest_edge": 10},
                "crop_size": {"height": 8, "width": 8},
                "do_center_crop": True,
            },
            (8, 8),
            10,
        ),
        ({"size": {"shortest_edge": 8}, "crop_pct": 0.5}, (8, 8), 16),
        ({"size": 8}, (8, 8), None),
        ({"size": "large"}, None, None),
    ],
)
def test_the_size_of_images_is_that_of_the_preprocessing(
    said: dict[str, Any], size: tuple[int, int] | None, edge: int | None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "resnet", "num_channels": 3}))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    (tmp_path / "model.safetensors").touch()
    folder = read_folder(tmp_path)
    assert (folder.image_size, folder.shortest_edge) == (size, edge)


def test_a_convolutional_network_without_a_size_of_images_asks_for_one(tmp_path: Path) -> None:
    config = transformers.ResNetConfig(
        num_channels=1,
        embedding_size=8,
        hidden_sizes=[8, 8],
        depths=[1, 1],
        layer_type="basic",
        num_labels=10,
    )
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path)
    with pytest.raises(
        ConfigError, match="of which the folder does not say the size: --input-size"
    ):
        _ = TransformersModel(model_folder=tmp_path).io
    assert TransformersModel(model_folder=tmp_path, input_size=(16, 24)).io.inputs[0].shape == (
        None,
        1,
        16,
        24,
    )


@pytest.mark.slow
def test_a_folder_is_a_model_for_every_call(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        **SMALL, vocab_size=100, max_position_embeddings=16, num_labels=3
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "bert")
    random = np.random.default_rng(0)
    tokens = random.integers(1, 100, (40, 12))
    data = (
        {"input_ids": tokens, "attention_mask": np.ones_like(tokens)},
        random.integers(0, 3, 40),
    )
    made = nnpipe.compile(tmp_path / "bert", "onnx", tmp_path / "bert.onnx", calibration=data)
    found = nnpipe.verify(tmp_path / "bert", made, data=data, samples=8)
    assert (found.verdict, made.io.inputs[0].shape[1]) == ("same", 12)
    with pytest.raises(ArtifactError, match="name TransformersModel instead"):
        nnpipe.verify(made, tmp_path / "bert", data=data)


@pytest.mark.slow
def test_a_language_model_is_exported(tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        n_embd=32,
        n_layer=1,
        n_head=2,
        vocab_size=100,
        n_positions=16,
        bos_token_id=0,
        eos_token_id=0,
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    wrapper = TransformersModel(model_folder=tmp_path, sequence_length=8)
    assert wrapper.io.outputs[0].shape == (None, 8, 100)
    with wrapper.open() as model:
        assert model.export(tmp_path / "model.pt2", "torch-export").format == "torch-export"


def test_damaged_preprocessing_is_named(vit: Path, tmp_path: Path) -> None:
    shutil.copytree(vit, tmp_path / "copy")
    path = tmp_path / "copy" / "preprocessor_config.json"
    path.write_text(json.dumps({"image_mean": ["half"], "image_std": [0.5]}))
    with pytest.raises(
        ArtifactError, match=r"preprocessor_config\.json: rescale_factor, image_mean and image_std"
    ):
        TransformersModel(model_folder=path.parent).read_facts()


def test_pickled_weights_are_refused(vit: Path, tmp_path: Path) -> None:
    shutil.copy(vit / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ArtifactError, match="pickled weights are not loaded"):
        _ = TransformersModel(model_folder=tmp_path).io


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"architectures": ["PreTrainedTokenizer"]}, "has no model 'PreTrainedTokenizer'"),
        ({"model_type": "own"}, "no model_type 'own'"),
        ({"auto_map": {"AutoModel": "own.Model"}}, "auto_map asks for additional code"),
        ({"num_hidden_layers": 1 << 20}, "num_hidden_layers is"),
        ({"intermediate_size": 1 << 30}, "more than the files can hold"),
    ],
)
def test_hostile_configurations_are_refused(
    vit: Path, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    shutil.copytree(vit, tmp_path / "copy")
    path = tmp_path / "copy" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ArtifactError, match=told) as caught:
        _ = TransformersModel(model_folder=path.parent).io
    assert "\n" not in str(caught.value)
