"""Prompts from files, which language models answer."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets._text_records import read_records, text_in
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.datasets.synthetic import SyntheticDataset
from nnpipe.tasks.generation.task import Generation


class PromptsDataset(InMemoryDataset):
    """Your own prompts, to be answered by a language model: a file with a prompt on each line, JSON lines or a table.

    Records of ``.jsonl`` and ``.csv`` files have a ``prompt``, and may have a ``reference``, the answer that is right.
    All prompts are in the test split: nothing is trained on them.
    """

    dataset_root: Path = argument(Path("prompts.jsonl"), help="file with prompts: .txt, .jsonl or .csv")
    prompt_name: str = argument("prompt", help="name of the prompts in the records")
    reference_name: str = argument(
        "reference", help="name of the reference answers in the records, which may lack them"
    )

    def load(self) -> Samples:
        """Read all prompts."""
        prompts, references = [], []
        for place, record in read_records(self.dataset_root, self.prompt_name):
            prompts.append(text_in(record, self.prompt_name, place))
            has = record.get(self.reference_name) is not None
            references.append(text_in(record, self.reference_name, place) if has else "")
        return _samples(prompts, references)

    @property
    def spec(self) -> DatasetSpec:
        """Prompts with references; their numbers, and the references as the right answers."""
        return DatasetSpec(
            Generation.name,
            (TensorSpec("prompt", (None,), "string"), TensorSpec("reference", (None,), "string")),
            (TensorSpec("sample", (None,), "int64"), TensorSpec("answer", (None,), "string")),
        )

    @cached_property
    def _splits(self) -> dict[str, npt.NDArray[np.int64]]:
        nothing = np.zeros(0, np.int64)
        return {"train": nothing, "validation": nothing, "test": np.arange(len(self), dtype=np.int64)}


def _samples(prompts: list[str], references: list[str]) -> Samples:
    pairs = zip(prompts, references, strict=True)
    numbers = np.array([crc32(f"{prompt}\0{answer}".encode()) for prompt, answer in pairs], np.int64)
    answers = np.array(references, object)
    return Samples({"prompt": np.array(prompts, object), "reference": answers}, {"sample": numbers, "answer": answers})


class SyntheticPromptsDataset(SyntheticDataset, PromptsDataset):
    """Sums of two numbers as prompts, with the right answers."""

    def load(self) -> Samples:
        """Make all prompts."""
        numbers = np.random.default_rng(self.data_seed).integers(0, 1000, (self.num_samples, 2))
        prompts = [f"{one} + {other} =" for one, other in numbers]
        return _samples(prompts, [f" {one + other}" for one, other in numbers])
