"""What a server's processes import and need, with a real runtime and a model at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from servers import Server, wait_for

from nnpipe.protocols.client.session import open_session
from nnpipe.testing.model_files import write_onnx_network

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

BOUND = 60e6
PARTS = {"datasets", "report", "modelwrappers", "compilers", "analysis", "onnxconverters"}
INTERFACES = {"dataset", "evaluation", "training", "model", "compiler", "onnx_conversion"}
HEAVY = {
    "torch",
    "tensorflow",
    "keras",
    "onnx",
    "matplotlib",
    "sklearn",
    "PIL",
    "jinja2",
    "yaml",
    "tqdm",
    "tensorboardX",
    "pytest",
}


class Footprint(NamedTuple):
    supervisor: set[str]  # modules
    worker: set[str]
    rss: dict[str, int]  # bytes by process
    together: int  # bytes of both processes, shared pages counted once


@pytest.fixture(scope="module")
def footprint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Footprint]:
    folder = tmp_path_factory.mktemp("footprint")
    model = write_onnx_network(folder / "network.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TELLING", str(folder))
        patch.setenv("OMP_NUM_THREADS", "1")
        with Server(runtime="telling.TellingRuntime", timeout=10.0) as server:
            with open_session(server.protocol, model) as session:
                for samples in (1, 2, 3):
                    batch = {
                        "image": np.ones((samples, 1, 8, 8), np.float32),
                        "extra": np.ones((samples, 3), np.float32),
                    }
                    found = session.infer(batch)
                    np.testing.assert_allclose(
                        found["total"], found["scores"].sum(1, keepdims=True), rtol=1e-4
                    )
                supervisor, worker = psutil.Process(server.process.pid), server.worker()
                rss = {
                    "supervisor": supervisor.memory_info().rss,
                    "worker": worker.memory_info().rss,
                }
                together = rss["worker"] + supervisor.memory_full_info().uss
                modules = []
                for process in (supervisor, worker):
                    process.send_signal(signal.SIGUSR1)
                    told = folder / str(process.pid)
                    if process == worker:  # it listens for its client; a request makes it look up
                        session.stats()
                    wait_for(told.exists)
                    modules.append({*told.read_text().split("\n")})
            yield Footprint(modules[0], modules[1], rss, together)


def memory_of(imported: str) -> int:
    """Resident bytes of a process that has imported this and does nothing."""
    script = (
        f"import {imported}\nprint(next(s for s in open('/proc/self/status') if "
        f"s.startswith('VmRSS')).split()[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout) * 1024


def test_what_is_asked_is_what_serves(footprint: Footprint) -> None:
    assert "onnxruntime" in footprint.worker
    for modules in (footprint.supervisor, footprint.worker):
        assert {"telling", "nnpipe.protocols.server.serve", "nnpipe.protocols.network"} <= modules


@pytest.mark.parametrize("who", ["supervisor", "worker"])
def test_no_dataset_report_or_training_module_is_imported(footprint: Footprint, who: str) -> None:
    modules: set[str] = getattr(footprint, who)
    ours = {name for name in modules if name.startswith("nnpipe.")}
    assert not {name for name in ours if name.split(".")[1] in PARTS}
    # Nor what those implement: the registry imports an interface when somebody asks for its family.
    assert not ours & {f"nnpipe.core.{name}" for name in INTERFACES}
    # What runs the served models and words its errors, and nothing of any other framework.
    assert {name for name in ours if name.startswith("nnpipe.frameworks.")} <= {
        "nnpipe.frameworks.onnxruntime",
        "nnpipe.frameworks.runtime_failures",
    }
    assert {name for name in ours if name.startswith("nnpipe.scenarios.")} == {
        "nnpipe.scenarios._cli",
        "nnpipe.scenarios._cli.command",
        "nnpipe.scenarios._cli.option_types",
        "nnpipe.scenarios._cli.standard_streams",
    }
    assert not {name.partition(".")[0] for name in modules} & HEAVY


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="resident memory is read from /proc"
)
def test_a_server_needs_little_beyond_its_runtime(footprint: Footprint) -> None:
    runtime = memory_of("onnxruntime")
    print(
        f"runtime {runtime / 1e6:.1f} MB, server {footprint.rss}, together "
        f"{footprint.together / 1e6:.1f} MB"
    )
    assert footprint.together >= footprint.rss["worker"] > memory_of("sys")
    assert max(footprint.rss.values()) - runtime < BOUND
    assert footprint.together - runtime < BOUND
