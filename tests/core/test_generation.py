"""Sessions that generate tokens keep the time of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from nnpipe.core.errors import NNPipeError
from nnpipe.core.generation import PROMPT, REFERENCE, REQUEST_NS, TOKEN_NS, TOKENS, GenerationSession, Ids

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
