"""Scripts that users have are good jobs: the example, and what ``nnpipe generate`` writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.jobs import cancel, refresh, resume, submit
from nnpipe.jobs.local import LocalPlace

from .conftest import Desk, wait_for

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_example_is_cancelled_and_goes_on(desk: Desk) -> None:
    shutil.copy(ROOT / "examples" / "job.py", desk.folder / "train.py")
    given = ["--epochs", "1000000"]
    work = JobSpec(
        file=desk.folder / "train.py",
        outputs=["classifier.npz"],
        directory=desk.folder,
        arguments=given,
        grace=60,
    )
    job = submit(desk.database, work, LocalPlace(desk.folder / "jobs"))
    wait_for(lambda: refresh(desk.database, job).run.statistics.get("accuracy"))
    job = desk.end_of(cancel(desk.database, desk.database.jobs.get(job.id)))
    assert job.state == "cancelled"
    with np.load(desk.folder / "checkpoint.npz") as stored:
        epoch = int(stored["epoch"])
    assert epoch > 0
    # The rest of a million epochs is not waited for.
    text = (desk.folder / "train.py").read_text()
    (desk.folder / "train.py").write_text(
        text.replace("while epoch < options.epochs", f"while epoch < {epoch + 500}")
    )
    job = desk.end_of(resume(desk.database, job))
    assert (job.state, job.attempt) == ("completed", 2)
    assert (
        f"going on after epoch {epoch}\n"
        in desk.database.artifacts.path(job.id, "log.txt").read_text()
    )
    assert job.run.statistics["accuracy"] > 0.85


@pytest.mark.slow
def test_a_generated_script_is_a_job(desk: Desk) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    from nnpipe.scenarios.generate import main

    script = desk.folder / "train.py"
    assert main([str(ROOT / "examples" / "generate.yaml"), "-o", str(script)]) == 0
    digits = ROOT / "src" / "nnpipe" / "datasets" / "data" / "digits.npz"
    job = desk.submit(
        script.read_text(),
        "digits.safetensors",
        arguments=["--digits", str(digits), "--epochs", "2"],
    )
    job = desk.end_of(job)
    assert (job.state, job.fraction) == ("completed", 1.0), job.run.reason
    assert job.run.statistics["test_accuracy"] > 0.7
    told = [row["fraction"] for row in desk.database.figures.history(job.id, "progress").rows()]
    assert (told[0], 0.5 in told, told[-1], told == sorted(told)) == (0.0, True, 1.0, True)


PIPELINE = """
output: build
dataset: nnpipe.datasets.digits.DigitsDataset
model:
  class: nnpipe.modelwrappers.classification.small_cnn.PyTorchDigitsCNN
  path: build/model.pt
  training: {num_epochs: 2}
measure: {warmup_runs: 1, measure_seconds: 0.1}
candidates:
  - title: as trained
"""


@pytest.mark.slow
def test_a_pipeline_is_a_job(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from nnpipe.scenarios.jobs import main

    monkeypatch.chdir(desk.folder)
    (desk.folder / "digits.yaml").write_text(PIPELINE)
    assert main(["submit", "digits.yaml", "--database", "runs.sqlite", "--watch"]) == 0
    job = desk.end_of(desk.database.jobs.get("digits.yaml"))
    assert [one["path"] for one in job.details["ended"]["outputs"]] == ["build/report.rst"]
    told = [
        row["fraction"]
        for row in desk.database.figures.history(job.id, "progress").rows()
        if "fraction" in row
    ]
    assert told == [0.25, 0.5, 0.5, 1.0]
    assert 0.0 < job.run.statistics["validation_accuracy"] <= 1.0
