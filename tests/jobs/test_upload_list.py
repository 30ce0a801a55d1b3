"""What is sent with a job is there whole, also where it is a link here."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.jobs import place
from nnpipe.jobs.place import to_send
from nnpipe.jobs.ssh import _build_archive


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """Return a folder that lies somewhere else."""
    folder = tmp_path / "far"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "x.txt").write_text("samples")
    return folder


def names(*paths: Path) -> list[str]:
    return [name for _, name in to_send(paths)]


def test_a_folder_is_sent_with_all_that_is_in_it(far: Path) -> None:
    (far / "empty").mkdir()
    (far / "deep" / "__pycache__").mkdir()
    (far / "deep" / "__pycache__" / "x.pyc").touch()
    os.mkfifo(far / "pipe")
    assert names(far) == ["far", "far/deep", "far/deep/x.txt", "far/empty"]
    assert names(far / "deep" / "..") == names(far)


def test_links_are_sent_as_what_they_lead_to_under_their_own_names(
    far: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x.txt").symlink_to(far / "deep" / "x.txt")
    (data / "whole").symlink_to(far)
    (data / "again").symlink_to(far)
    (data / "lost").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(data)
    script = tmp_path / "train.py"
    script.symlink_to(far / "deep" / "x.txt")
    os.link(far / "deep" / "x.txt", data / "twin.txt")
    inside = ["deep", "deep/x.txt"]
    wanted = ["link", "link/again", *(f"link/again/{name}" for name in inside), "link/twin.txt"]
    wanted += ["link/whole", *(f"link/whole/{name}" for name in inside), "link/x.txt", "train.py"]
    assert names(tmp_path / "link", script) == wanted
    with tarfile.open(
        fileobj=io.BytesIO(_build_archive({}, [tmp_path / "link", script]))
    ) as archive:
        assert [entry.name for entry in archive] == [f"work/{name}" for name in wanted]
        files = {entry.name: entry for entry in archive if not entry.isdir()}
        contents = {name: archive.extractfile(entry).read() for name, entry in files.items()}  # type: ignore[union-attr]
    assert all(entry.isfile() for entry in files.values())
    assert {*contents.values()} == {b"samples"}


def test_a_folder_that_holds_itself_is_refused(far: Path) -> None:
    (far / "deep" / "up").symlink_to(far)
    with pytest.raises(ConfigError, match="deep/up: a link to a folder that it lies in"):
        to_send([far])


def test_too_much_is_refused_before_any_of_it_is_read(
    far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(far / "holes", "wb") as handle:
        handle.truncate((1 << 30) - 7)
    assert len(to_send([far])) == 4
    monkeypatch.setattr(tarfile.TarFile, "add", None)
    with pytest.raises(
        ConfigError, match="far/deep: more than 1 GiB to send; put data there by other means"
    ):
        _build_archive({}, [far, far / "deep"])


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: no such file or folder to send"):
        to_send([tmp_path / "nowhere"])


def test_what_may_not_be_read_is_refused(far: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # root may read all
    monkeypatch.setattr(place.os, "access", lambda path, mode: Path(path).name != "x.txt")
    with pytest.raises(ConfigError, match=r"x\.txt: cannot be read"):
        to_send([far])
