"""Language models of Hugging Face transformers that generate text, in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency
from nnpipe.core.generation import GenerationSession, Ids
from nnpipe.core.live_model import LiveModel
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import TensorSpec
from nnpipe.formats.model_folder import TRANSFORMERS, write_listing
from nnpipe.formats.transformers_folder import TransformersFolder, read_folder
from nnpipe.frameworks.framework_output import hushed
from nnpipe.modelwrappers.files._transformers_network import network_of
from nnpipe.modelwrappers.files.text_generator import TextGenerator

_CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_TRACED = 8  # tokens with which the network's output is checked
_DEFAULT_CONTEXT = 2048


class TransformersGenerator(TextGenerator):
    """A language model from a folder that ``save_pretrained`` of transformers wrote, run by PyTorch.

    The folder holds ``config.json``, ``*.safetensors`` and ``tokenizer.json``.  Nothing is downloaded, and no pickle
    and no code of the folder's is read.  Weights can be stored with 8 or 4 bits by torchao; sums stay in float32.
    """

    framework: ClassVar[str] = "PyTorch"
    requires: ClassVar[tuple[str, ...]] = ("transformers", "torch", "safetensors", "tokenizers")
    install: ClassVar[str] = "nnpipe[transformers,torch-int8]"
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers")
    exports: ClassVar[tuple[str, ...]] = (TRANSFORMERS,)

    weight_bits: Literal["8", "4"] | None = argument(
        None,
        help="bits of each weight of the matrix products, quantised when the model is loaded; by default unchanged",
    )
    group_size: int = argument(
        32, help="weights that share a scale with 4 bits; layers whose rows it does not divide stay as they are",
        minimum=16, maximum=1024,
    )  # fmt: skip

    @cached_property
    def _folder(self) -> TransformersFolder:
        found = read_folder(self.model_folder)
        if found.config.get("is_encoder_decoder") or not isinstance(found.config.get("vocab_size"), int):
            raise ArtifactError(f"{self.model_folder}: config.json describes no language model that continues a text")
        return found

    @property
    def context_length(self) -> int:
        """The greatest number of tokens that the configuration names."""
        known = (self._folder.config.get(name) for name in _CONTEXTS)
        return next((each for each in known if isinstance(each, int) and each > 0), _DEFAULT_CONTEXT)

    @property
    def vocabulary_size(self) -> int:
        """The number of different tokens that the configuration names."""
        return int(self._folder.config["vocab_size"])

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end an answer."""
        found = self._folder.config.get("eos_token_id")
        return tuple(each for each in (found if isinstance(found, list) else [found]) if isinstance(each, int))

    def model_files(self) -> Sequence[Path]:
        """Return the files of weights and the configuration."""
        return (self.model_folder / "config.json", *self._folder.weights)

    def build(self) -> Any:
        """Return the network with the weights in the folder."""
        shape = (None, min(_TRACED, self.context_length))
        network = network_of(self._folder, (TensorSpec("input_ids", shape, "int64"),))
        if not hasattr(network, "lm_head") and network.get_output_embeddings() is None:
            raise ArtifactError(
                f"{self.model_folder}: {type(network).__name__} continues no text; it has no scores of tokens"
            )
        network.eval()
        if self.weight_bits is not None:
            self._quantise(network)
        return network

    def _quantise(self, network: Any) -> None:
        import torch

        try:
            import torchao  # noqa: F401
        except ImportError:
            raise MissingDependency(
                "--weight-bits needs torchao, which is not installed: pip install 'nnpipe[torch-int8]'"
            ) from None
        with hushed():
            from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
            from torchao.quantization.granularity import PerGroup

            if self.weight_bits == "8":
                quantize_(network, Int8WeightOnlyConfig())
                return

            def divisible(module: Any, name: str) -> bool:
                return isinstance(module, torch.nn.Linear) and module.in_features % self.group_size == 0

            four = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(self.group_size))
            quantize_(network, four, filter_fn=divisible)

    def _write_export(self, path: Path) -> None:
        if self.weight_bits is not None:
            raise ConfigError("--weight-bits is for PyTorch; leave it out, the compiler has its own option for that")
        write_listing((*self.model_files(), self.model_folder / "tokenizer.json"), path)

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that generates in PyTorch, with the keys and values of earlier tokens kept."""
        ends = frozenset() if self.ignore_end else frozenset(self.end_tokens)
        return _Session(live.native, self.max_new_tokens, ends, self.num_threads)


class _Session(GenerationSession):
    def __init__(self, network: Any, max_new_tokens: int, ends: frozenset[int], num_threads: int) -> None:
        import torch

        super().__init__(max_new_tokens)
        self._torch, self._network, self._ends = torch, network, ends
        self._threads_before = torch.get_num_threads()
        if num_threads:
            torch.set_num_threads(num_threads)

    def _generate(self, prompt: Ids, max_new_tokens: int) -> Iterator[int]:
        ids, kept = self._torch.from_numpy(prompt.copy())[None], None
        for _ in range(max_new_tokens):
            token, kept = self._next(ids, kept)
            yield token
            if token in self._ends:
                return
            ids = self._torch.tensor([[token]])

    def _next(self, ids: Any, kept: Any) -> tuple[int, Any]:
        # Not around the loop: what waits in an iterator must not change the mode of the thread.
        with self._torch.inference_mode():
            found = self._network(input_ids=ids, past_key_values=kept, use_cache=True, return_dict=True)
            return int(found.logits[0, -1].argmax()), found.past_key_values

    def _log_likelihood(self, prompt: Ids, reference: Ids) -> float:
        torch, start = self._torch, len(prompt)
        with torch.inference_mode():
            ids = torch.from_numpy(prompt).tolist() + torch.from_numpy(reference).tolist()
            logits = self._network(input_ids=torch.tensor([ids]), use_cache=False, return_dict=True).logits[0]
            scores = torch.log_softmax(logits[start - 1 : -1].double(), dim=-1)
            return float(scores.gather(1, torch.tensor(ids[start:])[:, None]).sum())

    def _close(self) -> None:
        self._torch.set_num_threads(self._threads_before)
        self._network = None
