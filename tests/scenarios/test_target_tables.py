"""What is told of a server on a board leads to where it listens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nnpipe.protocols.network import NetworkProtocol
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.scenarios._cli.target_options import describe_install_plan, describe_installed
from nnpipe.workflows.boards.board import BoardFacts, SSHBoard
from nnpipe.workflows.boards.install import Installation, InstallPlan, TargetSettings, TargetState
from nnpipe.workflows.boards.packages import Platform


def plan(listen: str, service: str = "systemd", python: str = "python3") -> InstallPlan:
    facts = BoardFacts(Platform("aarch64", (3, 11), (2, 36)), service, 10**9, ("ONNXRuntime",))
    settings = TargetSettings(ONNXRuntime(), protocol=NetworkProtocol(host=listen, port=7000))
    return InstallPlan(
        SSHBoard.at("pi@pi-5.lan:2222", python),
        facts,
        settings,
        ("numpy",),
        Path("pi.token"),
        False,
    )


def state(pid: int | None = 1) -> TargetState:
    told = {
        "name": "ONNXRuntime",
        "runtime": "ONNXRuntime",
        "address": "127.0.0.1:7000",
        "pid": pid,
        "service": "process",
    }
    return TargetState.from_json(told)


@pytest.mark.parametrize(
    ("listen", "python", "protocol", "arguments"),
    [
        ("127.0.0.1", "python3", "SSHProtocol", {"host": "pi@pi-5.lan:2222", "port": 7000}),
        (
            "127.0.0.1",
            "/opt/py",
            "SSHProtocol",
            {"host": "pi@pi-5.lan:2222", "port": 7000, "python": "/opt/py"},
        ),
        ("0.0.0.0", "python3", "NetworkProtocol", {"host": "pi-5.lan", "port": 7000}),
    ],
)
def test_the_device_is_reached_where_its_server_listens(
    listen: str, python: str, protocol: str, arguments: dict[str, Any]
) -> None:
    told = describe_installed(Installation(plan(listen, python=python), state(), True))
    device = json.loads(told.rpartition("  - ")[2])
    assert device["protocol"] == {"class": protocol, "arguments": arguments}
    assert device["remote"] == {"token_file": "pi.token"}


def test_a_server_that_ends_with_the_login_is_told_with_its_remedy() -> None:
    assert "sudo loginctl enable-linger pi" in describe_installed(
        Installation(plan("127.0.0.1"), state(), False)
    )
    assert "enable-linger" not in describe_installed(Installation(plan("127.0.0.1"), state(), True))


def test_what_is_planned_says_what_is_replaced_made_and_left_out() -> None:
    told = describe_install_plan(plan("127.0.0.1"))
    assert "which is replaced" in told
    assert "pi.token, which is made" in told
    assert "started with the board" in told
    assert "does not start with the board" in describe_install_plan(
        plan("127.0.0.1", service="process")
    )
