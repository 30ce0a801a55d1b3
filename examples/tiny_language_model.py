"""Make a tiny language model without a download: a tokenizer and a Llama of a quarter of a million
parameters.

    python examples/tiny_language_model.py build/tiny --prompts build/prompts.jsonl
    nnpipe run examples/tiny_language_model.yaml

It learns to go on counting, "3 6 9 12" with "15 18 21", in a minute; the prompts begin with numbers
that it has not seen together.  With texts of your own it writes sentences without sense:

    python examples/tiny_language_model.py tiny --text README.md docs/*.md

It has all that large models have: a vocabulary, attention with keys and values that are kept, and a
context of 512 tokens.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CONTEXT = 512
_TOLD, _ASKED = 5, 3  # numbers of a prompt and of its answer


def counting(seed: int = 0) -> tuple[list[str], list[dict[str, str]]]:
    """Return lines that count up or down in equal steps, and prompts that begin others, with
    their references.
    """
    starts = [(start, step) for start in range(100) for step in range(-9, 10) if step]
    lines = [[start + step * place for place in range(_TOLD + _ASKED)] for start, step in starts]
    lines = [line for line in lines if min(line) >= 0 and max(line) < 100]
    random.Random(seed).shuffle(lines)
    texts = [" ".join(map(str, line)) for line in lines]
    asked = [
        {
            "prompt": " ".join(map(str, line[:_TOLD])),
            "reference": "".join(f" {number}" for number in line[_TOLD:]),
        }
        for line in lines
    ]
    return texts[100:], asked[:100]


def make_tokenizer(texts: Iterable[str], size: int) -> Any:
    """Return a byte-level BPE tokenizer that was trained on some texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    found.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=["<s>", "</s>"],
            initial_alphabet=letters,
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=found, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )


def make_model(vocabulary_size: int, seed: int = 0) -> Any:
    """Return a Llama with random weights: 262,720 parameters with a vocabulary of 1,184 tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config)


def train(model: Any, ids: list[int], steps: int, length: int = 64) -> float:
    """Train on random stretches of a text, and return the last loss."""
    import torch

    optimizer, loss = torch.optim.AdamW(model.parameters(), lr=3e-3), 0.0
    for _ in range(steps):
        starts = torch.randint(0, len(ids) - length, (8,)).tolist()
        batch = torch.tensor([ids[start : start + length] for start in starts])
        found = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        loss = found.item()
    return loss


def write(folder: Path, texts: list[str], steps: int, vocabulary_size: int = 1184) -> float:
    """Make tokenizer and model, train it, write both to a folder as ``save_pretrained`` does,
    and return the loss.
    """
    tokenizer = make_tokenizer(texts, vocabulary_size)
    model = make_model(len(tokenizer))
    ids = [
        each for text in texts for each in (*tokenizer(text)["input_ids"], tokenizer.eos_token_id)
    ]
    loss = train(model, ids, steps) if steps else float("nan")
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folder to write")
    parser.add_argument(
        "--text", type=Path, nargs="+", help="text files to train on (default: lines that count)"
    )
    parser.add_argument(
        "--prompts", type=Path, help="where to write prompts with references, without --text"
    )
    parser.add_argument("--steps", type=int, default=1000, help="steps of training (default: 1000)")
    options = parser.parse_args()
    texts, prompts = counting()
    if options.text:
        texts = [path.read_text("utf-8") for path in options.text]
    loss = write(options.folder, texts, options.steps)
    print(f"{options.folder}: loss {loss:.2f} after {options.steps} steps")
    if options.prompts:
        options.prompts.write_text("".join(json.dumps(each) + "\n" for each in prompts), "utf-8")


if __name__ == "__main__":
    main()
