from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from nnpipe.protocols.client.session import ClockRelation, Exchange, select_best_exchange

DELAYS = st.integers(0, 10**9)


def exchange(at: int, there: int, held: int, back: int, offset: int, ppm: int) -> Exchange:
    """What an exchange shows when the delays and the target's clock are known."""

    def target(host: int) -> int:
        return round(host + offset + Fraction(host * ppm, 10**6))

    return Exchange(at, target(at + there), target(at + there + held), at + there + held + back)


@given(st.integers(0, 10**15), DELAYS, DELAYS, DELAYS, st.integers(-(10**18), 10**18))
def test_the_offset_is_right_within_its_bound_however_the_delay_is_split(
    at: int, there: int, held: int, back: int, offset: int
) -> None:
    found = exchange(at, there, held, back, offset, 0)
    assert found.round_trip_ns == there + back
    # Far from zero, floats themselves are coarse.
    assert abs(found.offset_ns - offset) <= found.error_ns + abs(offset) * 1e-15


@given(
    st.lists(st.tuples(DELAYS, DELAYS), min_size=2, max_size=6),
    st.integers(-(10**14), 10**14),
    st.integers(-500, 500),
    st.floats(0, 1),
)
def test_times_are_related_within_the_stated_bound(
    delays: list[tuple[int, int]], offset: int, ppm: int, when: float
) -> None:
    start, span = 10**12, 10 * 10**9
    first = select_best_exchange([exchange(start, d[0], 0, d[1], offset, ppm) for d in delays])
    last = select_best_exchange(
        [exchange(start + span, d[0], 0, d[1], offset, ppm) for d in delays]
    )
    relation = ClockRelation(first, last)
    host = start + when * span
    shown = host + offset + host * ppm / 1e6
    # The exchanges lie at both ends; a line through two points, each right within the bound, is so
    # in between.
    slack = abs(ppm) * 1e-6 * max(d[0] + d[1] for d in delays) + 1000
    assert abs(relation.to_host(shown) - host) <= relation.error_ns * 1.01 + slack
    assert abs(relation.drift * 1e6 - ppm) <= (relation.drift_error * 1e6) * 1.01 + 1


def test_the_shortest_round_trip_is_the_best() -> None:
    found = select_best_exchange(
        [
            exchange(0, 5000, 10, 5000, 42, 0),
            exchange(0, 10, 10, 30, 42, 0),
            exchange(0, 100, 10, 100, 42, 0),
        ]
    )
    assert found.round_trip_ns == 40
    assert abs(found.offset_ns - 42) <= 21


def test_the_relation_can_be_written_as_json() -> None:
    import json

    relation = ClockRelation(exchange(0, 10, 5, 10, 7, 0), exchange(10**9, 10, 5, 10, 7, 0))
    found = json.loads(json.dumps(relation.to_json()))
    assert found["offset_ns"] == 7
    assert found["error_ns"] == 11
    assert found["drift_ppm"] == 0
