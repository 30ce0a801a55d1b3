"""The base of models that answer prompts with text, token by token."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency, NotSupported
from nnpipe.core.files import replace_atomically
from nnpipe.core.generation import (
    NONE,
    PROMPT,
    REFERENCE,
    TOKENS,
    GenerationSession,
    Ids,
    build_generation_io,
)
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec
from nnpipe.formats.model_folder import (
    CONFIGURATION,
    GENAI,
    LISTING,
    TRANSFORMERS,
    GenAIFolder,
    TransformersFolder,
    check_listing,
    read_folder,
    read_genai_folder,
    write_genai_archive,
    write_listing,
)
from nnpipe.frameworks.genai import GenAISession, open_genai
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.text_tokenizer import TextTokenizer
from nnpipe.modelwrappers.files.transformers import load_network

if TYPE_CHECKING:
    from typing_extensions import Self


class TextGenerator(ModelWrapper):
    """A model that answers prompts with text, from a folder with its tokenizer.

    Texts are tokenised before the measured time begins.  The most likely token is taken each time,
    so that answers can be repeated and compared.
    """

    abstract: ClassVar[bool] = True
    makes_weights: ClassVar[bool] = True
    weights_format: ClassVar[str] = LISTING
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages whose versions are recorded with the model."""

    model_folder: Path = argument(
        help="the folder with the model and its tokenizer.json", metavar="FOLDER"
    )
    max_new_tokens: int = argument(
        64, help="greatest number of tokens of an answer", minimum=1, maximum=1 << 20
    )
    ignore_end: bool = argument(
        False,
        help="go on after the token that ends an answer, so that all answers are equally long",
    )
    num_threads: int = argument(
        1, help="threads that generating may use; 0 leaves it to the runtime", minimum=0
    )

    # -- for authors ----------------------------------------------------------------------------

    @property
    @abstractmethod
    def context_length(self) -> int:
        """The greatest number of tokens of a prompt and its answer together."""

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """The number of different tokens that the model takes."""

    @abstractmethod
    def model_files(self) -> Sequence[Path]:
        """Return the files of the network and its weights, which are checked before anything is
        loaded.
        """

    def _write_export(self, path: Path) -> None:
        """Write the model in the format of ``exports``; by default there is none."""

    # -- what all of them do ----------------------------------------------------------------------

    @property
    def io(self) -> IOSpec:
        """The ids of the tokens of a prompt and of its reference; tokens and their times."""
        return build_generation_io(self.max_new_tokens)

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer in the folder.

        Raises
        ------
        ArtifactError
            If it is missing or damaged, or has more tokens than the model takes.
        """
        self.check_installed()
        path = self.model_folder / "tokenizer.json"
        found = TextTokenizer.read(path)
        if found.size > self.vocabulary_size:
            raise ArtifactError(
                f"{path}: has {found.size:,} tokens, and the model beside it takes "
                f"{self.vocabulary_size:,}"
            )
        return found

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper after a check that the data set gives prompts."""
        if not any(each.name == "prompt" and each.dtype == "string" for each in spec.inputs):
            given = ", ".join(each.name for each in spec.inputs)
            raise ConfigError(
                f"{type(self).__name__} answers prompts, the data set gives {given}; use "
                f"PromptsDataset"
            )
        return self

    def preprocess(self, inputs: Batch) -> Batch:
        """Tokenise a prompt and its reference; answers and prompts must fit into the model's
        context together.
        """
        if len(inputs["prompt"]) != 1:
            raise ConfigError(
                f"{type(self).__name__} answers one prompt at a time: give --inference-batch-size 1"
            )
        prompt = self.tokenizer.encode(str(inputs["prompt"][0]))
        reference = self.tokenizer.encode(str(inputs["reference"][0]), special=False)
        if not len(prompt):
            raise ConfigError(f"the prompt {str(inputs['prompt'][0])[:40]!r} has no token")
        longest = max(self.max_new_tokens, len(reference))
        if len(prompt) + longest > self.context_length:
            raise ConfigError(
                f"the prompt {str(inputs['prompt'][0])[:40]!r} has {len(prompt):,} tokens; with "
                f"{longest:,} of its answer that is more than the {self.context_length:,} of "
                f"{self.model_folder}: shorten it, or give "
                "--max-new-tokens"
            )
        return {PROMPT: prompt[None], REFERENCE: reference[None]}

    def postprocess(self, outputs: Batch) -> Batch:
        """Add the text of the tokens."""
        texts = [self.tokenizer.decode(row[row != NONE]) for row in outputs[TOKENS]]
        return {**outputs, "text": np.array(texts, object)}

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Load the folder's network again, after a check that its files are those of the list at
        ``path``.

        Raises
        ------
        ArtifactError
            If a file is missing, damaged, or not as it was.
        """
        check_listing(self.model_files(), Path(path))
        live.native = self.fresh()

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write a list of the folder's files with their checksums; the network stays where it
        is.
        """
        write_listing(self.model_files(), Path(path))
        return self._describe_artifact(path, LISTING)

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model in a format that compilers or runtimes take."""
        if format not in self.exports:
            raise NotSupported(f"{type(self).__name__} cannot be exported as {format}")
        self._write_export(Path(path))
        return self._describe_artifact(path, format)

    def _describe_artifact(self, path: str | Path, format: str) -> Artifact:
        return self.artifact_of(
            path, format, tuple((name, version(name)) for name in self.packages)
        )


class ONNXRuntimeGenAIModel(TextGenerator):
    """A language model from a folder that the model builder of onnxruntime-genai wrote.

    ``python -m onnxruntime_genai.models.builder -i FOLDER -o OUT -p int4 -e cpu -c CACHE`` writes
    one from a folder of transformers, with weights of 4 bits; ``-p fp32`` leaves them.  Only models
    for the CPU are loaded.
    """

    framework: ClassVar[str] = "ONNX Runtime GenAI"
    requires: ClassVar[tuple[str, ...]] = ("onnxruntime_genai", "tokenizers")
    install: ClassVar[str] = "nnpipe[genai]"
    packages: ClassVar[tuple[str, ...]] = ("onnxruntime-genai", "onnxruntime")
    exports: ClassVar[tuple[str, ...]] = (GENAI,)

    @cached_property
    def _folder(self) -> GenAIFolder:
        return read_genai_folder(self.model_folder)

    @property
    def context_length(self) -> int:
        """The context length in ``genai_config.json``."""
        return self._folder.context_length

    @property
    def vocabulary_size(self) -> int:
        """The number of different tokens in ``genai_config.json``."""
        return self._folder.vocabulary_size

    def model_files(self) -> Sequence[Path]:
        """Return the configuration, the network and its weights."""
        return (self.model_folder / CONFIGURATION, *self._folder.files)

    def build(self) -> Any:
        """Return the model of onnxruntime-genai."""
        return open_genai(self._folder, self.num_threads)

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that generates with onnxruntime-genai."""
        ends = frozenset() if self.ignore_end else frozenset(self._folder.end_tokens)
        return GenAISession(live.native, self.max_new_tokens, ends)

    def _write_export(self, path: Path) -> None:
        with replace_atomically(path) as temporary:
            write_genai_archive(temporary, self._folder.path, self.io)


_CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_TRACED = 8  # tokens with which the network's output is checked
_DEFAULT_CONTEXT = 2048


class TransformersGenerator(TextGenerator):
    """A language model from a folder that ``save_pretrained`` of transformers wrote, run by
    PyTorch.

    The folder holds ``config.json``, ``*.safetensors`` and ``tokenizer.json``.  Nothing is
    downloaded, and no pickle and no code of the folder's is read.  Weights can be stored with 8 or
    4 bits by torchao; sums stay in float32.
    """

    framework: ClassVar[str] = "PyTorch"
    requires: ClassVar[tuple[str, ...]] = ("transformers", "torch", "safetensors", "tokenizers")
    install: ClassVar[str] = "nnpipe[transformers,torch-int8]"
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers")
    exports: ClassVar[tuple[str, ...]] = (TRANSFORMERS,)

    weight_bits: Literal["8", "4"] | None = argument(
        None,
        help=(
            "bits of each weight of the matrix products, quantised when the model is loaded; by "
            "default unchanged"
        ),
    )
    group_size: int = argument(
        32,
        help=(
            "weights that share a scale with 4 bits; layers whose rows it does not divide stay as "
            "they are"
        ),
        minimum=16,
        maximum=1024,
    )

    @cached_property
    def _folder(self) -> TransformersFolder:
        found = read_folder(self.model_folder)
        if found.config.get("is_encoder_decoder") or not isinstance(
            found.config.get("vocab_size"), int
        ):
            raise ArtifactError(
                f"{self.model_folder}: config.json describes no language model that continues a "
                f"text"
            )
        return found

    @property
    def context_length(self) -> int:
        """The greatest number of tokens that the configuration names."""
        known = (self._folder.config.get(name) for name in _CONTEXTS)
        return next(
            (each for each in known if isinstance(each, int) and each > 0), _DEFAULT_CONTEXT
        )

    @property
    def vocabulary_size(self) -> int:
        """The number of different tokens that the configuration names."""
        return int(self._folder.config["vocab_size"])

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end an answer."""
        found = self._folder.config.get("eos_token_id")
        return tuple(
            each
            for each in (found if isinstance(found, list) else [found])
            if isinstance(each, int)
        )

    def model_files(self) -> Sequence[Path]:
        """Return the files of weights and the configuration."""
        return (self.model_folder / "config.json", *self._folder.weights)

    def build(self) -> Any:
        """Return the network with the weights in the folder."""
        shape = (None, min(_TRACED, self.context_length))
        network = load_network(self._folder, (TensorSpec("input_ids", shape, "int64"),))
        if not hasattr(network, "lm_head") and network.get_output_embeddings() is None:
            raise ArtifactError(
                f"{self.model_folder}: {type(network).__name__} continues no text; it has no "
                f"scores of tokens"
            )
        network.eval()
        if self.weight_bits is not None:
            self._quantize(network)
        return network

    def _quantize(self, network: Any) -> None:
        import torch

        try:
            import torchao  # noqa: F401
        except ImportError:
            raise MissingDependency(
                "--weight-bits needs torchao, which is not installed: pip install "
                "'nnpipe[torch-int8]'"
            ) from None
        with suppress_output():
            from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
            from torchao.quantization.granularity import PerGroup

            if self.weight_bits == "8":
                quantize_(network, Int8WeightOnlyConfig())
                return

            def is_divisible(module: Any, name: str) -> bool:
                return (
                    isinstance(module, torch.nn.Linear)
                    and module.in_features % self.group_size == 0
                )

            four = IntxWeightOnlyConfig(
                weight_dtype=torch.int4, granularity=PerGroup(self.group_size)
            )
            quantize_(network, four, filter_fn=is_divisible)

    def _write_export(self, path: Path) -> None:
        if self.weight_bits is not None:
            raise ConfigError(
                "--weight-bits is for PyTorch; leave it out, the compiler has its own option for "
                "that"
            )
        write_listing((*self.model_files(), self.model_folder / "tokenizer.json"), path)

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that generates in PyTorch, with the keys and values of earlier tokens
        kept.
        """
        ends = frozenset() if self.ignore_end else frozenset(self.end_tokens)
        return _Session(live.native, self.max_new_tokens, ends, self.num_threads)


class _Session(GenerationSession):
    def __init__(
        self, network: Any, max_new_tokens: int, ends: frozenset[int], num_threads: int
    ) -> None:
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
            found = self._network(
                input_ids=ids, past_key_values=kept, use_cache=True, return_dict=True
            )
            return int(found.logits[0, -1].argmax()), found.past_key_values

    def _log_likelihood(self, prompt: Ids, reference: Ids) -> float:
        torch, start = self._torch, len(prompt)
        with torch.inference_mode():
            ids = torch.from_numpy(prompt).tolist() + torch.from_numpy(reference).tolist()
            logits = self._network(
                input_ids=torch.tensor([ids]), use_cache=False, return_dict=True
            ).logits[0]
            scores = torch.log_softmax(logits[start - 1 : -1].double(), dim=-1)
            return float(scores.gather(1, torch.tensor(ids[start:])[:, None]).sum())

    def _close(self) -> None:
        self._torch.set_num_threads(self._threads_before)
        self._network = None
