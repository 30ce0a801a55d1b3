"""The interface of sessions that generate tokens one at a time, and keep the time of each."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec

TOKENS, TOKEN_NS, REQUEST_NS = "tokens", "token_ns", "request_ns"
PROMPT, REFERENCE = "prompt_ids", "reference_ids"
PROMPT_TOKENS, REFERENCE_TOKENS, LOG_LIKELIHOOD = (
    "prompt_tokens",
    "reference_tokens",
    "reference_log_likelihood",
)
TOKEN_PROBABILITY = "token_probability"
NONE = -1
"""Fills the places behind the last token."""

Ids = npt.NDArray[np.int64]


def build_generation_io(max_new_tokens: int) -> IOSpec:
    """Return the inputs and outputs of a session that generates at most this number of tokens for
    one prompt.

    The inputs are the ids of a prompt's tokens and those of a reference answer, which may be none.
    The outputs are the generated tokens; for each the nanoseconds since the token before, for the
    first since the request; the nanoseconds of the whole request; the numbers of tokens of the
    prompt and of the reference; and the natural logarithm of the probability that the model gives
    to the reference as the answer, NaN if it is not known.
    """
    counts = tuple(
        TensorSpec(name, (1,), "int64") for name in (REQUEST_NS, PROMPT_TOKENS, REFERENCE_TOKENS)
    )
    return IOSpec(
        (TensorSpec(PROMPT, (1, None), "int64"), TensorSpec(REFERENCE, (1, None), "int64")),
        (
            TensorSpec(TOKENS, (1, max_new_tokens), "int64"),
            TensorSpec(TOKEN_NS, (1, max_new_tokens), "int64"),
            *counts,
            TensorSpec(LOG_LIKELIHOOD, (1,), "float64"),
        ),
    )


class GenerationSession(InferenceSession):
    """A model that generates tokens one at a time, loaded and ready to run.

    A run answers one prompt, as :func:`build_generation_io` says, and takes the time of each token.
    Authors write ``_generate`` and, if the model tells probabilities, ``_log_likelihood``.

    Parameters
    ----------
    max_new_tokens
        The greatest number of tokens of an answer.
    clock
        The clock, in nanoseconds.

    Examples
    --------
    >>> class Counting(GenerationSession):
    ...     def _generate(self, prompt, max_new_tokens):
    ...         yield from range(prompt[-1] + 1, prompt[-1] + 1 + max_new_tokens)
    >>> with Counting(max_new_tokens=3) as session:
    ...     list(session.generate(np.array([5, 6])))
    [7, 8, 9]
    >>> with Counting(max_new_tokens=3) as session:
    ...     answer = session.infer({PROMPT: np.array([[5, 6]]), REFERENCE: np.zeros((1, 0), np.int64)})
    >>> answer["tokens"], bool(answer["token_ns"].sum() <= answer["request_ns"][0])
    (array([[7, 8, 9]]), True)
    """

    varying: ClassVar[frozenset[str]] = frozenset({TOKEN_NS, REQUEST_NS})

    def __init__(
        self, max_new_tokens: int, clock: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        check_call(GenerationSession, locals())
        self.io = build_generation_io(max_new_tokens)
        self._max_new_tokens = max_new_tokens
        self._clock = clock
        self._prompt: Ids = np.zeros(0, np.int64)
        self._reference: Ids = np.zeros(0, np.int64)
        self._tokens: list[int] = []
        self._arrivals: list[int] = []
        self._start = self._end = 0

    def generate(self, prompt: npt.NDArray[np.integer]) -> Iterator[int]:
        """Yield the tokens of the answer to a prompt, each as soon as it is known.

        Parameters
        ----------
        prompt
            The ids of the prompt's tokens, ``(n,)`` integers.
        """
        self._check_open()
        for number, token in enumerate(
            self._generate(np.asarray(prompt, np.int64), self._max_new_tokens), 1
        ):
            yield token
            if number >= self._max_new_tokens:
                return

    def get_comparison_inputs(self, batch: Batch, outputs: Batch) -> Batch:
        """Return a prompt with the model's own answer where it has no reference.

        Models are compared by the probability that they give to the same answer: after one token
        that differs, their own answers are different texts.
        """
        answer = outputs[TOKENS][0]
        answer = answer[answer != NONE]
        return (
            batch
            if batch[REFERENCE].shape[1] or not len(answer)
            else {**batch, REFERENCE: answer[None]}
        )

    def get_comparison_outputs(self, outputs: Batch) -> dict[str, np.ndarray]:
        """Return the geometric mean of the probabilities of a reference's tokens, one by the
        perplexity.
        """
        likelihood, tokens = outputs[LOG_LIKELIHOOD], np.maximum(outputs[REFERENCE_TOKENS], 1)
        return {
            TOKEN_PROBABILITY: np.exp(likelihood / tokens),
            PROMPT_TOKENS: outputs[PROMPT_TOKENS],
        }

    def durations(self, outputs: Batch) -> dict[str, int]:
        """Return the time to the first token (TTFT), and the mean time of each later one (TPOT)."""
        times = outputs[TOKEN_NS][0]
        times = times[times != NONE]
        found = {"ttft": int(times[0])} if len(times) else {}
        return {**found, "tpot": int(times[1:].mean())} if len(times) > 1 else found

    @abstractmethod
    def _generate(self, prompt: Ids, max_new_tokens: int) -> Iterator[int]:
        """Yield at most this number of tokens, each when it is known; the iterator is closed when
        no more are wanted.

        All work on the prompt belongs into the iterator, too: it is part of the time to the first
        token.
        """

    def _log_likelihood(self, prompt: Ids, reference: Ids) -> float | None:
        """Return the natural logarithm of the probability of an answer; ``None`` if the model
        does not tell.
        """
        return None

    def _put(self, batch: Batch) -> None:
        self._prompt, self._reference = batch[PROMPT][0].copy(), batch[REFERENCE][0].copy()

    def _run(self) -> None:
        clock, limit = self._clock, self._max_new_tokens
        tokens: list[int] = []
        arrivals: list[int] = []
        start = clock()
        stream = self._generate(self._prompt, limit)
        for token in stream:
            arrivals.append(clock())
            tokens.append(token)
            if len(tokens) == limit:
                break
        self._start, self._end = start, clock()
        self._tokens, self._arrivals = tokens, arrivals
        if (close := getattr(stream, "close", None)) is not None:
            close()

    def _get(self) -> dict[str, np.ndarray]:
        tokens, times = (np.full((1, self._max_new_tokens), NONE, np.int64) for _ in range(2))
        count = len(self._tokens)
        tokens[0, :count] = self._tokens
        times[0, :count] = np.diff(self._arrivals, prepend=self._start)
        known = (
            self._log_likelihood(self._prompt, self._reference) if len(self._reference) else None
        )
        # NaN says that a model does not tell: probabilities that are no numbers are none that it
        # gives.
        likelihood = math.nan if known is None else known if math.isfinite(known) else -math.inf
        return {
            TOKENS: tokens,
            TOKEN_NS: times,
            REQUEST_NS: np.array([self._end - self._start], np.int64),
            PROMPT_TOKENS: np.array([len(self._prompt)], np.int64),
            REFERENCE_TOKENS: np.array([len(self._reference)], np.int64),
            LOG_LIKELIHOOD: np.array([likelihood]),
        }
