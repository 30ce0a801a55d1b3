"""What boards tell of the flash and memory of a model; what they do not tell is not guessed."""

from __future__ import annotations

import pytest

from nnpipe.protocols.client.session import compute_board_memory, has_memory_sizes
from nnpipe.protocols.conversation.payloads import NO_GPU, Counter, Stats, pack_row

ABOUT = {"flash_bytes": 3000, "arena_bytes": 1000, "data_bytes": 8, "stack_predicted_bytes": 200}


def stats(*used: int, inferences: int = 3) -> Stats:
    rows = b"".join(pack_row(0, each, 0, NO_GPU, float("nan"), float("nan")) for each in used)
    return Stats(Counter.INSTRUCTIONS, 0, 1, 2, inferences, 4, rows)


def test_the_stack_is_what_was_used_beside_arena_and_data() -> None:
    assert compute_board_memory(ABOUT, stats(1208)) == {
        "flash_bytes": 3000,
        "arena_bytes": 1000,
        "data_bytes": 8,
        "stack_bytes": 200,
        "ram_bytes": 1208,
    }


def test_nothing_is_told_before_something_has_run() -> None:
    assert (
        compute_board_memory(ABOUT, stats())
        == compute_board_memory(ABOUT, stats(1008, inferences=0))
        == {}
    )


@pytest.mark.parametrize(
    "about", [{}, {"flash_bytes": 1}, ABOUT | {"data_bytes": "8"}, ABOUT | {"data_bytes": True}]
)
def test_other_targets_state_no_memory(about: dict[str, object]) -> None:
    assert not has_memory_sizes(about)
