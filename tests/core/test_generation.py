"""Sessions that generate tokens keep the time of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from nnpipe.core.errors import NNPipeError
from nnpipe.core.generation import (
    LOG_LIKELIHOOD,
    PROMPT,
    REFERENCE,
    REFERENCE_TOKENS,
    REQUEST_NS,
    TOKEN_NS,
    TOKEN_PROBABILITY,
    TOKENS,
    GenerationSession,
    Ids,
)

MS = 1_000_000


@dataclass
class OwnClock:
    """A clock that only moves when it is told to."""

    now: int = 0
    moves: list[int] = field(default_factory=list)

    def __call__(self) -> int:
        return self.now

    def sleep(self, nanoseconds: int) -> None:
        self.now += nanoseconds


class Delayed(GenerationSession):
    """Gives the tokens 7, 8, 9 ..., each after its delay."""

    def __init__(self, clock: OwnClock, delays: Sequence[int], max_new_tokens: int = 8) -> None:
        super().__init__(max_new_tokens, clock)
        self.clock, self.delays, self.closed_streams = clock, delays, 0

    def _generate(self, prompt: Ids, max_new_tokens: int) -> Iterator[int]:
        try:
            for number, delay in enumerate(self.delays):
                self.clock.sleep(delay)
                yield 7 + number
        finally:
            self.closed_streams += 1


def asked(session: GenerationSession) -> dict[str, np.ndarray]:
    return session.infer({PROMPT: np.array([[1, 2, 3]]), REFERENCE: np.zeros((1, 0), np.int64)})


def test_each_token_has_the_time_since_the_one_before_and_the_first_since_the_request() -> None:
    with Delayed(OwnClock(), [5 * MS, MS, 2 * MS]) as session:
        answer = asked(session)
        session.io.check_outputs(answer)
    assert answer[TOKENS][0].tolist() == [7, 8, 9, -1, -1, -1, -1, -1]
    assert answer[TOKEN_NS][0, :3].tolist() == [5 * MS, MS, 2 * MS]
    assert answer[REQUEST_NS].tolist() == [8 * MS]


def test_no_more_tokens_are_taken_than_asked_for_and_the_stream_is_closed() -> None:
    with Delayed(OwnClock(), [MS] * 100, max_new_tokens=4) as session:
        answer = asked(session)
        assert list(session.generate(np.array([1]))) == [7, 8, 9, 10]
    assert (answer[TOKENS][0] >= 0).all()
    assert answer[REQUEST_NS].tolist() == [4 * MS]
    assert session.closed_streams == 2


def test_a_closed_session_generates_nothing() -> None:
    session = Delayed(OwnClock(), [MS])
    session.close()
    with pytest.raises(NNPipeError, match="closed"):
        next(session.generate(np.array([1])))


def test_parts_of_a_requests_time_are_compared_by_themselves() -> None:
    with Delayed(OwnClock(), [5 * MS, MS, 2 * MS]) as session:
        assert session.durations(asked(session)) == {"ttft": 5 * MS, "tpot": 1_500_000}
    with Delayed(OwnClock(), [5 * MS]) as session:
        assert session.durations(asked(session)) == {"ttft": 5 * MS}
    with Delayed(OwnClock(), []) as session:
        assert session.durations(asked(session)) == {}


def test_another_model_is_asked_for_the_probability_of_the_own_answer() -> None:
    batch = {PROMPT: np.array([[1, 2]]), REFERENCE: np.zeros((1, 0), np.int64)}
    with Delayed(OwnClock(), [MS, MS]) as session:
        answer = session.infer(batch)
        assert session.get_comparison_inputs(batch, answer)[REFERENCE].tolist() == [[7, 8]]
        given = {**batch, REFERENCE: np.array([[4]])}
        assert session.get_comparison_inputs(given, answer) is given
        outputs = {**answer, LOG_LIKELIHOOD: np.log([0.25]), REFERENCE_TOKENS: np.array([2])}
        compared = session.get_comparison_outputs(outputs)
    assert compared[TOKEN_PROBABILITY] == pytest.approx([0.5])
    assert TOKEN_NS not in compared
    assert TOKENS not in compared
