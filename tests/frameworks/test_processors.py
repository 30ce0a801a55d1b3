"""Which targets of compilers are this machine."""

from __future__ import annotations

import platform

import pytest

from nnpipe.frameworks.processors import is_this_machine


@pytest.mark.parametrize("target", ["cpu", "native", "generic", f"{platform.machine()}-linux-gnu"])
def test_what_is_made_for_this_machine(target: str) -> None:
    assert is_this_machine(target)


@pytest.mark.parametrize("target", ["edgetpu", "riscv32-none-elf"])
def test_what_is_made_for_another(target: str) -> None:
    assert not is_this_machine(target)
