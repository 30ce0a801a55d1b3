"""The best of several candidates is chosen by what is surely known of each, and written with the
reason.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnpipe as nn
from nnpipe.core.errors import ConfigError
from nnpipe.measuring.comparison import with_turns
from nnpipe.measuring.constraints import Figure, get_metric_quantity
from nnpipe.measuring.interleaving import Block, Record, Turn
from nnpipe.measuring.paired_comparison import ComparisonPlan

SAMPLES = 400


def run(title: str, right: int, size: int | None, constant: bool = False) -> nn.Run:
    truth = np.arange(SAMPLES) % 4
    predicted = (
        np.zeros(SAMPLES, np.int64)
        if constant
        else np.where(np.arange(SAMPLES) < right, truth, (truth + 1) % 4)
    )
    return nn.Run(
        title,
        (),
        {},
        {},
        {},
        {"batch_size": 1, "load_ns": 2_000_000_000},
        {},
        evaluation=nn.Evaluation(
            "classification", {"truth": truth, "predicted": predicted}, tuple("abcd")
        ),
        artifact={} if size is None else {"path": f"{title}.onnx", "format": "onnx", "size": size},
    )


def result_of(folder: Path, **candidates: tuple[float, nn.Run]) -> nn.ComparisonResult:
    """Candidates by title, each with its time of a call in nanoseconds, that were measured in
    turns.
    """
    random = np.random.default_rng(0)
    turns = []
    for start in range(12):
        for place, (median, _) in enumerate(candidates.values()):
            latency = (median * np.exp(random.normal(0, 0.005, 20))).astype(np.int64)
            turns.append(
                Turn(
                    start,
                    0,
                    place,
                    place,
                    len(turns) * 10**8,
                    Block(np.cumsum(latency) - latency, latency),
                )
            )
    runs = tuple(
        with_turns(each, Record(turns), place)
        for place, (_, each) in enumerate(candidates.values())
    )
    found = nn.Comparison("c", ComparisonPlan(), runs, {"broken": "it crashed"}, created="today")
    return nn.ComparisonResult(
        found, {title: folder / f"{title}.onnx" for title in candidates}, "exact"
    )


@pytest.fixture
def result(tmp_path: Path) -> nn.ComparisonResult:
    return result_of(
        tmp_path,
        exact=(4e6, run("exact", 380, None)),
        fast=(2e6, run("fast", 372, 300)),
        small=(3e6, run("small", 340, 100)),
        stuck=(1e6, run("stuck", 0, 50, constant=True)),
        broken=(1e5, run("broken", 400, 10)),
    )


def test_it_says_what_was_measured_and_what_failed(
    result: nn.ComparisonResult, capsys: pytest.CaptureFixture
) -> None:
    assert result.titles == ("exact", "fast", "small", "stuck")
    assert result.failures == {"broken": "it crashed"}
    assert (result.interrupted, result.path) == (False, None)
    assert result.accuracy("fast") == 0.93
    loss = result.figure("small", "accuracy_loss")
    assert (loss.value, loss.count) == (pytest.approx(0.1), SAMPLES)
    assert loss.low < 0.1 < loss.high
    wide, narrow = (result.figure("fast", "accuracy", confidence) for confidence in (0.99, 0.5))
    assert wide.low < narrow.low < narrow.high < wide.high
    assert result.figure("fast", "accuracy") == result.figure("fast", "accuracy", 0.95)
    result.show()
    assert capsys.readouterr().out == f"{result}\n"
    assert all(title in str(result) for title in result.titles)
    assert result._repr_html_().count("<tr>") >= 1 + len(result.titles)


def test_what_was_not_measured_is_told(tmp_path: Path) -> None:
    bare = nn.Run("exact", (), {}, {}, {}, {"batch_size": 1}, {})
    with pytest.raises(ConfigError, match="exact: no predictions were judged"):
        result_of(tmp_path, exact=(1e6, bare)).accuracy("exact")
    with pytest.raises(ConfigError, match="no candidate is called 'slow'; there are exact"):
        result_of(tmp_path, exact=(1e6, bare)).accuracy("slow")


def test_c_is_chosen_by_what_was_built_and_never_by_its_text_or_constants(tmp_path: Path) -> None:
    files = {"path": "c.c", "format": "c"}
    built = dataclasses.replace(
        run("c", 380, 0), artifact={**files, "size": 90, "size_of": "code and constants"}
    )
    unknown = dataclasses.replace(run("c", 380, 0), artifact={**files, "size": None})
    exact, small = (4e6, run("exact", 380, None)), (3e6, run("small", 340, 100))
    assert (
        result_of(tmp_path, exact=exact, small=small, c=(2e6, built)).best(by="size").title == "c"
    )
    found = result_of(tmp_path, exact=exact, small=small, c=(2e6, unknown))
    assert found.best(by="size").title == "small"
    with pytest.raises(
        ConfigError,
        match="c: size <= 1 MB: not known, what was built from its C source is not told",
    ):
        found.best("size <= 1 MB", "accuracy >= 0.9")


def test_each_metric_has_its_best_and_the_predictions_of_the_best_say_something(
    result: nn.ComparisonResult,
) -> None:
    assert result.best().title == "fast"  # what is faster gives one class for everything, or failed
    assert result.best(by="accuracy").title == "exact"
    assert result.best(by="size").title == "small"
    choice = result.best("latency_median >= 2.5 ms", "latency_median <= 3.5 ms")
    assert (choice.title, choice.path.name, choice.run.title) == ("small", "small.onnx", "small")
    # Two claims hold together with 95 %: each is made with 97.5 %.
    assert choice.figure == result.figure("small", "latency_median", 0.975)
    assert str(choice) == repr(choice)
    assert str(choice).startswith("small: latency_median ")
    assert str(choice).endswith(", latency_median >= 2.5 ms, latency_median <= 3.5 ms")
    assert result.best("size <= 1 kB", confidence=0.9).figure == result.figure(
        "fast", "latency_median", 0.9
    )


def test_a_candidate_that_is_not_its_source_is_told_and_not_chosen(tmp_path: Path) -> None:
    verdict = {"verdict": "different", "reason": "the mean relative error of 'feat' is 0.301"}
    spoilt = dataclasses.replace(run("spoilt", 380, 100), verification=verdict)
    found = result_of(tmp_path, exact=(4e6, run("exact", 380, None)), spoilt=(1e6, spoilt))

    assert found.best().title == "exact"
    assert "of 'feat' is 0.301" in str(found)
    with pytest.raises(
        ConfigError, match=r"spoilt: its outputs are not those of the model .* 'feat' is 0.301"
    ):
        found.best("latency_median <= 2 ms")


def test_a_loss_of_accuracy_is_judged_against_the_reference(result: nn.ComparisonResult) -> None:
    assert result.best(accuracy_loss=0.0).title == "exact"  # it loses nothing against itself
    assert result.best(accuracy_loss=0.05).title == "fast"
    assert result.best(accuracy_loss=1.0, by="size").title == "small"
    assert result.best(accuracy_loss=0.05).constraints[0].text == "accuracy_loss <= 5 %"
    for wrong in (-0.01, 1.01, math.nan, math.inf):
        with pytest.raises(
            ConfigError, match="accuracy_loss is a share of the samples, from 0 to 1, not"
        ):
            result.best(accuracy_loss=wrong)
    with pytest.raises(ConfigError, match="exclude each other"):
        result.best("size <= 1 kB", "size >= 2 kB")


def test_where_none_will_do_each_says_why(result: nn.ComparisonResult) -> None:
    with pytest.raises(ConfigError) as caught:
        result.best("accuracy >= 0.99", by="size")
    first, exact, fast, small, stuck = str(caught.value).splitlines()
    assert first == "no candidate surely satisfies all constraints:"
    assert exact.startswith("  exact: accuracy >= 0.99: fails")
    assert exact.endswith("; size is not known: the model runs in its own framework")
    assert fast.startswith("  fast: accuracy >= 0.99: fails")
    assert "not known" not in fast
    assert small.startswith("  small: ")
    assert stuck.startswith("  stuck: ")
    assert stuck.count(";") > fast.count(";")  # that it gives one class for everything is told too


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def test_a_choice_is_saved_with_all_that_belongs_to_it(
    result: nn.ComparisonResult, tmp_path: Path
) -> None:
    (tmp_path / "small.onnx").write_bytes(b"weights")
    (tmp_path / "small.onnx.json").write_text("{}")
    choice = result.best("size <= 200 B")
    model = choice.save(tmp_path / "a" / "ship")
    assert (model.name, model.read_bytes()) == ("model.onnx", b"weights")
    names = {path.name for path in model.parent.iterdir()}
    assert names == {"model.onnx", "model.onnx.json", "choice.json", "result.json"}
    assert nn.Run.read(model.parent / "result.json").title == "small"
    assert read(model.parent / "choice.json") == {
        "title": "small",
        "by": "latency_median",
        "value": choice.figure.value,
        "interval": [choice.figure.low, choice.figure.high],
        "constraints": ["size <= 200 B"],
    }
    assert choice.save(tmp_path / "a" / "ship") == model  # once more, over what is there
    result.save(tmp_path / "comparison.json")
    assert nn.Comparison.read(tmp_path / "comparison.json").runs[2].title == "small"


def test_a_model_that_is_a_folder_is_copied_and_no_interval_is_written_as_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "exact.onnx").mkdir()
    (tmp_path / "exact.onnx" / "part").write_bytes(b"1")
    measured, metric = run("exact", 380, None), get_metric_quantity("latency_median")
    choice = nn.Choice("exact", tmp_path / "exact.onnx", measured, metric, Figure(0.001), ())
    model = choice.save(tmp_path / "ship")
    assert choice.save(tmp_path / "ship") == model  # once more, over what is there
    assert (model / "part").read_bytes() == b"1"
    told = read(tmp_path / "ship" / "choice.json")
    assert (told["value"], told["interval"]) == (0.001, None)
