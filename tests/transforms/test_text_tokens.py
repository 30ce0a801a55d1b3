"""Texts become the tokens of a model, by a tokenizer that travels with it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed, needs

import nnpipe
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.input_transform import InputTransform
from nnpipe.datasets.texts import TextClassificationDataset
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.modelwrappers.files.transformers import TransformersModel
from nnpipe.testing.input_transform import InputTransformContract
from nnpipe.transforms.text_tokens import TextTokens

needs("tokenizers")
transformers: Any = ImportedWhenUsed("transformers")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "very", "film", "a"]


def write_tokenizer(folder: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


class TestTextTokens(InputTransformContract):
    @pytest.fixture
    def transform(self, tmp_path: Path) -> InputTransform:
        return TextTokens(tokenizer=str(write_tokenizer(tmp_path)), length=6)

    @pytest.fixture
    def samples(self) -> np.ndarray:
        return np.array(["a very good film", "bad", "a very very very bad film"], object)


def test_texts_are_filled_up_or_cut_with_what_ends_them(tmp_path: Path) -> None:
    tokens = TextTokens(tokenizer=str(write_tokenizer(tmp_path)), length=5)
    found = tokens.apply(np.array(["bad film", "a very very good film", ""], object))
    assert found.tolist() == [[2, 5, 7, 3, 0], [2, 8, 6, 6, 3], [2, 3, 0, 0, 0]]


def test_a_packed_tokenizer_needs_no_file(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path)
    tokens = TextTokens(tokenizer=str(path), length=4)
    texts = np.array(["a good film", "bad"], object)
    packed, expected = tokens.pack_files(), tokens.apply(texts)
    assert packed.pack_files() == packed
    path.unlink()
    assert packed.apply(texts).tolist() == expected.tolist()
    with pytest.raises(ArtifactError, match="damaged"):
        dataclasses.replace(packed, tokenizer=packed.tokenizer[:-8]).apply(texts)


@pytest.mark.slow
def test_a_classifier_takes_texts_and_so_does_what_is_compiled_from_it(tmp_path: Path) -> None:
    import torch

    needs("torch", "onnxruntime")
    folder = tmp_path / "bert"
    write_tokenizer(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=len(WORDS),
        max_position_embeddings=8,
        num_labels=2,
        pad_token_id=0,
    )
    source = transformers.BertForSequenceClassification(config).eval()
    source.save_pretrained(folder)
    path = tmp_path / "texts.jsonl"
    rows = [
        {"text": f"a {'very ' * (n % 3)}{('bad', 'good')[n % 2]} film", "label": n % 2}
        for n in range(20)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = TextClassificationDataset(dataset_root=path, test_fraction=0.5)
    dataset.prepare()
    inputs, _ = dataset.read(dataset.split("test"))
    wrapper = TransformersModel(model_folder=folder, sequence_length=8, tokenise=True).for_dataset(
        dataset.spec
    )
    with wrapper.open() as model, model.session() as session, torch.no_grad():
        ids = wrapper.preprocess(inputs)["input_ids"]
        expected = source(
            torch.from_numpy(ids), attention_mask=torch.from_numpy((ids != 0).astype(np.int64))
        ).logits
        found = session.infer({"input_ids": ids})["logits"]
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    made = nnpipe.compile((wrapper, folder), "onnx", tmp_path / "bert.onnx", calibration=dataset)
    (folder / "tokenizer.json").unlink()
    compiled = ONNXModel(model_path=made.path).for_dataset(dataset.spec)
    assert compiled.preprocess(inputs)["input_ids"].tolist() == ids.tolist()
    with compiled.open(made.path) as model, model.session() as session:
        np.testing.assert_allclose(
            session.infer(compiled.preprocess(inputs))["logits"], expected.numpy(), atol=1e-4
        )
    with pytest.raises(ConfigError, match="takes texts, the data set gives int64"):
        compiled.for_dataset(dataclasses.replace(dataset.spec, inputs=wrapper.io.inputs))
