"""The section of layers: each candidate with its reasons, two beside each other, and why there
are none.
"""

from __future__ import annotations

import dataclasses

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.report.document import Paragraph, Plot, Section, Table
from nnpipe.report.render import render


def layers_of(runs) -> Section:
    (found,) = [each for each in render(runs, "layers").sections if each.title == "Layers"]
    return found


def of_kind(section, kind):
    return [block for block in section.blocks if isinstance(block, kind)]


def test_one_candidate_shows_its_layers_the_reasons_and_the_memory(make_run, make_profile) -> None:
    section = layers_of(
        [dataclasses.replace(make_run(), profile=make_profile(steps=250).to_json())]
    )
    told = " ".join(block.text for block in of_kind(section, Paragraph))
    assert "Reason: 2 convolutions ran in float32: 20 %." in told
    assert "Loading takes 9.44 MB, for files of 4.19 MB: weights are copied" in told.replace(
        "\u00a0", " "
    ).replace("Memory, measured in a process of its own: loading", "Loading")
    assert {plot.name for plot in of_kind(section, Plot)} == {"layers-time", "layers-memory"}
    kinds, steps = of_kind(section, Table)
    assert len(kinds.rows) == 4
    assert len(steps.rows) == 202
    assert [row[0] for row in steps.rows][-2:] == ["not attributed", "and 50 more"]


def test_two_candidates_are_shown_layer_by_layer(make_run, make_profile) -> None:
    profiles = [make_profile(0), make_profile(1, runtime="OpenVINORuntime")]
    runs = [
        dataclasses.replace(make_run(f"<b>{n}</b>"), profile=each.to_json())
        for n, each in enumerate(profiles)
    ]
    section = layers_of([*runs, make_run("another")])
    (table,) = of_kind(section, Table)
    assert table.caption == "Layer by layer: <b>0</b> and <b>1</b>"
    first, second = (profile.times.layers[4].time_ns for profile in profiles)
    (row,) = [row for row in table.rows if row[0] == "stage4/conv"]
    assert (row[3].value, row[4].value, row[5].value) == (first, second, second / first)
    (plot,) = of_kind(section, Plot)
    assert [bar.label for bar in plot.chart.bars] == ["<b>0</b>", "<b>1</b>"]
    for bar, profile in zip(plot.chart.bars, profiles, strict=True):
        assert bar.parts.sum() == pytest.approx(profile.times.run_ns / 1e3)
    assert [each.title for each in of_kind(section, Section)] == ["<b>0</b>", "<b>1</b>"]


def test_layers_that_could_not_be_timed_are_told(make_run) -> None:
    run = dataclasses.replace(make_run("remote"), profile={"reason": "a target does not tell"})
    (note,) = of_kind(layers_of([run]), Paragraph)
    assert note.text == "The layers of remote were not timed: a target does not tell."
    with pytest.raises(ConfigError, match="--profile"):
        render([make_run()], "no layers", ["layers"])
