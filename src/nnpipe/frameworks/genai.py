"""Generating with onnxruntime-genai."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError
from nnpipe.core.generation import GenerationSession, Ids
from nnpipe.core.messages import format_one_line
from nnpipe.core.tensors import Batch
from nnpipe.formats.model_folder import GenAIFolder
from nnpipe.frameworks.runtime_failures import suppress_output


def open_genai(folder: GenAIFolder, num_threads: int, name: Path | None = None) -> Any:
    """Return the model of onnxruntime-genai in a folder that has been checked.

    Parameters
    ----------
    folder
        The folder.
    num_threads
        Threads that generating may use; 0 leaves it to onnxruntime-genai.
    name
        The file to name in messages; by default the folder.

    Raises
    ------
    ArtifactError
        If onnxruntime-genai cannot load it.
    """
    import onnxruntime_genai

    overlay = {"model": {"decoder": {"session_options": {"intra_op_num_threads": num_threads}}}}
    try:
        with suppress_output():
            config = onnxruntime_genai.Config(str(folder.path))
            if num_threads:
                config.overlay(json.dumps(overlay))
            return onnxruntime_genai.Model(config)
    except Exception as error:  # its errors share no base but Exception
        raise ArtifactError(
            f"{name or folder.path}: onnxruntime-genai cannot load it: {format_one_line(error)}"
        ) from None


class GenAISession(GenerationSession):
    """Generates with a model of onnxruntime-genai; the most likely token is taken each time.

    Parameters
    ----------
    model
        The model that :func:`open_genai` returned.
    max_new_tokens
        The greatest number of tokens of an answer.
    ends
        The tokens that end an answer; with none, all answers are equally long.
    release
        Called when the session is closed.
    """

    def __init__(
        self,
        model: Any,
        max_new_tokens: int,
        ends: frozenset[int],
        release: Callable[[], None] = lambda: None,
    ) -> None:
        import onnxruntime_genai

        super().__init__(max_new_tokens)
        self._genai, self._model, self._ends, self._release = (
            onnxruntime_genai,
            model,
            ends,
            release,
        )
        self._last: Any = None

    def _put(self, batch: Batch) -> None:
        self._last = None
        super()._put(batch)

    def _create_generator(self, length: int, least: int) -> Any:
        options = self._genai.GeneratorParams(self._model)
        options.set_search_options(
            max_length=length, min_length=least, do_sample=False, num_beams=1
        )
        return self._genai.Generator(self._model, options)

    def _generate(self, prompt: Ids, max_new_tokens: int) -> Iterator[int]:
        length = len(prompt) + max_new_tokens
        # It is kept until the next request: freeing it is no part of the time of this one.
        self._last = generator = self._create_generator(length, 0 if self._ends else length)
        generator.append_tokens(prompt[None].astype(np.int32))
        for _ in range(max_new_tokens):
            generator.generate_next_token()
            token = int(generator.get_next_tokens()[0])
            yield token
            if token in self._ends or generator.is_done():
                return

    def _log_likelihood(self, prompt: Ids, reference: Ids) -> float | None:
        ids = np.concatenate([prompt, reference])
        generator = self._create_generator(len(ids) + 1, 0)
        generator.append_tokens(ids[None].astype(np.int32))
        logits = generator.get_output("logits")[0].astype(np.float64)
        if len(logits) != len(ids):  # a model that was built to give the last token's alone
            return None
        logits = logits[len(prompt) - 1 : -1]
        greatest = logits.max(axis=1, keepdims=True)
        normaliser = greatest[:, 0] + np.log(np.exp(logits - greatest).sum(axis=1))
        return float((logits[np.arange(len(reference)), reference] - normaliser).sum())

    def _close(self) -> None:
        self._last = self._model = None
        self._release()
