"""Load on a model that runs on a target, over a real line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from servers import Server

from nnpipe.measuring.audit import audit_outputs
from nnpipe.measuring.load import Load, Scenario, Until
from nnpipe.measuring.load_generator import run_load
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.conversation.frame import get_check_bits
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.testing.fakes import write_fake_model
from nnpipe.testing.protocol import IO, create_batch

LOADS = [
    Load(scenario=name, rate=2000.0 if name == "server" else None) for name in get_args(Scenario)
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(timeout=20.0) as server:
        yield server


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.scenario)
@pytest.mark.parametrize("extensions", [0, 3, 7], ids=["one by one", "pipelined", "in one request"])
def test_each_scenario_runs_on_a_target(
    server: Server, tmp_path: Path, load: Load, extensions: int
) -> None:
    limits = Limits(checks=get_check_bits(), extensions=extensions)
    queries = [[create_batch(1, seed)] for seed in range(20)]
    with open_session(server.protocol, write_fake_model(tmp_path, IO), limits=limits) as session:
        found = run_load(session, queries, load, Until(queries=300), warmup=5)
        assert len(found.series) == 300
        columns = found.series.columns
        if load.scenario != "offline":  # there a query's own time has no meaning
            begin = columns["start_ns"] + found.origin_ns
            end = (
                columns.get("scheduled_ns", columns["start_ns"])
                + columns["latency_ns"]
                + found.origin_ns
            )
            parts = session.split(begin, end)
            total = parts["host_ns"] + parts["wire_ns"] + parts["target_ns"]
            np.testing.assert_array_equal(total, end - begin)
        assert audit_outputs(session, queries, load, Until(queries=100)).verdict == "passed"


def test_queries_of_several_calls_run_on_a_target(server: Server, tmp_path: Path) -> None:
    queries = [
        [create_batch(1, seed), create_batch(1, seed + 1), create_batch(1, seed + 2)]
        for seed in range(5)
    ]
    with open_session(server.protocol, write_fake_model(tmp_path, IO)) as session:
        load = Load(scenario="multi-stream")
        assert audit_outputs(session, queries, load, Until(queries=50)).verdict == "passed"
        assert (
            run_load(session, queries, load, Until(queries=20)).series["samples"].tolist()
            == [3] * 20
        )
