"""A tiny language model with random weights, written by the example."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.generation import PROMPT, REFERENCE
from nnpipe.core.tensors import Batch
from nnpipe.modelwrappers.files.text_generator import TransformersGenerator

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny_language_model.py"
TEXT = (
    "The quick brown fox jumps over the lazy dog. How many letters are in this sentence of a few "
    "words?\n" * 20
)
BATCHES: tuple[Batch, ...] = (
    {PROMPT: np.array([[5, 60, 100]]), REFERENCE: np.array([[7, 9]])},
    {PROMPT: np.array([[99, 8, 66, 12]]), REFERENCE: np.array([[50, 11, 3]])},
)


def write_tiny_generator(folder: Path) -> Path:
    """Write the model and its tokenizer to a folder, and return the folder."""
    spec = importlib.util.spec_from_file_location("tiny_language_model", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.write(folder, [TEXT], steps=0, vocabulary_size=300)
    return folder


def write_prompts(path: Path) -> Path:
    """Write three prompts, one of them with a reference."""
    rows = [
        {"prompt": "The quick brown"},
        {"prompt": "How many", "reference": " letters are in"},
        {"prompt": "dog"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def exported(folder: Path, destination: Path, **arguments: Any) -> tuple[Artifact, list[Batch]]:
    """Return the model's export for compilers, and its answers to :data:`BATCHES` in PyTorch."""
    wrapper = TransformersGenerator(model_folder=folder, **arguments)
    with wrapper.open() as model:
        made = model.export(destination, "transformers-folder")
        with model.session() as session:
            return made, [session.infer(batch) for batch in BATCHES]
