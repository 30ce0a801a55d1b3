from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from noise import (
    LIMITS,
    NONCES,
    TOKEN,
    Tape,
    pieces,
    replies,
    right_answers,
    torment,
    torment_host,
    torment_target,
)
from talk import feed

from nnpipe.protocols.conversation.target import TargetConversation


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_good_conversation_is_answered_the_same_however_it_is_cut(token: bytes | None) -> None:
    tape = Tape(token)
    for seed in range(50):
        target = TargetConversation(LIMITS, token, nonce=NONCES[1])
        said = b""
        for piece in pieces(tape.asked, random.Random(seed)):
            feed(target, piece)
            said += b"".join(replies(target))
        assert said == tape.answered


def test_a_host_takes_right_answers() -> None:
    assert torment_host(right_answers(), random.Random(0)) == 2, "one of OUTPUT, one of INFER"


@given(st.binary(max_size=400), st.integers(0, 1 << 30), st.sampled_from([None, TOKEN]))
def test_arbitrary_bytes_end_in_nothing_or_in_an_error_of_the_tree(
    data: bytes, seed: int, token: bytes | None
) -> None:
    torment_target(data, random.Random(seed), token)
    torment_host(data, random.Random(seed))


@pytest.mark.slow
def test_ten_thousand_noises() -> None:
    done = torment(10_000, seed=1)
    assert done["results"] > 0
    assert min(done.values()) > 100


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_noises() -> None:
    done = torment(1_000_000, seed=2)
    assert min(done.values()) > 1000
