"""What cannot be saved is told at the beginning; what fails all the same is kept somewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import check_destination, save


def test_what_can_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    check_destination(tmp_path / "there", 100_000)
    check_destination(tmp_path / "a" / "b" / "new")
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    assert (tmp_path / "there").read_text() == "old"


def test_folders_and_files_in_the_way_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=f"{tmp_path} is a folder: name a file in it"):
        check_destination(tmp_path)
    with pytest.raises(ConfigError, match="file is a file, not a folder"):
        check_destination(tmp_path / "file" / "model.pt")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no /proc")
def test_a_folder_that_takes_nothing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"/proc/model\.pt cannot be written: "):
        check_destination("/proc/model.pt")


LIMITED = """
import resource, sys
from pathlib import Path
from nnpipe.core.files import check_destination
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
check_destination(sys.argv[1], 50_000)
try:
    check_destination(sys.argv[1], 1_000_000)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says beforehand")
def test_a_file_that_would_be_too_large_is_told_with_its_size(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "model.pt")],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert answer.stdout.startswith("ConfigError ")
    assert "model.pt cannot be written: File too large; 1.0 MB are needed there" in answer.stdout


def test_what_fails_at_the_end_is_kept_elsewhere_and_the_message_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, other = tmp_path / "wanted" / "model.pt", tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)

    def write(path: Path) -> None:
        if path == wanted:
            raise OSError(28, "No space left on device")
        path.write_text("weights")

    with pytest.raises(
        ArtifactError, match=r"wanted/model\.pt cannot be written: No space left .*; it is kept as"
    ):
        save(write, wanted)
    (kept,) = other.rglob("model.pt")
    assert kept.read_text() == "weights"


def test_that_nothing_can_be_kept_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def write(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ArtifactError, match="nor can it anywhere else: it is lost"):
        save(write, tmp_path / "model.pt")
    assert not list(tmp_path.iterdir())
