from __future__ import annotations

from typing import Any

import pytest

from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.measuring.load import Load, Until
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.max_rate import LatencyBound
from nnpipe.testing.component import ComponentContract


class TestLoadOptions(ComponentContract):
    @pytest.fixture
    def component(self) -> Component:
        return LoadOptions(
            scenario="server", rate=50.0, load_seed=3, load_queries=1000, max_latency="10ms@p99"
        )


@pytest.mark.parametrize(
    ("given", "load"),
    [
        ({"scenario": "single-stream"}, Load()),
        (
            {"scenario": "server", "rate": 5.0, "load_seed": 2},
            Load(scenario="server", rate=5.0, seed=2),
        ),
        ({"scenario": "offline"}, Load(scenario="offline")),
        ({}, Load()),
    ],
)
def test_options_name_a_load(given: dict[str, Any], load: Load) -> None:
    options = LoadOptions(**given)
    assert options.load() == load
    assert options.wanted is bool(given)


@pytest.mark.parametrize(
    ("given", "until"),
    [
        ({}, Until(seconds=10.0, share=0.9)),
        ({"load_queries": 7}, Until(queries=7, share=0.9)),
        ({"load_seconds": 3.0, "load_queries": 7}, Until(seconds=3.0, queries=7, share=0.9)),
        ({"load_precision": 0.02}, Until(seconds=60.0, precision=0.02, share=0.9)),
        (
            {"load_precision": 0.02, "load_percentile": 50.0},
            Until(seconds=60.0, precision=0.02, share=0.5),
        ),
    ],
)
def test_a_load_has_an_end_whatever_is_left_out(given: dict[str, Any], until: Until) -> None:
    assert LoadOptions(scenario="single-stream", **given).build_until() == until


@pytest.mark.parametrize(
    ("scenario", "share"), [("multi-stream", 0.99), ("server", 0.99), ("offline", 0.5)]
)
def test_the_percentile_is_what_mlperf_reports(scenario: Any, share: float) -> None:
    rate = 5.0 if scenario == "server" else None
    assert LoadOptions(scenario=scenario, rate=rate).build_until().share == share


@pytest.mark.parametrize(
    ("scenario", "fixed", "samples"),
    [
        ("single-stream", None, 1),
        ("single-stream", 8, 1),
        ("multi-stream", None, 8),
        ("multi-stream", 4, 8),
        ("offline", None, 64),
        ("offline", 16, 16),
    ],
)
def test_how_many_samples_a_query_has_follows_from_the_load_and_the_model(
    scenario: Any, fixed: int | None, samples: int
) -> None:
    assert LoadOptions(scenario=scenario).samples(fixed) == samples
    assert LoadOptions(scenario=scenario, samples_per_query=3).samples(fixed) == 3


def test_a_search_is_a_load() -> None:
    options = LoadOptions(find_max_rate=True, max_latency="5ms@p90")
    assert options.wanted
    assert options.get_latency_bound() == LatencyBound(0.9, 5_000_000)
    assert LoadOptions(find_max_rate=True, max_latency="5ms", scenario="server").wanted


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"scenario": "server"}, "needs a rate"),
        ({"scenario": "offline", "rate": 5.0}, "a rate is for the server scenario"),
        (
            {"rate": 5.0, "load_seconds": 1.0},
            "--rate, --load-seconds is for loads: name one with --load",
        ),
        ({"find_max_rate": True}, "--max-latency 10ms@p99"),
        (
            {"find_max_rate": True, "max_latency": "1ms", "scenario": "offline"},
            "leave --load and --rate out",
        ),
        ({"scenario": "single-stream", "max_latency": "soon"}, "'soon' is no bound on a latency"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        LoadOptions(**given)


def test_an_audit_needs_no_load() -> None:
    assert not LoadOptions(audit=True).wanted
