"""Queues before shared devices, in both backends: one holds a device, in the order of asking,
until it expires.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.device_queues import DeviceQueues


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queues(database: RunDatabase, clock: Clock) -> DeviceQueues:
    return DeviceQueues(database._connections, clock)


def test_who_comes_first_holds_it_and_then_the_next(queues: DeviceQueues, clock: Clock) -> None:
    anna, bert = (queues.ask("board", name, "a sweep", 10) for name in ("anna", "bert"))
    assert bert > anna
    assert queues.advance(bert, 10) is False
    assert queues.advance(anna, 10) is True
    clock.now += 1
    first, second = queues.list_tickets("board")
    assert (first.holder, first.granted, first.asked, second.holder, second.granted) == (
        "anna",
        1000,
        1000,
        "bert",
        None,
    )
    assert queues.release(anna)
    assert queues.advance(bert, 10) is True
    assert [(each.holder, each.granted) for each in queues.list_tickets("board")] == [
        ("bert", 1001)
    ]


def test_devices_have_queues_of_their_own(queues: DeviceQueues) -> None:
    one, other = (queues.ask(name, "anna", "a sweep", 10) for name in ("board", "phone"))
    assert queues.advance(other, 10) is True
    assert queues.advance(one, 10) is True
    assert [each.device for each in queues.list_tickets()] == ["board", "phone"]


@pytest.mark.parametrize("granted", [True, False])
def test_who_was_killed_is_passed_over_after_a_while_and_never_holds_it_again(
    queues: DeviceQueues, clock: Clock, granted: bool
) -> None:
    dead, alive = (queues.ask("board", name, "a sweep", 10) for name in ("anna", "bert"))
    if granted:
        assert queues.advance(dead, 10) is True
    clock.now += 9
    assert queues.advance(alive, 10) is False
    clock.now += 2
    assert [each.holder for each in queues.list_tickets("board")] == ["bert"]
    assert queues.advance(dead, 10) is None
    assert queues.advance(alive, 10) is True
    assert not queues.release(dead)
    assert queues.ask("board", "anna", "a sweep", 10) > alive


def test_a_lease_that_expired_was_not_valid_until_now(queues: DeviceQueues, clock: Clock) -> None:
    number = queues.ask("board", "anna", "a sweep", 10)
    assert queues.advance(number, 10) is True
    clock.now += 11
    assert not queues.release(number)


def test_numbers_are_never_given_twice(queues: DeviceQueues) -> None:
    first = queues.ask("board", "anna", "a sweep", 10)
    queues.release(first)
    assert queues.ask("board", "anna", "a sweep", 10) > first


def test_one_of_many_holds_it_at_a_time(opened: Callable[..., RunDatabase]) -> None:
    holding: list[int] = []
    most, faults = 0, 0

    def work() -> None:
        nonlocal most, faults
        queues = opened().devices
        for _ in range(5):
            number = queues.ask("board", "anna", "a sweep", 60)
            while not queues.advance(number, 60):
                pass
            holding.append(number)
            most = max(most, len(holding))
            holding.remove(number)
            faults += not queues.release(number)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (most, faults, holding) == (1, 0, [])
    assert opened().devices.list_tickets() == []
