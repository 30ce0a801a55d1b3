from __future__ import annotations

from pathlib import Path

import pytest

from nnpipe.core.processor import has_saturating_byte_sums, read_instruction_sets


def machine_with(folder: Path, line: str) -> Path:
    (folder / "proc").mkdir()
    (folder / "proc" / "cpuinfo").write_text(
        f"processor\t: 0\nmodel name\t: Some\n{line}\n\nprocessor\t: 1\n"
    )
    return folder


@pytest.mark.parametrize("name", ["flags", "Features"])
def test_the_flags_of_the_first_core_are_read(name: str, tmp_path: Path) -> None:
    assert read_instruction_sets(machine_with(tmp_path, f"{name}\t\t: fma avx2 sse")) == {
        "fma",
        "avx2",
        "sse",
    }


def test_a_system_that_lists_none_has_none(tmp_path: Path) -> None:
    assert read_instruction_sets(tmp_path) == frozenset()
    assert read_instruction_sets(machine_with(tmp_path, "bogomips : 1")) == frozenset()


@pytest.mark.parametrize(
    ("architecture", "flags", "expected"),
    [
        ("x86_64", "avx avx2 fma", True),
        ("x86_64", "avx2 avx512f avx512_vnni", False),
        ("AMD64", "avx2 avx_vnni", False),
        ("x86_64", "amx_int8", False),
        ("x86_64", "", True),
        ("aarch64", "asimd", False),
        ("arm64", "", False),
    ],
)
def test_sums_overflow_on_x86_without_dot_products_of_bytes(
    architecture: str, flags: str, expected: bool, tmp_path: Path
) -> None:
    assert (
        has_saturating_byte_sums(machine_with(tmp_path, f"flags : {flags}"), architecture)
        is expected
    )
