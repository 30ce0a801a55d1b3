"""Two processes, started by ``torchrun``, learn what one does."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import spread
import training_toys as toys

from nnpipe.experiment.state_file import read_state

HERE = Path(__file__).parent


@pytest.mark.slow
def test_two_processes_learn_what_one_does_and_resume_to_the_bit(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with torch.random.fork_rng():
        spread.main(tmp_path / "one")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    answer = subprocess.run(
        [sys.executable, *torchrun, str(HERE / "spread.py"), str(tmp_path / "two")],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
    )
    assert answer.returncode == 0, answer.stderr
    first, second = (read_state(tmp_path / "two" / f"result-{rank}.state", kind="result") for rank in range(2))
    alone = read_state(tmp_path / "one" / "result-0.state", kind="result")
    assert alone["plain"]["history"][-1]["step"] == first["plain"]["history"][-1]["step"] == 12
    for kind in ("plain", "idle", "stepped"):
        for name, value in alone[kind]["model"].items():
            assert torch.allclose(first[kind]["model"][name], value, atol=1e-5), (kind, name)
    assert first["evaluated"] == second["evaluated"] == pytest.approx(alone["evaluated"], abs=1e-6)
    assert 0 < first["evaluated"]["blobs/test/output/roc_auc"] < 1
    for row, expected in zip(first["plain"]["history"], alone["plain"]["history"], strict=True):
        assert row == pytest.approx(expected, abs=1e-5)
    for one, other in (
        (first["plain"], second["plain"]),
        (first["dropout"], second["dropout"]),
        (first["resumed"], first["dropout"]),
        (second["resumed"], second["dropout"]),
        (alone["resumed"], alone["dropout"]),
    ):
        assert toys.equal(one["model"], other["model"])
        assert one["history"] == other["history"]
    # Each process draws numbers of its own for its samples.
    assert not toys.equal(first["dropout"]["model"], alone["dropout"]["model"])
