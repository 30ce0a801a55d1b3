"""What would be released: a wheel that is the same twice, holds all it should, and says who made
it.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = sorted((ROOT / "constraints").glob("python*.txt"))


def build(folder: Path) -> Path:
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_two_wheels_are_equal_to_the_byte_and_hold_every_file(tmp_path: Path) -> None:
    first, second = build(tmp_path / "first"), build(tmp_path / "second")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read(
            next(name for name in archive.namelist() if name.endswith("METADATA"))
        ).decode()
    source = ROOT / "src"
    files = {
        path.relative_to(source).as_posix()
        for path in (source / "nnpipe").rglob("*")
        if path.is_file()
    }
    assert names == {name for name in files if "__pycache__" not in name}
    for label in ("Homepage", "Documentation", "Repository", "Issues", "Changelog"):
        assert f"Project-URL: {label}, https://" in metadata


@pytest.mark.parametrize("path", CONSTRAINTS, ids=lambda path: path.stem)
def test_versions_are_named_once_each_and_torch_is_the_one_that_make_installs(path: Path) -> None:
    rows = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    names = [row.partition("==")[0].lower().replace("_", "-") for row in rows]
    assert all("==" in row for row in rows)
    assert len(names) == len(set(names))
    assert f"TORCH  := {next(row for row in rows if row.startswith('torch=='))}" in (
        ROOT / "Makefile"
    ).read_text("utf-8")
