"""What native libraries print can be held back, and read."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from nnpipe.core.quiet import native_output_held


def test_what_is_written_meanwhile_is_held_and_can_be_read(capfd: pytest.CaptureFixture[str]) -> None:
    with native_output_held() as said:
        os.write(2, b"from C\n")
        print("from Python", file=sys.stderr)
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'from a child')"], check=True)
        assert "from C\n" in said()
        assert "from Python" in said()
        os.write(2, b", and more")
        assert said().endswith("from a child, and more")
    assert capfd.readouterr() == ("", "")


def test_what_is_written_before_and_after_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    print("before", file=sys.stderr)
    with native_output_held():
        os.write(2, b"meanwhile\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nafter\n"


def test_an_error_passes_and_ends_it(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), native_output_held():
        os.write(2, b"held\n")
        raise ZeroDivisionError
    logging.getLogger("nnpipe.tests").error("shown")
    os.write(2, b"shown\n")
    assert capfd.readouterr().err.endswith("shown\n")


def test_no_descriptor_is_left_open() -> None:
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else None
    if before is None:
        pytest.skip("open files cannot be counted here")
    for _ in range(3):
        with native_output_held():
            pass
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_process_without_standard_error_can_hold_it_all_the_same() -> None:
    code = (
        "import os, sys\n"
        "from nnpipe.core.quiet import native_output_held\n"
        "os.close(2)\n"
        "sys.stderr = None\n"
        "with native_output_held() as said:\n"
        "    text = said()\n"
        "print('fine' + text)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "fine\n"
