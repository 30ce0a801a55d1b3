"""What a TensorFlow Lite file says of its operators is read when it is asked for."""

from __future__ import annotations

import struct

import pytest

from nnpipe.core.errors import ArtifactError
from nnpipe.formats._flatbuffer import FlatBufferTable
from nnpipe.formats.tflite_graph import ProgramOperator
from nnpipe.testing.session import assert_one_line


@pytest.mark.parametrize(
    ("data", "position"),
    [(bytes(8), 1000), (struct.pack("<HHHHi", 6, 8, 12, 0, 8), 8)],
    ids=["the table", "what the table refers to"],
)
def test_options_outside_of_the_file_are_told(data: bytes, position: int) -> None:
    operator = ProgramOperator(18, "", (0, 1), (2,), FlatBufferTable(memoryview(data), position))
    for read in (lambda: operator.read_option(0, "<b"), lambda: operator.read_float_option(0)):
        with pytest.raises(ArtifactError, match="the options of an operator are damaged") as caught:
            read()
        assert_one_line(caught.value)
