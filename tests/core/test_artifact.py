"""A model file and what lies beside it belong together, or somebody hears of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import IOSpec, TensorSpec

IO = IOSpec((TensorSpec("x", (None, 2), "int8", 0.1, 3),), (TensorSpec("y", (None,), "float32"),))


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    source, compiled = tmp_path / "m.keras", tmp_path / "m.onnx"
    source.write_bytes(b"source")
    compiled.write_bytes(b"compiled")
    parent = Artifact.create(source, "keras", IO, frameworks=(("keras", "3"),))
    return Artifact.create(
        compiled,
        "onnx",
        IO,
        target="cpu",
        producer={"class": "a.B", "arguments": {"n": 1}},
        parent=parent,
    )


def test_reading_gives_back_what_was_written(artifact: Artifact) -> None:
    assert Artifact.read(artifact.path) == artifact


def test_the_origin_can_be_followed_back(artifact: Artifact) -> None:
    parent = Artifact.read(artifact.path).parent
    assert parent is not None
    assert (parent.format, parent.frameworks, parent.parent) == ("keras", (("keras", "3"),), None)


def test_the_origin_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, apart = tmp_path / "made", tmp_path / "apart"
    made.mkdir()
    apart.mkdir()
    monkeypatch.chdir(tmp_path)
    Path("made/m.step0").write_bytes(b"exported")
    Path("made/m.bin").write_bytes(b"compiled")
    Path("apart/m.copy").write_bytes(b"linked")
    first = Artifact.create("made/m.step0", "onnx", IO)
    Artifact.create("made/m.bin", "bin", IO, parent=first)
    Artifact.create(
        "apart/m.copy", "bin", IO, parent=Artifact.create("made/m.bin", "bin", IO, parent=first)
    )
    monkeypatch.chdir(apart)
    for path in (Path("m.copy"), made / "m.bin", Path("..", "made", "m.bin")):
        origin = Artifact.read(path).exported
        origin.verify()
        assert origin.path.read_bytes() == b"exported"
    made.rename(tmp_path / "moved")
    Artifact.read(tmp_path / "moved" / "m.bin").exported.verify()


def test_a_moved_pair_is_found_in_its_new_place(artifact: Artifact, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for path in (artifact.path, get_sidecar_path(artifact.path)):
        path.rename(folder / path.name)
    assert Artifact.read(folder / "m.onnx").path == folder / "m.onnx"


@pytest.mark.parametrize("content", [b"", b"compileD", b"compiled "])
def test_a_changed_file_is_named(artifact: Artifact, content: bytes) -> None:
    artifact.path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"m\.onnx: the content is not what"):
        Artifact.read(artifact.path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"none\.onnx: no such model file"):
        Artifact.read(tmp_path / "none.onnx")


def test_a_bare_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bare.onnx").write_bytes(b"x")
    with pytest.raises(ArtifactError, match=r"bare\.onnx: nothing beside it says what it is"):
        Artifact.read(tmp_path / "bare.onnx")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 2}', '{"schema": 1}', '"' * 3])
def test_a_damaged_description_is_named(artifact: Artifact, text: str) -> None:
    get_sidecar_path(artifact.path).write_text(text)
    with pytest.raises(ArtifactError, match=r"m\.onnx\.json: not a model's description"):
        Artifact.read(artifact.path)


def test_each_field_of_the_description_is_needed(artifact: Artifact) -> None:
    whole = json.loads(get_sidecar_path(artifact.path).read_text())
    for key in set(whole) - {"path"}:
        get_sidecar_path(artifact.path).write_text(
            json.dumps({k: v for k, v in whole.items() if k != key})
        )
        with pytest.raises(ArtifactError, match="not a model's description"):
            Artifact.read(artifact.path)
