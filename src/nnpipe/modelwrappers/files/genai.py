"""Language models for onnxruntime-genai, which its model builder writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.files import replacing
from nnpipe.core.live_model import LiveModel
from nnpipe.core.session import InferenceSession
from nnpipe.formats.genai_archive import GENAI, write_genai_archive
from nnpipe.formats.genai_folder import CONFIGURATION, GenAIFolder, read_genai_folder
from nnpipe.frameworks.genai import GenAISession, open_genai
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
        with replacing(path) as temporary:
            write_genai_archive(temporary, self._folder.path, self.io)
