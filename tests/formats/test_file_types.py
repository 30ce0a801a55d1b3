"""Whoever names a file of another kind is told what it is."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.file_types import check_there, describe_file_type
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.sealed import SealedFile, write_sealed
from nnpipe.formats.tflite import read_tflite


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "empty"),
        (b"\x1c\0\0\0TFL3" + bytes(100), "for TFLiteModel"),
        (b"\x08\0\0\0ET12" + bytes(100), "ExecuTorch"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "for KerasModel"),
        (b"\x08\x09\x12\x07pytorch", "for ONNXModel"),
        (b"\x08\x01\x12\x07", "SavedModel"),
        (pickle.dumps([1]), "a pickle"),
        (pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + b"\x80\x02", "an old torch.save"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\n<!DOCTYPE html><html>", "a web page"),
        (b"\x1f\x8b\x08\0", "unpack it"),
        (b"\x7fELF", "machine code"),
    ],
)
def test_a_file_is_known_by_its_first_bytes(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    found = describe_file_type(path, "SklearnModel")
    assert kind in found
    assert found.startswith(" (it is ")
    assert found.endswith(")")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model/archive_format", "for TorchExportModel"),
        ("state/data.pkl", "written by torch.save"),
        ("script/constants.pkl", "TorchScript"),
        ("model.weights.h5", "for KerasModel"),
        ("schema.json", "for SklearnModel"),
        ("arr_0.npy", "NumPy"),
        ("holiday.jpg", "something else"),
    ],
)
def test_an_archive_is_known_by_what_is_in_it(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        # TorchScript has both
        archive.writestr("script/data.pkl" if "script" in name else "readme.txt", b"")
        archive.writestr(name, b"")
    assert kind in describe_file_type(path, "ONNXModel")


def test_what_was_compiled_here_is_known(tmp_path: Path) -> None:
    write_sealed(tmp_path / "m.so", SealedFile(b"\x7fELF", "tvm", IOSpec((), ()), {}))
    assert "compiled by nnpipe" in describe_file_type(tmp_path / "m.so", "ONNXModel")


def test_of_a_damaged_file_of_the_wanted_kind_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3")
    assert describe_file_type(path, "TFLiteModel") == ""


@given(st.binary(max_size=200))
def test_any_bytes_are_answered_with_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    path.write_bytes(data)
    assert "\n" not in describe_file_type(path, "ONNXModel")


@pytest.mark.parametrize("read", [read_onnx, read_tflite])
def test_readers_tell_what_they_were_given(tmp_path: Path, read: object) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"<html>404</html>")
    with pytest.raises(ArtifactError, match="the download went wrong") as caught:
        read(path)  # type: ignore[operator]
    assert str(path) in str(caught.value)


def test_a_saved_model_is_answered_with_how_to_convert_it(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="a folder, not a model file"):
        check_there(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01\x12")
    with pytest.raises(ArtifactError, match=r"tf2onnx.convert --saved-model .* --opset 18"):
        check_there(tmp_path)
    with pytest.raises(ArtifactError, match="no such model file"):
        check_there(tmp_path / "absent")
