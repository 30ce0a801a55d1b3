"""Language models for onnxruntime-genai, which its model builder writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.errors import ArtifactError
from nnpipe.core.generation import GenerationSession, Ids
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import one_line
from nnpipe.core.session import InferenceSession
from nnpipe.formats.genai_folder import CONFIGURATION, GenAIFolder, read_genai_folder
from nnpipe.frameworks.framework_output import hushed
from nnpipe.modelwrappers.files.text_generator import TextGenerator


class ONNXRuntimeGenAIModel(TextGenerator):
    """A language model from a folder that the model builder of onnxruntime-genai wrote.

    ``python -m onnxruntime_genai.models.builder -i FOLDER -o OUT -p int4 -e cpu -c CACHE`` writes one from a folder of
    transformers, with weights of 4 bits; ``-p fp32`` leaves them.  Only models for the CPU are loaded.
    """

    framework: ClassVar[str] = "ONNX Runtime GenAI"
    requires: ClassVar[tuple[str, ...]] = ("onnxruntime_genai", "tokenizers")
    install: ClassVar[str] = "nnpipe[genai]"
    packages: ClassVar[tuple[str, ...]] = ("onnxruntime-genai", "onnxruntime")

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
        _ = self._folder  # refuses what would load other code
        import onnxruntime_genai

        overlay = {"model": {"decoder": {"session_options": {"intra_op_num_threads": self.num_threads}}}}
        try:
            with hushed():
                config = onnxruntime_genai.Config(str(self.model_folder))
                if self.num_threads:
                    config.overlay(json.dumps(overlay))
                return onnxruntime_genai.Model(config)
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(f"{self.model_folder}: onnxruntime-genai cannot load it: {one_line(error)}") from None

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that generates with onnxruntime-genai."""
        ends = frozenset() if self.ignore_end else frozenset(self._folder.end_tokens)
        return _Session(live.native, self.max_new_tokens, ends, self.ignore_end)


class _Session(GenerationSession):
    def __init__(self, model: Any, max_new_tokens: int, ends: frozenset[int], ignore_end: bool) -> None:
        import onnxruntime_genai

        super().__init__(max_new_tokens)
        self._genai, self._model, self._ends, self._ignore_end = onnxruntime_genai, model, ends, ignore_end

    def _generator(self, length: int, least: int) -> Any:
        options = self._genai.GeneratorParams(self._model)
        options.set_search_options(max_length=length, min_length=least, do_sample=False, num_beams=1)
        return self._genai.Generator(self._model, options)

    def _generate(self, prompt: Ids, max_new_tokens: int) -> Iterator[int]:
        length = len(prompt) + max_new_tokens
        generator = self._generator(length, length if self._ignore_end else 0)
        generator.append_tokens(prompt[None].astype(np.int32))
        for _ in range(max_new_tokens):
            generator.generate_next_token()
            token = int(generator.get_next_tokens()[0])
            yield token
            if token in self._ends or generator.is_done():
                return

    def _log_likelihood(self, prompt: Ids, reference: Ids) -> float:
        ids = np.concatenate([prompt, reference])
        generator = self._generator(len(ids) + 1, 0)
        generator.append_tokens(ids[None].astype(np.int32))
        logits = generator.get_output("logits")[0].astype(np.float64)
        if len(logits) != len(ids):  # a model that was built to give the last token's alone
            return float("nan")
        logits = logits[len(prompt) - 1 : -1]
        greatest = logits.max(axis=1, keepdims=True)
        normaliser = greatest[:, 0] + np.log(np.exp(logits - greatest).sum(axis=1))
        return float((logits[np.arange(len(reference)), reference] - normaliser).sum())

    def _close(self) -> None:
        self._model = None
