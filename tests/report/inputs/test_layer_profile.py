"""What a result file holds of layers: all of it comes back, its size is bounded, and damage is
refused.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from nnpipe.analysis.layer_times import FURTHER
from nnpipe.core.errors import ArtifactError
from nnpipe.measuring.result_json import pack
from nnpipe.report.inputs.layer_profile import MOST_LAYERS, LayerProfile


def test_everything_comes_back(make_profile) -> None:
    profile = make_profile(seed=3)
    found = LayerProfile.from_json(json.loads(json.dumps(profile.to_json())))
    assert found.times == profile.times
    assert (found.reasons, found.live_bytes, found.memory) == (
        profile.reasons,
        profile.live_bytes,
        profile.memory,
    )


def test_of_too_many_layers_the_longest_are_kept_and_all_still_add_up(make_profile) -> None:
    profile = make_profile(steps=MOST_LAYERS + 500)
    found = LayerProfile.from_json(profile.to_json()).times
    assert len(found.layers) == MOST_LAYERS + 1
    assert found.layers[-1].kind == FURTHER
    assert sum(each.time_ns for each in found.rows) == pytest.approx(profile.times.run_ns)
    kept = sorted(each.time_ns for each in profile.times.layers)[-MOST_LAYERS:]
    assert sorted(each.time_ns for each in found.layers[:-1]) == kept


def test_a_long_list_of_long_names_does_not_fill_a_result(make_profile) -> None:
    profile = make_profile(steps=1500)
    names = tuple("n" * 500 for _ in range(40))
    layers = tuple(dataclasses.replace(each, operations=names) for each in profile.times.layers)
    long = dataclasses.replace(profile, times=dataclasses.replace(profile.times, layers=layers))
    assert len(json.dumps(long.to_json())) < 2 << 20
    LayerProfile.from_json(long.to_json())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: data.pop("runs"), "'runs' is missing"),
        (lambda data: data.update(run_ns="fast"), "a number"),
        (lambda data: data.update(run_ns=0), "takes some time"),
        (lambda data: data.update(layers=[]), "damaged"),
        (lambda data: data["layers"].update(step="one"), "different lengths"),
        (lambda data: data["layers"].update(step="\n" * 99_999), "too long"),
        (
            lambda data: data["layers"].update(time_ns=pack(np.full(13, np.nan))),
            "no list of numbers",
        ),
        (
            lambda data: data["layers"].update(macs=pack(np.zeros((13, 2), np.int64))),
            "no list of numbers",
        ),
        (
            lambda data: data["layers"].update(macs=pack(np.zeros(1 << 20, np.int64))),
            "damaged|too large",
        ),
        (lambda data: data.update(live_bytes=pack(np.full(3, -1))), "number"),
        (lambda data: data.update(memory={"file_bytes": "all"}), "damaged"),
        (lambda data: data.update(reasons="none"), "a list"),
    ],
)
def test_damage_is_refused_in_one_line(make_profile, change, told) -> None:
    data = make_profile().to_json()
    change(data)
    with pytest.raises(ArtifactError, match=told):
        LayerProfile.from_json(data)
