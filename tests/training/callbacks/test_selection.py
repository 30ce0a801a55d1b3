"""Callbacks are chosen by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.training.callbacks import selection
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import choose, find_callback_classes

KNOWN = {"classes": ("ant", "bee"), "folders": [Path(__file__)]}

pytest.importorskip("matplotlib", reason="Matplotlib is not installed")


class Own(Callback):
    """One of somebody's own."""


def names(*given: str, framework: str = "torch", known: Any = KNOWN, **more: Any) -> list[str]:
    return [
        type(callback).__name__
        for callback in choose(given, framework=framework, known=known, **more)
    ]


def test_the_page_comes_last_and_nothing_twice() -> None:
    found = names("default", "NanWatch", "EpochSummary", f"{__name__}.Own", "default")
    assert found[-3:] == ["NanWatch", "Own", "RunPage"]
    assert len(set(found)) == len(found)
    assert names("none") == []
    assert names("RunPage", "HistoryPlots") == ["HistoryPlots", "RunPage"]


def test_only_what_fits_comes_by_default() -> None:
    whole, others = names("default"), names("default", classes=False)
    assert set(whole) - set(others) == {"ClassificationReport", "Confusions", "WorstSamples"}
    assert set(names("default", framework="keras")) <= set(whole)


def test_options_stand_behind_a_colon() -> None:
    (watch, report) = choose(
        ["NanWatch:every=5,layers=false", "ClassificationReport:classes=[a, b]"],
        framework="torch",
        known=KNOWN,
    )
    assert (watch.every, watch.layers) == (5, False)  # type: ignore[attr-defined]
    assert report.classes == ("a", "b")  # type: ignore[attr-defined]
    (own,) = choose([f"{__name__}.Own"], framework="torch", known=KNOWN)
    assert isinstance(own, Own)
    (worst,) = (
        c
        for c in choose(["WorstSamples:count=7", "default"], framework="torch", known=KNOWN)
        if c.options() and type(c).__name__ == "WorstSamples"
    )
    assert worst.count == 7  # type: ignore[attr-defined]


def test_callbacks_are_given_what_they_take() -> None:
    (report, snapshot) = choose(
        ["ClassificationReport", "SourceSnapshot"], framework="torch", known=KNOWN
    )
    assert report.classes == ("ant", "bee")  # type: ignore[attr-defined]
    assert snapshot.folders == (Path(__file__),)  # type: ignore[attr-defined]


def test_without_matplotlib_tables_are_left_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(selection, "find_spec", lambda name: None)
    found = names("default")
    assert found == [
        "EpochSummary",
        "DatasetSummary",
        "ModelSummary",
        "BestFigures",
        "SourceSnapshot",
        "RunPage",
    ]
    assert "there will be no pictures: matplotlib is not installed" in caplog.text
    assert names("HistoryPlots") == ["HistoryPlots"]  # asked for, so it says itself what it needs


def test_a_callback_of_another_framework_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="Own supports only torch; this training uses keras"):
        names(f"{__name__}.Own", framework="keras")


def test_every_callback_says_whose_trainings_it_looks_on() -> None:
    assert {name for cls in find_callback_classes().values() for name in cls.frameworks} == {
        "torch",
        "keras",
    }
    assert "WritingCallback" not in find_callback_classes()
