"""Measuring what this machine can do, keeping it, and drawing it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

import nnpipe as nn
from nnpipe.analysis.roofline import Ceiling, Ceilings, MemoryLevel
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.measuring.host import get_machine_folder, get_machine_name
from nnpipe.scenarios.roofline import main
from nnpipe.workflows.roofline.roofline import (
    find_memory_levels,
    get_ceilings_file,
    measure_bandwidth,
)

SOUND = Ceilings(
    "a board",
    2,
    {"float32": Ceiling((9e9, 10e9, 9.5e9), "numpy")},
    (MemoryLevel(1000, Ceiling((100e9,), "")), MemoryLevel(None, Ceiling((10e9,), ""))),
    {"int8": "no library"},
)


def test_levels_are_found_in_repeats_and_bounded_by_their_size() -> None:
    sizes = [1, 2, 4, 8, 16, 32, 64, 128]
    rows = [
        [100, 101, 99, 100, 60, 30, 21, 20],
        [102, 100, 99, 98, 61, 28, 20, 20],
        [101, 99, 99, 97, 59, 31, 10, 20],
    ]
    inner, outer = find_memory_levels(sizes, rows)
    assert inner.up_to_bytes == 8
    assert inner.bandwidth.repeats == (101, 102, 101)
    assert outer.up_to_bytes is None
    assert outer.bandwidth.repeats == (21, 20, 20)


def test_small_data_are_read_as_fast_as_larger_ones_and_not_as_slow_as_a_call() -> None:
    # A call takes a microsecond, in which a cache gives far more than these 4 KiB.
    assert measure_bandwidth(4 << 10, 1, 0.01) > 0.2 * measure_bandwidth(256 << 10, 1, 0.01)
    assert measure_bandwidth(64 << 10, 2, 0.01) > 0


def test_a_result_says_what_is_not_known(tmp_path: Path) -> None:
    found = nn.RooflineResult(SOUND)
    text = found.text()
    assert "a board, 2 threads" in text
    assert "no library" in text
    assert "main memory" in text
    assert found.save_svg(tmp_path / "roof.svg")
    assert ElementTree.parse(tmp_path / "roof.svg").getroot().tag.endswith("svg")
    noisy = Ceilings("a board", 1, {"float32": Ceiling((5e9, 10e9), "numpy")}, SOUND.memory, {})
    assert "not known" in nn.RooflineResult(noisy).text()
    assert not nn.RooflineResult(noisy).save_svg(tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
    found.save_json(tmp_path / "c.json")
    assert nn.read_ceilings(tmp_path / "c.json") == SOUND


def test_a_file_that_holds_no_ceilings_is_refused(tmp_path: Path) -> None:
    for content in ("", "[]", "{", '{"kind": "nnpipe ceilings"}'):
        (tmp_path / "c.json").write_text(content)
        with pytest.raises(ArtifactError, match=r"c\.json"):
            nn.read_ceilings(tmp_path / "c.json")
    with pytest.raises(ArtifactError, match="cannot be read"):
        nn.read_ceilings(tmp_path / "none.json")


def test_more_threads_than_processors_are_refused() -> None:
    with pytest.raises(ConfigError, match="100000 threads need as many processors"):
        nn.roofline(threads=100_000)


def test_a_machine_is_named_by_its_processor_alone(tmp_path: Path) -> None:
    assert get_machine_name() == get_machine_name()
    assert get_machine_folder(tmp_path).parent == tmp_path / ".local/share/nnpipe/machines"
    assert get_machine_name({"cpu": {}}).startswith("unknown-None-cores-")


@pytest.mark.slow
def test_the_command_measures_this_machine_and_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "roof.svg"
    assert (
        main(["--seconds", "0.01", "--folder", str(tmp_path), "--json", str(tmp_path / "c.json")])
        == 0
    )
    assert "float32" in capsys.readouterr().out
    kept = nn.read_ceilings(get_ceilings_file(tmp_path, 1))
    assert kept == nn.read_ceilings(tmp_path / "c.json")
    assert max(kept.compute["float32"].repeats) > 1e8
    assert kept.memory[-1].up_to_bytes is None
    assert all(len(each.bandwidth.repeats) == 3 for each in kept.memory)
    assert not picture.exists()
