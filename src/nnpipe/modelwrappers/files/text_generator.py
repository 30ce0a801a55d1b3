"""The base of models that answer prompts with text, token by token."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ArtifactError, ConfigError, NotSupported
from nnpipe.core.generation import NONE, PROMPT, REFERENCE, TOKENS, generation_io
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.model_folder import LISTING, check_listing, write_listing
from nnpipe.frameworks.text_tokenizer import TextTokenizer

if TYPE_CHECKING:
    from typing_extensions import Self


class TextGenerator(ModelWrapper):
    """A model that answers prompts with text, from a folder with its tokenizer.

    Texts are tokenised before the measured time begins.  The most likely token is taken each time, so that answers can
    be repeated and compared.
    """

    abstract: ClassVar[bool] = True
    makes_weights: ClassVar[bool] = True
    weights_format: ClassVar[str] = LISTING
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages whose versions are recorded with the model."""

    model_folder: Path = argument(help="the folder with the model and its tokenizer.json", metavar="FOLDER")
    max_new_tokens: int = argument(64, help="greatest number of tokens of an answer", minimum=1, maximum=1 << 20)
    ignore_end: bool = argument(
        False, help="go on after the token that ends an answer, so that all answers are equally long"
    )
    num_threads: int = argument(1, help="threads that generating may use; 0 leaves it to the runtime", minimum=0)

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
        """Return the files of the network and its weights, which are checked before anything is loaded."""

    def _write_export(self, path: Path) -> None:
        """Write the model in the format of ``exports``; by default there is none."""

    # -- what all of them do ----------------------------------------------------------------------

    @property
    def io(self) -> IOSpec:
        """The ids of the tokens of a prompt and of its reference; tokens and their times."""
        return generation_io(self.max_new_tokens)

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
                f"{path}: has {found.size:,} tokens, and the model beside it takes {self.vocabulary_size:,}"
            )
        return found

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper after a check that the data set gives prompts."""
        if not any(each.name == "prompt" and each.dtype == "string" for each in spec.inputs):
            given = ", ".join(each.name for each in spec.inputs)
            raise ConfigError(f"{type(self).__name__} answers prompts, the data set gives {given}; use PromptsDataset")
        return self

    def preprocess(self, inputs: Batch) -> Batch:
        """Tokenise a prompt and its reference; answers and prompts must fit into the model's context together."""
        if len(inputs["prompt"]) != 1:
            raise ConfigError(f"{type(self).__name__} answers one prompt at a time: give --inference-batch-size 1")
        prompt = self.tokenizer.encode(str(inputs["prompt"][0]))
        reference = self.tokenizer.encode(str(inputs["reference"][0]), special=False)
        if not len(prompt):
            raise ConfigError(f"the prompt {str(inputs['prompt'][0])[:40]!r} has no token")
        longest = max(self.max_new_tokens, len(reference))
        if len(prompt) + longest > self.context_length:
            raise ConfigError(
                f"the prompt {str(inputs['prompt'][0])[:40]!r} has {len(prompt):,} tokens; with {longest:,} of its "
                f"answer that is more than the {self.context_length:,} of {self.model_folder}: shorten it, or give "
                "--max-new-tokens"
            )
        return {PROMPT: prompt[None], REFERENCE: reference[None]}

    def postprocess(self, outputs: Batch) -> Batch:
        """Add the text of the tokens."""
        texts = [self.tokenizer.decode(row[row != NONE]) for row in outputs[TOKENS]]
        return {**outputs, "text": np.array(texts, object)}

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Load the folder's network again, after a check that its files are those of the list at ``path``.

        Raises
        ------
        ArtifactError
            If a file is missing, damaged, or not as it was.
        """
        check_listing(self.model_files(), Path(path))
        live.native = self.fresh()

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write a list of the folder's files with their checksums; the network stays where it is."""
        write_listing(self.model_files(), Path(path))
        return self._described(path, LISTING)

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model in a format that compilers or runtimes take."""
        if format not in self.exports:
            raise NotSupported(f"{type(self).__name__} cannot be exported as {format}")
        self._write_export(Path(path))
        return self._described(path, format)

    def _described(self, path: str | Path, format: str) -> Artifact:
        return self.artifact_of(path, format, tuple((name, version(name)) for name in self.packages))
