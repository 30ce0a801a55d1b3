"""Sweeps on several devices: their points, and what comes out when devices go away, with servers
of this machine.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.servers import Server, wait_for
from tests.tools.installed import needs

from nnpipe.core.errors import NNPipeError
from nnpipe.datasets.arrays import write_arrays
from nnpipe.report.inputs.sweep_file import SweepFile
from nnpipe.report.sections.sweep_devices import build_model_table, describe_cheapest_device
from nnpipe.scenarios.sweep import main
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.journal import Outcome
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.run import PointMeasurer
from nnpipe.workflows.verification.compare_outputs import VerifyOptions
from nnpipe.workflows.workers.machine_turns import MachineTurns

needs("onnx", "onnxruntime")

RUNTIME = "nnpipe.runtimes.onnxruntime.ONNXRuntime"


def device(name: str, port: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "protocol": {"class": "NetworkProtocol", "arguments": {"port": port, "timeout": 5}},
        **more,
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("model")
    labels = np.arange(60) % 4
    samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    model = write_onnx_classifier(place / "model.onnx", samples, labels)
    return {
        "title": "fleet",
        "output": "out",
        "dataset": write_arrays(place / "data", {"image": samples}, labels).describe(),
        "models": [
            {
                "title": "m",
                "class": "ONNXModel",
                "arguments": {"model_path": str(model), "scale": 1},
            }
        ],
        "runtimes": ["ONNXRuntime"],
        "as_trained": False,
        "batch_sizes": [1, 2],
        "measure": {"measure_seconds": 0.1},
        "verify": {"verify_samples": 4},
        "constraints": ["size <= 1 MB"],
        "choose": "size",
        "target_patience": 0,
    }


@pytest.fixture
def board() -> Iterator[Server]:
    with Server(runtime=RUNTIME, timeout=5) as server:
        yield server


def keys(settings: dict[str, Any]) -> dict[str, str]:
    found = Sweep.from_settings(settings)
    return {
        point.title: point.key("weights", found.dataset, 128, VerifyOptions())
        for point in found.points
    }


def test_devices_multiply_what_can_be_and_arguments_of_runtimes_matter_here_only(
    content: dict[str, Any],
) -> None:
    devices = [{"name": "here"}, device("a", 1), device("b", 2, runtimes=["LiteRTRuntime"])]
    given = content | {
        "devices": devices,
        "targets": ["all"],
        "threads": [1, 2],
        "as_trained": True,
    }
    found = Sweep.from_settings(given)
    assert [each.title for each in found.points if each.measure.inference_batch_size == 1] == [
        "m · as trained",
        "here: m · ONNXRuntime",
        "a: m · ONNXRuntime",
        "here: m · ONNXRuntime(num_threads=2)",
    ]
    assert set(found.impossible.values()) == {"b serves LiteRTRuntime, not ONNXRuntime"}
    here, a, _ = found.targets.devices
    assert {each.title for each in found.on(a).points} >= {"m · as trained", "a: m · ONNXRuntime"}
    assert not any("here:" in each.title for each in found.on(a).points)
    trained = found.points[0]
    assert found.on(here).can_be_chosen(trained)
    assert not found.on(a).can_be_chosen(trained)


def test_a_device_is_part_of_what_a_point_is_and_this_machine_is_what_it_was(
    content: dict[str, Any],
) -> None:
    plain = keys(content)
    devices = [{"name": "here"}, device("a", 1), device("b", 1)]
    found = keys(content | {"devices": devices, "targets": ["all"]})
    assert found["here: m · ONNXRuntime"] == plain["m · ONNXRuntime"]
    assert len(set(found.values())) == 6
    moved = keys(content | {"devices": [device("a", 7)], "targets": ["a"]})
    assert moved["a: m · ONNXRuntime"] == found["a: m · ONNXRuntime"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"targets": ["a"]}, r"devices\.yaml: no such file"),
        ({"devices": [{"name": "a"}]}, "devices: say under targets"),
        (
            {"devices": [{"name": "a"}], "targets": ["b"]},
            "targets: no device has the name or the tag 'b'",
        ),
        ({"devices": [{"name": "a"}], "targets": []}, "targets: expected a list"),
        ({"devices": [{"name": "a", "x": 1}], "targets": ["a"]}, r"devices\.0: unknown key 'x'"),
        ({"target_patience": -1}, "target_patience: expected seconds"),
        (
            {"devices": [device("a", 1, runtimes=["LiteRTRuntime"])], "targets": ["a"]},
            "not one of the 2 combinations can be; for example: a serves LiteRTRuntime",
        ),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(
    content: dict[str, Any], folder: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(NNPipeError, match=said) as caught:
        Sweep.from_settings(content | changes)
    assert "\n" not in str(caught.value)


def test_workers_and_targets_exclude_each_other(
    content: dict[str, Any], folder: Path, capsys: Any
) -> None:
    needs("sqlalchemy")
    given = content | {"devices": [{"name": "here"}], "targets": ["all"]}
    (folder / "sweep.json").write_text(json.dumps(given), "utf-8")
    assert main(["sweep.json", "--workers", "2"]) == 2
    assert "targets: devices are measured from this machine" in capsys.readouterr().err


class CountedTurns(MachineTurns):
    """Counts how often somebody wanted to work here, who has to wait while another one measures."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.taken = 0

    @contextmanager
    def acquire_shared(self) -> Iterator[None]:
        self.taken += 1
        with super().acquire_shared():
            yield


def test_a_device_waits_for_who_measures_here_only_if_something_is_to_be_compiled(
    content: dict[str, Any], folder: Path
) -> None:
    planned = Sweep.from_settings(
        content | {"devices": [device("a", 1), device("b", 1)], "targets": ["all"]}
    )
    turns, compared = CountedTurns(folder), []

    def measure(
        sweep: Any, point: Any, artifact: Any, output: Any, command: Any, verification: Any
    ) -> Outcome:
        compared.append(verification)
        return Outcome(None, "not now")

    with PointMeasurer(
        planned, (), retrain=False, retry=False, turns=turns, measure=measure, shared=True
    ) as measurer:
        measurer.run_point(planned.points[0], planned.verify)
        assert turns.taken == 2  # to run the source, and to export it
        for point in planned.points[1:]:
            measurer.run_point(point, planned.verify)
            measurer.remeasure_point(point)
        assert turns.taken == 2
        assert len(planned.points) == 4
        assert compared[0] is not None
        assert [each is compared[0] for each in compared] == [True, *[True, False] * 3]


def killed(server: Server, results: Path) -> threading.Thread:
    """Kill a device's server when it has given a result and measures the next."""

    def watch() -> None:
        wait_for(lambda: list(results.glob("[!.]*.json")))
        wait_for(server.workers)  # it measures the next one
        server.kill()
        server.process.wait(20)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_device_that_is_killed_is_taken_up_again_and_one_that_is_away_costs_its_rows(
    content: dict[str, Any],
    folder: Path,
    board: Server,
    capsys: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    devices = [device("board", board.port, cost_per_piece=80), device("gone", 1, cost_per_piece=1)]
    given = content | {
        "devices": devices,
        "targets": ["all"],
        "target_patience": 30,
        "batch_sizes": [1, 2, 3, 4],
        "measure": {"measure_seconds": 0.4},
    }
    given["devices"][1]["protocol"]["arguments"]["timeout"] = 1
    (folder / "sweep.json").write_text(json.dumps(given), "utf-8")
    killer = killed(board, folder / "out" / "results")

    def restart() -> None:
        killer.join(60)
        again.append(
            Server(
                runtime=RUNTIME, timeout=5, protocol=("NetworkProtocol", "--port", str(board.port))
            )
        )

    again: list[Server] = []
    restarting = threading.Thread(target=restart, daemon=True)
    restarting.start()
    try:
        assert main(["sweep.json", "target_patience=3"]) == 0
        told = capsys.readouterr()
        restarting.join(60)
        data = json.loads(Path("out", "sweep.json").read_text("utf-8"))
        assert [each["title"] for each in data["points"]] == [
            "board: m · ONNXRuntime",
            *(f"board: m · ONNXRuntime · batch {n}" for n in (2, 3, 4)),
        ]
        assert len(data["failed"]) == 4
        assert all("gone went away and was waited for" in each["reason"] for each in data["failed"])
        runs = [
            json.loads(Path("out", each["result"]).read_text("utf-8")) for each in data["points"]
        ]
        assert {run["verification"]["verdict"] for run in runs} == {"same"}
        assert "board was lost" in caplog.text
        assert "board is the cheapest device that keeps the constraints: 80 a piece." in told.out
        results = {path: path.stat().st_mtime_ns for path in Path("out", "results").glob("*.json")}
        assert len(results) == 4  # what was not measured is not recorded, so that it is tried again
        certificate = json.loads(Path("out", "certificates", "board.json").read_text("utf-8"))
        assert certificate["device"]["name"] == "board"
        assert certificate["device"]["facts"]["host"]["cpu"]["logical_cores"] >= 1
        assert certificate["artifact"]["sha256"]
        assert (
            Path("out", "certificate.json").read_text("utf-8")
            == json.dumps(certificate, indent=1) + "\n"
        )
        # The same command goes on: the device is there now, at another address.
        given["devices"][1] = device("gone", board.port, cost_per_piece=1)
        (folder / "sweep.json").write_text(json.dumps(given), "utf-8")
        assert main(["sweep.json", "batch_sizes=[1, 2]"]) == 0
        assert (
            "gone is the cheapest device that keeps the constraints: 1 a piece."
            in capsys.readouterr().out
        )
    finally:
        for server in again:
            server.__exit__()
    after = {path: path.stat().st_mtime_ns for path in Path("out", "results").glob("*.json")}
    assert results.items() <= after.items()
    assert len(after) == 6
    found = SweepFile.from_json(json.loads(Path("out", "sweep.json").read_text("utf-8")))
    assert [[cell.text for cell in row][:2] for row in build_model_table(found).cells()] == [
        ["board", "80 a piece"],
        ["gone", "1 a piece"],
    ]
    assert describe_cheapest_device(found).startswith("gone is the cheapest")
    assert "Which device" in Path("out", "report.rst").read_text("utf-8")


@pytest.mark.slow
def test_two_sweeps_of_two_people_on_one_device_interleave_and_both_are_right(
    content: dict[str, Any], folder: Path, board: Server
) -> None:
    needs("sqlalchemy")
    devices = {"leases": str(folder / "leases.sqlite"), "devices": [device("board", board.port)]}
    given = content | {
        "devices": devices,
        "targets": ["board"],
        "batch_sizes": [1, 2, 3, 4],
        "confirmations": 1,
    }
    command = [sys.executable, "-m", "nnpipe.scenarios.sweep"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    people = []
    for name in ("anna", "bert"):
        (folder / f"{name}.json").write_text(
            json.dumps(given | {"title": name, "output": name}), "utf-8"
        )
        words = [*command, f"{name}.json"]
        people.append(
            subprocess.Popen(
                words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    said = [person.communicate(timeout=300) for person in people]
    assert [person.returncode for person in people] == [0, 0], said
    assert any("is held by" in errors for _, errors in said)
    order = []
    for name in ("anna", "bert"):
        data = json.loads((folder / name / "sweep.json").read_text("utf-8"))
        assert len(data["points"]) == 4
        assert data["devices"][0]["chosen"] is not None
        order += [
            (path.stat().st_mtime_ns, name)
            for path in (folder / name / "results").glob("[!.]*.json")
        ]
    names = [name for _, name in sorted(order)]
    assert sum(one != other for one, other in itertools.pairwise(names)) >= 2, names


@pytest.mark.slow
def test_a_sweep_on_devices_that_was_killed_goes_on(
    content: dict[str, Any], folder: Path, board: Server
) -> None:
    given = content | {
        "devices": [device("board", board.port)],
        "targets": ["board"],
        "batch_sizes": [1, 2, 3],
    }
    (folder / "sweep.json").write_text(json.dumps(given), "utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    results = folder / "out" / "results"
    killed = subprocess.Popen(
        [sys.executable, "-m", "nnpipe.scenarios.sweep", "sweep.json"], env=environment
    )
    wait_for(lambda: list(results.glob("[!.]*.json")), seconds=120)
    killed.kill()
    killed.wait()
    before = {path: path.stat().st_mtime_ns for path in results.glob("[!.]*.json")}
    assert main(["sweep.json"]) == 0
    after = {path: path.stat().st_mtime_ns for path in results.glob("[!.]*.json")}
    assert before.items() <= after.items()
    assert len(after) == 3
    assert main(["sweep.json"]) == 0
    assert {path: path.stat().st_mtime_ns for path in results.glob("[!.]*.json")} == after
