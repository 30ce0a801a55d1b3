"""The sizes of compiled files are those that the compiler's own tools tell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnpipe.frameworks.c_source import compute_built_size, compute_loaded_size

SOURCE = """
const int constants[1000] = {1};
int initial[500] = {1};
int empty[100000];
int sum(void) { int s = 0; for (int n = 0; n < 1000; n++) s += constants[n] + empty[n]; return s; }
int main(void) { return sum() + initial[0]; }
"""
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not all(map(shutil.which, ("cc", "size"))),
    reason="the tools of ELF files are missing",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.c").write_text(SOURCE)
    for arguments in (["-c", "-o", "a.o"], ["-o", "a"]):
        subprocess.run(["cc", *arguments, "a.c"], check=True, cwd=tmp_path, capture_output=True)
    return tmp_path


def test_code_constants_and_initial_values_count_and_empty_memory_does_not(folder: Path) -> None:
    found = compute_built_size(folder / "a.o")
    assert found is not None
    assert 6000 < found < 6600


def test_it_is_what_size_tells(folder: Path) -> None:
    told = subprocess.run(
        ["size", "a.o"], check=True, cwd=folder, capture_output=True, text=True
    ).stdout
    text, data = map(int, told.splitlines()[1].split()[:2])
    assert compute_built_size(folder / "a.o") == text + data


def test_what_is_loaded_of_a_program_is_less_than_its_file(folder: Path) -> None:
    assert 6000 < compute_loaded_size(folder / "a") < (folder / "a").stat().st_size


def test_another_file_has_no_built_size(tmp_path: Path) -> None:
    (tmp_path / "a.o").write_bytes(b"\xcf\xfa\xed\xfe" + bytes(96))
    assert compute_built_size(tmp_path / "a.o") is None
    assert compute_loaded_size(tmp_path / "a.o") == 100
