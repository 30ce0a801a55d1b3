"""What native libraries print can be held back, and read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnpipe.core.native_output import capture_native_output


def test_what_is_written_meanwhile_is_held_and_can_be_read(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with capture_native_output() as said:
        os.write(2, b"from C\n")
        subprocess.run(
            [sys.executable, "-c", "import os; os.write(2, b'from a child')"], check=True
        )
        assert said() == "from C\nfrom a child"
        os.write(2, b", and more")
        assert said() == "from C\nfrom a child, and more"
    assert capfd.readouterr() == ("", "")


def test_what_python_writes_is_held_too() -> None:
    code = (
        "import sys\n"
        "from nnpipe.core.native_output import capture_native_output\n"
        "print('before', end=' ', file=sys.stderr)\n"
        "with capture_native_output() as said:\n"
        "    print('held', end=' ', file=sys.stderr)\n"
        "    assert said() == 'held ', said()\n"
        "print('after', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "before after\n"


def test_what_is_written_before_and_after_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    print("before", file=sys.stderr)
    with capture_native_output():
        os.write(2, b"meanwhile\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nafter\n"


def test_an_error_passes_and_ends_it(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with capture_native_output():
            os.write(2, b"held\n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    os.write(2, b"shown\n")
    assert capfd.readouterr().err == "shown\n"


def test_no_descriptor_is_left_open() -> None:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("open files cannot be counted here")
    before = len(list(folder.iterdir()))
    for _ in range(3):
        with capture_native_output():
            pass
    assert len(list(folder.iterdir())) == before


def test_a_process_without_standard_error_can_hold_it_all_the_same() -> None:
    code = (
        "import os, sys\n"
        "from nnpipe.core.native_output import capture_native_output\n"
        "os.close(2)\n"
        "sys.stderr = None\n"
        "with capture_native_output() as said:\n"
        "    text = said()\n"
        "print('fine' + text)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == "fine\n"
