"""Traces of power: what CSV files may hold, and the energy between two times."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.power_trace import PowerTrace, read_power_trace, trace_of_csv


@pytest.mark.parametrize(
    ("heading", "row"),
    [
        ("time,power", "{t:.7f},{w:.7f}"),
        ("time_us,voltage_mv,current_ua", "{us:.1f},{mv:.4f},{ua:.4f}"),
        ("name,Time_ms, Power_mW", "x,{ms:.5f},{mw:.4f}"),
        ("current,voltage,time_ns,trigger", "{a:.8f},{v:.8f},{ns:.0f},1"),
    ],
)
def test_recorded_traces_are_right_within_one_percent(
    tmp_path: Path, heading: str, row: str
) -> None:
    """A power that swings is integrated as the formula says, whatever columns the file has."""
    lines = [heading]
    for number in range(4000):
        t = number * 0.0005
        v, a = 5.0 + 0.1 * math.sin(7 * t), 0.3 + 0.2 * math.sin(40 * t)
        w = v * a
        lines.append(
            row.format(
                t=t,
                us=1e6 * t,
                ms=1e3 * t,
                ns=1e9 * t,
                v=v,
                mv=1e3 * v,
                a=a,
                ua=1e6 * a,
                w=w,
                mw=1e3 * w,
            )
        )
    path = tmp_path / "power.csv"
    path.write_text("\n".join(lines), "utf-8-sig")
    fine = np.linspace(0.1234, 1.8765, 1_000_001)
    true = float(np.mean((5.0 + 0.1 * np.sin(7 * fine)) * (0.3 + 0.2 * np.sin(40 * fine)))) * (
        1.8765 - 0.1234
    )
    assert read_power_trace(path).compute_energy(0.1234, 1.8765) == pytest.approx(true, rel=1e-3)


def test_falling_edges_of_a_pin_mark_what_was_measured() -> None:
    level = [1, 1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 0, 1]
    trace = PowerTrace(np.arange(13.0), np.ones(13), level)
    assert trace.find_windows() == [(2.0, 6.0), (9.0, 11.0)]
    assert trace.compute_window_joules(10) == pytest.approx([0.4, 0.2])
    with pytest.raises(ArtifactError, match="falls 3 times"):
        PowerTrace(np.arange(11.0), np.ones(11), level[:11]).find_windows()
    with pytest.raises(ArtifactError, match="no column trigger"):
        PowerTrace([0, 1], [1, 1]).find_windows()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names none"),
        ("time,volts\n0,1\n1,1\n", "it names time, volts"),
        ("time,power\n0,1\n1,x\n", "a line is no sample"),
        ("time,power\n0,1\n1,nan\n", "not finite"),
        ("time,power\n0,1\n", "two samples or more"),
        ("time,power\n", "no samples"),
        ("time,power\n1,1\n0,1\n", "must rise"),
    ],
)
def test_other_files_are_refused_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "power.csv"
    path.write_text(text)
    with pytest.raises(ArtifactError, match=said) as caught:
        read_power_trace(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_power_trace(tmp_path)


def test_energy_outside_a_trace_or_over_a_hole_is_not_known() -> None:
    trace = trace_of_csv(
        "time,power\n" + "".join(f"{t},2\n" for t in (*range(100), *range(200, 300)))
    )
    assert trace.compute_energy(3.5, 90.0) == pytest.approx(173.0)
    with pytest.raises(ArtifactError, match="do both clocks agree"):
        trace.compute_energy(250, 400)
    with pytest.raises(ArtifactError, match="a hole of 101"):
        trace.compute_energy(50, 250)
