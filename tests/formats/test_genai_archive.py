"""Models of onnxruntime-genai in one file."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from nnpipe.core.errors import ArtifactError
from nnpipe.core.generation import build_generation_io
from nnpipe.formats.model_folder import (
    read_genai_io,
    unpack_genai_archive,
    write_genai_archive,
)

IO = build_generation_io(7)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    (folder / "below").mkdir(parents=True)
    (folder / "genai_config.json").write_text("{}")
    (folder / "model.onnx.data").write_bytes(bytes(1000))
    write_genai_archive(tmp_path / "model.genai", folder, IO)
    return tmp_path / "model.genai"


def test_it_comes_out_as_it_went_in(archive: Path, tmp_path: Path) -> None:
    assert read_genai_io(archive) == IO
    (tmp_path / "out").mkdir()
    assert unpack_genai_archive(archive, tmp_path / "out") == IO
    assert (tmp_path / "out" / "model.onnx.data").read_bytes() == bytes(1000)
    first = archive.read_bytes()
    write_genai_archive(archive, tmp_path / "made", IO)
    assert archive.read_bytes() == first


@pytest.mark.parametrize("name", ["../evil", "below/evil", "/evil", "..", "a\\..\\evil"])
def test_no_entry_leaves_the_folder(tmp_path: Path, name: str) -> None:
    path, out = tmp_path / "model.genai", tmp_path / "deep" / "out"
    out.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("io.json", json.dumps(IO.to_json()))
        made.writestr(name, b"evil")
    with pytest.raises(ArtifactError, match="no file of a flat folder"):
        unpack_genai_archive(path, out)
    assert not list(tmp_path.rglob("*evil*"))


def test_bombs_and_other_archives_are_refused(archive: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.genai"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("io.json", json.dumps(IO.to_json()))
        made.writestr("model.onnx", bytes(1 << 22))
    with pytest.raises(ArtifactError, match="compressed or encrypted"):
        read_genai_io(bomb)
    for said in ("{}", "[" * 100_000, "[]", json.dumps({**IO.to_json(), "outputs": []})):
        with zipfile.ZipFile(bomb, "w") as made:
            made.writestr("io.json", said)
        with pytest.raises(ArtifactError) as caught:
            read_genai_io(bomb)
        assert "\n" not in str(caught.value)
    with zipfile.ZipFile(bomb, "w") as made:
        made.writestr("model.xml", b"")
    with pytest.raises(ArtifactError, match="not of a model of onnxruntime-genai"):
        read_genai_io(bomb)
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(ArtifactError, match="damaged"):
        read_genai_io(archive)
    with pytest.raises(ArtifactError, match="no such model file"):
        read_genai_io(tmp_path / "gone.genai")
