from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "protocols" / "target_c"))
from serving import write_model

from nnpipe.scenarios.build_server import main


def test_what_is_missing_is_said_in_one_line(tmp_path: Path, capsys: Any) -> None:
    source = write_model(tmp_path).path
    for words, text in (
        ([tmp_path / "server", source, "--cc", "no-such-gcc"], "apt install gcc-no-such"),
        ([tmp_path / "server", tmp_path / "nothing.c"], "nothing.c: no such model file"),
        ([tmp_path / "no" / "server", source], "no"),
    ):
        assert main([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert text in said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_it_says_how_large_the_program_is(tmp_path: Path, capsys: Any) -> None:
    server = tmp_path / "server"
    assert main([str(server), str(write_model(tmp_path).path)]) == 0
    said = capsys.readouterr().out
    assert f"{server}: {server.stat().st_size:,} bytes" in said
    assert "with a model: any.c" in said
