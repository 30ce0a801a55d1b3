"""Turns on devices that several people share."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.tools.installed import needs

from nnpipe.core.errors import NNPipeError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.scenarios.devices import main
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.devices.device_measuring import (
    DeviceLeaseLost,
    DeviceTurns,
    describe_process,
    describe_queue,
)

needs("sqlalchemy")

BOARD = Device("board", NetworkProtocol(port=1))


def test_two_sweeps_take_turns_measurement_by_measurement(tmp_path: Path) -> None:
    address, order = str(tmp_path / "leases.sqlite"), []
    ready = threading.Barrier(2)

    def sweep(name: str) -> None:
        with DeviceTurns(address, f"the sweep {name}") as turns:
            ready.wait(20)
            for _ in range(6):
                with turns.lock_device(BOARD):
                    order.append(name)
                    time.sleep(0.02)

    threads = [threading.Thread(target=sweep, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(order) == ["a"] * 6 + ["b"] * 6
    changes = sum(one != other for one, other in itertools.pairwise(order))
    # only the first turns, before both have asked, may go to one of them
    assert changes >= 9, order


def test_a_lease_is_renewed_while_it_is_held(tmp_path: Path) -> None:
    with (
        DeviceTurns(str(tmp_path / "leases.sqlite"), "a test", seconds=0.4) as turns,
        turns.lock_device(BOARD),
    ):
        time.sleep(1)


def test_a_lease_that_was_lost_makes_the_measurement_void(tmp_path: Path) -> None:
    address = tmp_path / "leases.sqlite"
    with DeviceTurns(str(address), "a test") as turns, RunDatabase(address) as database:

        def lose() -> None:
            (mine,) = database.devices.list_tickets()
            database.devices.release(mine.number)

        def fail() -> None:
            raise ZeroDivisionError

        with (
            pytest.raises(DeviceLeaseLost, match="board: its lease expired"),
            turns.lock_device(BOARD),
        ):
            lose()
        with pytest.raises(ZeroDivisionError), turns.lock_device(BOARD):
            fail()
        assert database.devices.list_tickets() == []


def test_closing_ends_the_waiting_of_others(tmp_path: Path) -> None:
    address, ended = str(tmp_path / "leases.sqlite"), threading.Event()
    with DeviceTurns(address, "first") as first, first.lock_device(BOARD):
        turns = DeviceTurns(address, "second")

        def wait() -> None:
            with pytest.raises(NNPipeError), turns.lock_device(BOARD):
                pass
            ended.set()

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
        turns.close()
        assert ended.wait(20)
        thread.join(20)


def test_the_command_tells_who_holds_a_device_since_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    address = str(tmp_path / "leases.sqlite")
    Path("devices.yaml").write_text(
        f"leases: {address}\n"
        "devices:\n"
        "  - {name: board, protocol: NetworkProtocol}\n"
        "  - {name: phone, protocol: NetworkProtocol}\n",
        "utf-8",
    )
    with (
        RunDatabase(address) as database,
        DeviceTurns(address, "the sweep 'digits'") as turns,
        turns.lock_device(BOARD),
    ):
        database.devices.ask("board", "bert@lab", "a test", 60)
        (held, _) = database.devices.list_tickets("board")
        assert main(["list"]) == 0
        told = capsys.readouterr().out
        assert f"held by {describe_process()} since 20" in told
        assert "UTC for the sweep 'digits', with 1 in the queue" in told
        assert describe_queue([held]) in told
    assert main(["list", "phone"]) == 0
    assert "free" in capsys.readouterr().out
