"""Workers of a machine train side by side, and measure alone."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nnpipe.workflows.workers.machine_turns import MachineTurns, is_of_kind

if sys.platform == "win32":
    pytest.skip("files are locked by flock", allow_module_level=True)


def test_who_measures_is_alone_and_those_who_train_are_not(tmp_path: Path) -> None:
    turns = MachineTurns(tmp_path / "turns")
    together, begun, measured = (
        threading.Barrier(2, timeout=30),
        threading.Event(),
        threading.Event(),
    )
    inside: list[int] = []

    def train() -> None:
        with turns.acquire_shared():
            together.wait()  # both are at work at the same time
            begun.set()
            assert not measured.wait(0.2)  # nobody measures meanwhile

    def measure() -> None:
        begun.wait(30)
        with turns.acquire_exclusive():
            inside.append(1)
            measured.set()
            assert inside == [1]
            inside.pop()

    threads = [threading.Thread(target=each) for each in (train, train, measure, measure)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert measured.is_set()
    assert inside == []


def test_who_waits_to_measure_lets_no_other_begin(tmp_path: Path) -> None:
    turns = MachineTurns(tmp_path / "turns")
    order: list[str] = []
    waits = threading.Event()

    def measure() -> None:
        waits.set()
        with turns.acquire_exclusive():
            order.append("measured")

    def train() -> None:
        with turns.acquire_shared():
            order.append("trained")

    with turns.acquire_shared():
        first = threading.Thread(target=measure)
        first.start()
        waits.wait(30)
        first.join(0.3)  # it stands in the door by now
        second = threading.Thread(target=train)
        second.start()
        second.join(0.2)
        assert order == []
    first.join(30)
    second.join(30)
    assert order == ["measured", "trained"]


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        ("", True),
        ("cortex-a76", True),
        ("Raspberry Pi 5", True),
        ("pi-3", True),
        ("h100", True),
        ("EPYC", False),
    ],
)
def test_a_kind_is_a_part_of_a_name_of_the_machine(kind: str, fits: bool) -> None:
    facts: dict[str, Any] = {
        "cpu": {"model": "Cortex-A76"},
        "board": "Raspberry Pi 5 Model B",
        "gpus": [{"name": "NVIDIA H100"}],
    }
    assert is_of_kind(kind, facts, "pi-3") is fits
