"""The file of devices: what it may say, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.workflows.devices.device import read_devices

BOARD = {
    "name": "board",
    "protocol": {"class": "NetworkProtocol", "arguments": {"host": "board", "port": 7}},
}


def test_a_file_tells_what_devices_are_and_what_they_cost(tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text(
        "currency: EUR\n"
        "devices:\n"
        "  - {name: laptop, cost_per_hour: 0.05}\n"
        "  - name: board\n"
        "    protocol: {class: NetworkProtocol, arguments: {host: board, port: 7}}\n"
        "    remote: {run_timeout: 5}\n"
        "    description: a board\n"
        "    cost_per_piece: 80\n"
        "    tags: [arm]\n",
        "utf-8",
    )
    fleet = read_devices(path)
    laptop, board = fleet.devices
    assert laptop.here
    assert laptop.get_deployment(ONNXRuntime) is None
    assert laptop.format_price(fleet.currency) == "0.05 EUR an hour"
    assert (board.format_price(fleet.currency), board.description, board.tags) == (
        "80 EUR a piece",
        "a board",
        ("arm",),
    )
    deployment = board.get_deployment(ONNXRuntime)
    assert deployment is not None
    assert deployment.protocol == NetworkProtocol(host="board", port=7)
    assert deployment.remote.run_timeout == 5
    assert "token" not in json.dumps(board.to_json())


def test_a_device_may_serve_each_runtime_at_an_address_of_its_own() -> None:
    (board,) = read_devices(
        {"devices": [{**BOARD, "runtimes": {"ONNXRuntime": None, "LiteRTRuntime": {"port": 8}}}]}
    ).devices
    found = [board.get_deployment(each) for each in (ONNXRuntime, LiteRTRuntime)]
    assert [each and each.protocol for each in found] == [
        NetworkProtocol(host="board", port=7),
        NetworkProtocol(host="board", port=8),
    ]
    assert list(board.list_deployments()) == ["ONNXRuntime", "LiteRTRuntime"]
    (only,) = read_devices({"devices": [{**BOARD, "runtimes": ["ONNXRuntime"]}]}).devices
    assert only.explain_refusal(ONNXRuntime) == ""
    assert only.explain_refusal(LiteRTRuntime) == "board serves ONNXRuntime, not LiteRTRuntime"


def test_names_and_tags_choose_devices_in_the_order_of_the_file() -> None:
    entries = [{"name": "a", "tags": ["x"]}, {**BOARD, "tags": ["x", "y"]}, {**BOARD, "name": "c"}]
    fleet = read_devices({"devices": entries})
    assert [each.name for each in fleet.find_devices(["c", "x"])] == ["a", "board", "c"]
    assert len(fleet.find_devices(["all"])) == 3
    with pytest.raises(
        ConfigError, match="targets: no device has the name or the tag 'boards'; did you mean board"
    ):
        fleet.find_devices(["boards"])


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], "devices: expected a list with at least one entry"),
        ([{"name": "a", "colour": "red"}], r"devices\.0: unknown key 'colour'"),
        ([{"protocol": "NetworkProtocol"}], r"devices\.0: 'name' is missing"),
        (
            [{"name": "a", "protocol": "CarrierPigeon"}],
            r"devices\.0\.protocol: no RuntimeProtocol is called",
        ),
        (
            [{"name": "a", "protocol": "SerialProtocol"}],
            r"devices\.0\.protocol: SerialProtocol needs the argument",
        ),
        ([BOARD, BOARD], r"devices\.1: 'board' is the name of devices\.0, too"),
        (
            [{"name": "a"}, {"name": "b"}],
            r"devices\.1: 'b' has no protocol, and one device is this machine already",
        ),
        (
            [{"name": "a", "cost_per_hour": -1}],
            r"devices\.0\.cost_per_hour: expected a number from 0 upwards",
        ),
        ([{"name": "a", "cost_per_piece": "80"}], r"devices\.0\.cost_per_piece: expected a number"),
        (
            [{"name": "a", "cost_per_hour": float("inf")}],
            r"devices\.0\.cost_per_hour: expected a number",
        ),
        ([{"name": "a", "cost_per_hour": True}], r"devices\.0\.cost_per_hour: expected a number"),
        ([{"name": "two words"}], r"devices\.0\.name: 'two words' should be"),
        ([{"name": "all"}], r"devices\.0\.name: 'all' stands for all devices"),
        ([{"name": "a", "tags": "arm"}], r"devices\.0\.tags: expected a list"),
        ([{"name": "a", "remote": {"run_timeout": 1}}], r"devices\.0\.remote: is for targets"),
        ([{**BOARD, "remote": {"run_timeout": 0}}], r"devices\.0\.remote: .*run_timeout"),
        ([{**BOARD, "runtimes": ["NoRuntime"]}], r"devices\.0\.runtimes: no Runtime is called"),
        (
            [{**BOARD, "runtimes": {"ONNXRuntime": {"prt": 8}}}],
            r"unknown key 'prt'; did you mean port",
        ),
        ([{"name": "a", "runtimes": {"ONNXRuntime": {"port": 8}}}], "this machine has none"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(entries: list[Any], said: str) -> None:
    with pytest.raises(NNPipeError, match=said) as caught:
        read_devices({"devices": entries})
    assert "\n" not in str(caught.value)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"devices\.yaml: no such file"):
        read_devices(tmp_path / "devices.yaml")
