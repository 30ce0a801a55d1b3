"""Looking after devices, by servers on this machine that stand for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.protocols.servers import Server
from tests.tools.installed import needs

from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.protocols.client.session import open_session
from nnpipe.scenarios.devices import main
from nnpipe.testing.fakes import write_fake_model
from nnpipe.testing.protocol import IO
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.devices.inspection import ping, try_out

needs("onnxruntime")


@pytest.fixture(scope="module")
def board() -> Iterator[Server]:
    with Server(runtime="nnpipe.runtimes.onnxruntime.ONNXRuntime", timeout=10) as server:
        yield server


@pytest.fixture(scope="module")
def fake() -> Iterator[Server]:
    with Server(timeout=10) as server:
        yield server


def test_a_device_is_tried_out_and_tells_what_it_is(board: Server, fake: Server) -> None:
    devices = [Device("here"), Device("board", board.protocol), Device("fake", fake.protocol)]
    here, tried, refused = try_out(devices)
    assert here.facts["host"]["cpu"]["logical_cores"] >= 1
    assert (tried.state, tried.reason) == ("free", "20 inferences of onnx are right")
    assert tried.facts["counter"] == "wall"
    assert tried.facts["host"]["memory_bytes"] > 1 << 20
    assert tried.median_ns is not None
    assert 0 < tried.median_ns < 1e9
    assert refused.state == "failed"
    assert "FakeRuntime" in refused.reason


def test_a_device_for_which_there_is_no_tiny_model_still_tells_what_it_counts(
    board: Server,
) -> None:
    runtimes = {"nnpipe.runtimes.iree.IREERuntime": board.protocol}
    (found,) = try_out([Device("board", board.protocol, runtimes=runtimes)])
    assert (found.state, found.facts["counter"]) == ("not tried", "wall")


def test_who_is_busy_away_or_asks_for_a_token_is_told(
    board: Server, fake: Server, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("a token that nobody asked for", "utf-8")
    devices = [
        Device("busy", fake.protocol),
        Device("strange", board.protocol, RemoteOptions(token_file=token)),
        Device("away", type(fake.protocol)(port=1)),
    ]
    with open_session(fake.protocol, write_fake_model(tmp_path, IO)):
        busy, strange, away = ping(devices)
    assert busy.state == "busy"
    assert "s now; try again later" in busy.reason
    assert (strange.state, away.state) == ("failed", "failed")
    assert "the target asks for none" in strange.reason
    assert "no target answers at 127.0.0.1:1" in away.reason


def test_the_command_lists_and_pings(
    board: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    entries = [
        {
            "name": name,
            "protocol": {"class": "NetworkProtocol", "arguments": {"port": port}},
            **more,
        }
        for name, port, more in (
            ("board", board.port, {"cost_per_piece": 80, "tags": ["arm"]}),
            ("away", 1, {"description": "switched off"}),
        )
    ]
    Path("devices.yaml").write_text(json.dumps({"currency": "EUR", "devices": entries}), "utf-8")
    assert main(["list"]) == 0
    told = capsys.readouterr().out
    assert "80 EUR a piece" in told
    assert "switched off" in told
    assert main(["ping", "arm", "--json", "found.json"]) == 0
    assert json.loads(Path("found.json").read_text("utf-8"))["devices"][0]["state"] == "free"
    assert main(["ping"]) == 1
    assert main(["facts", "board"]) == 0
    assert "counter: wall" in capsys.readouterr().out
    assert main(["test", "bord"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
