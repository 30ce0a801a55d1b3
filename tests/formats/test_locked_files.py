"""Files that others write, and those of other kinds, are told from damaged ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shared_data import shared_data

from nnpipe.core.errors import ArtifactError, DatasetError
from nnpipe.experiment.readers.reader import create_reader
from nnpipe.formats.file_types import describe_file_type
from nnpipe.formats.keras import read_structure

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

_HOLD = (
    "import h5py, sys; f = h5py.File(sys.argv[1], 'r+'); print('open', flush=True); "
    "sys.stdin.read()"
)


def test_a_file_that_another_program_writes_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(shared_data("keras_files/nonSequentialModel1.h5").read_bytes())
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        with pytest.raises(
            ArtifactError, match=r"model\.h5: another program has it open for writing"
        ) as caught:
            read_structure(path)
        with pytest.raises(DatasetError, match="another program has it open for writing"):
            create_reader(path).read()
    assert "damaged" not in str(caught.value)
    assert read_structure(path)


def test_openvinos_own_files_are_told_with_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "model.xml"
    path.write_text('<?xml version="1.0"?>\n<net name="network" version="11">\n\t<layers>\n')
    hint = describe_file_type(path, "ONNXModel")
    assert "OpenVINO" in hint
    assert "name the ONNX or TensorFlow Lite file" in hint
    assert "web page" not in hint
