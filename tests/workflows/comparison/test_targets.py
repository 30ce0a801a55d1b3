"""Comparing on devices: what is run where, and that candidates take turns on a server that
serves one at a time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.servers import Server
from tests.tools.installed import needs

from nnpipe.core.errors import ConfigError
from nnpipe.datasets.arrays import write_arrays
from nnpipe.measuring.comparison import Comparison
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.scenarios.compare import main
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.comparison.contest import on_targets
from nnpipe.workflows.devices.device import Fleet, read_devices

needs("onnx", "onnxruntime")


def fleet(*ports: int) -> Fleet:
    boards = [
        {
            "name": f"board-{port}",
            "protocol": {"class": "NetworkProtocol", "arguments": {"port": port}},
        }
        for port in ports
    ]
    return read_devices({"devices": [{"name": "here", "runtimes": ["ONNXRuntime"]}, *boards]})


def specs(*runtimes: Any) -> Sequence[tuple[CandidateSpec, None]]:
    wrapper = ONNXModel(model_path=Path("model.onnx"), scale=1)
    return [
        (CandidateSpec(str(type(each).__name__), wrapper, Path("model.onnx"), (), each), None)
        for each in runtimes
    ]


def test_each_candidate_runs_on_each_device_and_models_as_trained_on_this_machine() -> None:
    found = on_targets(specs(None, ONNXRuntime(), LiteRTRuntime()), fleet(7))
    assert [spec.title for spec, _ in found.candidates] == [
        "NoneType",
        "here: ONNXRuntime",
        "board-7: ONNXRuntime",
        "board-7: LiteRTRuntime",
    ]
    ports = [spec.deployment and spec.deployment.protocol.port for spec, _ in found.candidates]  # type: ignore[attr-defined]
    assert ports == [None, None, 7, 7]
    assert found.impossible == {"here: LiteRTRuntime": "here serves ONNXRuntime, not LiteRTRuntime"}
    assert list(found.devices) == ["board-7: ONNXRuntime", "board-7: LiteRTRuntime"]


def test_files_are_sent_to_devices_as_they_are() -> None:
    found = on_targets(specs(None), fleet(7), files=True)
    assert [(spec.title, spec.deployment is None) for spec, _ in found.candidates] == [
        ("here: NoneType", True),
        ("board-7: NoneType", False),
    ]


def test_a_candidate_with_a_target_of_its_own_is_refused() -> None:
    ((spec, _),) = specs(ONNXRuntime())
    own = CandidateSpec(
        "own",
        spec.wrapper,
        spec.model_path,
        (),
        spec.runtime,
        deployment=Deployment(NetworkProtocol(port=9)),
    )
    with pytest.raises(ConfigError, match="own: has a protocol of its own"):
        on_targets([(own, None)], fleet(7))


@pytest.mark.slow
def test_two_files_take_turns_on_one_server_beside_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = np.arange(60) % 4
    samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    write_arrays(Path("data"), {"image": samples}, labels)
    for name in ("one", "two"):
        write_onnx_classifier(Path(f"{name}.onnx"), samples, labels)
    with Server(runtime="nnpipe.runtimes.onnxruntime.ONNXRuntime", timeout=10) as server:
        entries = [
            {"name": "here"},
            {
                "name": "board",
                "protocol": {"class": "NetworkProtocol", "arguments": {"port": server.port}},
            },
        ]
        Path("devices.yaml").write_text(json.dumps({"devices": entries}), "utf-8")
        words = [
            "one.onnx",
            "two.onnx",
            "--dataset",
            "ArraysDataset",
            "--dataset-root",
            "data",
            "--scale",
            "1",
        ]
        assert main([*words, "--target-devices", "all", "--max-seconds", "1"]) == 0
        assert main([*words, "--target-devices", "bord"]) == 2
    assert "did you mean board" in capsys.readouterr().err
    found = Comparison.read("comparison.json")
    assert [run.title for run in found.whole] == [
        "here: one.onnx",
        "here: two.onnx",
        "board: one.onnx",
        "board: two.onnx",
    ]
    for run in found.whole:
        assert len(set(run.series["inference"]["round"].tolist())) >= 8
