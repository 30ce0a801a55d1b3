"""The tour of all callbacks, on a part of MNIST."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "mnist"


def tour(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "mnist_tour.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=200, env=environment, check=False
    )


@pytest.mark.slow  # a start of PyTorch
def test_without_the_data_it_says_what_is_missing(tmp_path: Path) -> None:
    done = tour(tmp_path, tmp_path / "run")
    assert done.returncode == 2
    assert (
        done.stderr.strip()
        == f"{tmp_path}: has no train-images-idx3-ubyte.gz; give the folder of MNIST's files"
    )
    assert not (tmp_path / "run").exists()


PICTURES = set(
    "activations attention augmentations confusion confusions embeddings explanations gradients "
    "history kernels learning_rate learning_rate_finder losses pr resources roc samples weights "
    "worst".split()
)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="MNIST does not lie under ../shared/data")
def test_the_tour_writes_one_tidy_folder(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    done = tour(DATA, tmp_path / "run", "--samples", "1000", "--epochs", "1")
    assert done.returncode == 0, done.stderr
    names = [
        path.relative_to(tmp_path / "run").as_posix()
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    ]
    folders = {name.partition("/")[0] for name in names if "/" in name}
    assert folders == {
        "checkpoints",
        "model",
        "pictures",
        "profile",
        "source",
        "tables",
        "tensorboard",
    }
    pictures = {Path(name).stem.partition("-")[0] for name in names if name.startswith("pictures/")}
    assert pictures == PICTURES
    page = (tmp_path / "run" / "index.html").read_text()
    assert [
        name for name in names if name not in ("index.html", ".lock") and name not in page
    ] == []
