"""A training that ends amid a batch, for whatever reason, leaves no process and no half-written
file behind.
"""

# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
psutil = pytest.importorskip("psutil", reason="psutil is not installed")
from nnpipe.experiment.state_file import read_state
from nnpipe.training.checkpoints import CHECKPOINT

SCRIPT = """
import sys, time
from pathlib import Path

import pipeline_functions as functions
import training_toys as toys

from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.options import TrainerOptions
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.trainer import Trainer


class Telling(Callback):
    def on_batch_end(self, fit, batch, outputs):
        if fit.step == 3:
            print(*sequence.pids, flush=True)
        if fit.step == 3 and sys.argv[2] == "error":
            raise ZeroDivisionError("here")
        time.sleep(0.02)


if __name__ == "__main__":
    sequence = ArraySequence(toys.blobs(200), batch=10).map(functions.shaken, workers=2)
    trainer = Trainer(TrainerOptions(num_epochs=10**6, checkpoint_every=1), [Telling()])
    trainer.fit(toys.fresh(), {"blobs": {"train": sequence}}, folder=Path(sys.argv[1]))
"""


# four starts of PyTorch; tests/training/sequences/test_map.py ends workers of its own
@pytest.mark.slow
@pytest.mark.parametrize("end", ["ctrl-c", "error"])
def test_no_process_is_left_behind(end: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    here = Path(__file__).parent
    paths = [str(here), str(here / "sequences"), *sys.path]
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "run"), end],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    pids: list[int] = []
    try:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2, process.communicate()
        if end == "ctrl-c":  # as a terminal does it
            os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode != 0
        failed = "callback Telling.on_batch_end failed in epoch 1, step 3, samples "
        assert ("KeyboardInterrupt" if end == "ctrl-c" else failed) in said
        limit = time.monotonic() + 30
        while any(map(psutil.pid_exists, pids)) and time.monotonic() < limit:
            time.sleep(0.01)
        assert not any(map(psutil.pid_exists, pids))
    finally:
        for pid in [process.pid, *pids]:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
    state = read_state(tmp_path / "run" / "checkpoints" / "last.state", kind=CHECKPOINT)
    assert state["fit"]["step"] >= 2
    assert not list(tmp_path.rglob("*.partial*"))
