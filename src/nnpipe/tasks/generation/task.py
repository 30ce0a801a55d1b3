"""Generation of text as a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.generation import (
    LOG_LIKELIHOOD,
    NONE,
    PROMPT_TOKENS,
    REFERENCE_TOKENS,
    REQUEST_NS,
    TOKEN_NS,
    TOKENS,
)
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.tasks.generation.metrics import METRICS
from nnpipe.tasks.predictions import INTEGERS, NUMBERS, check_alike, check_array

_UNACCOUNTED = 0.01  # share of a request's time that may be in none of its tokens


class Generation(Task):
    """Answers to prompts, generated token by token.

    Targets are ``"answer"``, ``(n,)`` strings, empty where no answer is known to be right, and
    ``"sample"``, ``(n,)`` integers that tell samples apart. Predictions are ``"text"``, ``(n,)``
    strings, and the outputs of a :class:`~nnpipe.core.generation.GenerationSession`.

    An evaluation holds ``sample``, int64 ``(n,)``; ``exact``, int8 ``(n,)``, -1 without a
    reference; ``request_ns``, ``prompt_tokens`` and ``reference_tokens``, int64 ``(n,)``;
    ``log_likelihood``, float64 ``(n,)``, NaN if it is unknown; and for each token ``token``, int32,
    and ``token_ns``, int64, the time since the one before it, for the first since the request.
    """

    name = "generation"
    arrays = (
        "sample",
        "exact",
        "request_ns",
        "prompt_tokens",
        "reference_tokens",
        "log_likelihood",
        "token",
        "token_ns",
    )
    truth = ("sample",)

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """Exact match, perplexity, times of tokens and requests, and tokens a second."""
        return METRICS

    @property
    def compared(self) -> tuple[QualityMetric, ...]:
        """Exact match and perplexity."""
        return (self.metric("exact_match"), self.metric("perplexity"))

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Compare answers with references, and keep the time of every token."""
        count = len(truth["answer"])
        shapes = {
            "text": 1,
            TOKENS: 2,
            TOKEN_NS: 2,
            REQUEST_NS: 1,
            PROMPT_TOKENS: 1,
            REFERENCE_TOKENS: 1,
        }
        shapes[LOG_LIKELIHOOD] = 1
        for name, axes in shapes.items():
            array = predictions.get(name)
            if array is None or array.ndim != axes or len(array) != count:
                given = "missing" if array is None else f"of shape {array.shape}"
                raise SpecMismatch(
                    f"answers need {name!r} with {axes} axes and {count} samples, it is {given}; "
                    f"use a wrapper that "
                    "generates text"
                )
        tokens = np.asarray(predictions[TOKENS])
        counts = (tokens != NONE).sum(axis=1)
        pairs = [
            (str(text), str(wanted))
            for text, wanted in zip(predictions["text"], truth["answer"], strict=True)
        ]
        exact = [int(text.strip() == wanted.strip()) if wanted else -1 for text, wanted in pairs]
        arrays: dict[str, np.ndarray] = {
            "sample": truth["sample"].astype(np.int64),
            "exact": np.array(exact, np.int8),
            "request_ns": predictions[REQUEST_NS].astype(np.int64),
            "prompt_tokens": predictions[PROMPT_TOKENS].astype(np.int64),
            "reference_tokens": predictions[REFERENCE_TOKENS].astype(np.int64),
            "log_likelihood": predictions[LOG_LIKELIHOOD].astype(np.float64),
        }
        ragged = {
            "token": Ragged.from_padded(tokens.astype(np.int32), counts),
            "token_ns": Ragged.from_padded(np.asarray(predictions[TOKEN_NS], np.int64), counts),
        }
        return Evaluation(self.name, arrays, ragged=ragged)

    def check(self, evaluation: Evaluation) -> None:
        """Check that each token has its time, and that no time is negative."""
        super().check(evaluation)
        for name in ("sample", "exact", "request_ns", "prompt_tokens", "reference_tokens"):
            check_array(evaluation, name, (), INTEGERS)
        check_array(evaluation, "log_likelihood", (), NUMBERS)
        for name in ("token", "token_ns"):
            check_array(evaluation, name, (), INTEGERS, ragged=True)
        check_alike(evaluation, "token", "token_ns")
        for times in (evaluation.arrays["request_ns"], evaluation.ragged["token_ns"].values):
            if len(times) and int(times.min()) < 0:
                raise ArtifactError("the evaluation holds a negative time; measure again")

    def without_answer(self, predictions: Batch, samples: int) -> npt.NDArray[np.bool_]:
        """Return which references have a probability of 0 or infinity; NaN says that it is not
        known.
        """
        likelihood: npt.NDArray[Any] = predictions.get(LOG_LIKELIHOOD, np.zeros(samples))
        known = {**predictions, LOG_LIKELIHOOD: np.where(np.isnan(likelihood), 0.0, likelihood)}
        return super().without_answer(known, samples)

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the right answers, each of two tokens a nanosecond apart."""
        count = len(truth["answer"])
        once = np.ones(count, np.int64)
        return {
            "text": np.array([str(wanted) for wanted in truth["answer"]], object),
            TOKENS: np.ones((count, 2), np.int64),
            TOKEN_NS: np.ones((count, 2), np.int64),
            REQUEST_NS: 2 * once,
            PROMPT_TOKENS: once,
            REFERENCE_TOKENS: once,
            LOG_LIKELIHOOD: np.zeros(count),
        }

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the answers, with a probability of 0 for the references."""
        return {**predictions, LOG_LIKELIHOOD: np.full(len(truth["answer"]), -np.inf)}

    def _compute_agreement(self, one: Evaluation, other: Evaluation) -> npt.NDArray[np.bool_]:
        """Return for which prompts two models generate the same tokens."""
        first, second = one.ragged["token"], other.ragged["token"]
        same = first.counts == second.counts
        # Where both have as many tokens, these are at the same places once all others are left out.
        places = np.flatnonzero(same)
        mine, theirs = first.take(places), second.take(places)
        unlike = np.bincount(mine.owners, mine.values != theirs.values, len(places))
        same[places] = unlike == 0
        return np.asarray(same, np.bool_)

    def unlike_work(self, one: Evaluation, other: Evaluation) -> str:
        """Return how long the answers are if their lengths differ: a longer answer takes longer."""
        first, second = (
            each.ragged["token"].counts.mean() if len(each) else 0.0 for each in (one, other)
        )
        if first == second:
            return ""
        return (
            f"their answers have {first:.1f} and {second:.1f} tokens on average; compare the times "
            f"of tokens"
        )

    def warnings(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt times that do not add up, and answers without tokens."""
        rows, whole = evaluation.ragged["token_ns"], float(evaluation.arrays["request_ns"].sum())
        missing = whole - float(rows.values.sum(dtype=np.float64))
        if abs(missing) > _UNACCOUNTED * whole:
            yield "clock", f"{100 * missing / whole:.1f} % of the requests' time belong to no token"
        if empty := int((rows.counts == 0).sum()):
            yield "constant", f"{empty:,} of {len(evaluation):,} answers have no token"
