"""The file of a search is read whole or refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tools.search_files import made_up_search

from nnpipe.core.errors import ArtifactError
from nnpipe.report.inputs.search_file import SearchFile


def test_trials_and_parameters_are_read() -> None:
    found = SearchFile.from_json(made_up_search())
    assert [axis.name for axis in found.axes] == ["rate", "units", "optimiser", "momentum", "bias"]
    assert found.axes[2].place("sgd") == 1
    assert found.axes[4].place(True) == 1
    # a truth value is no number of units
    assert found.axes[1].place(True) != found.axes[1].place(True)
    assert {trial.state for trial in found.trials} == {"finished", "pruned", "failed"}
    assert len(found.select_finished()) == len(found.select_state("finished"))
    assert found.losses(found.select_finished()).max() < 0  # accuracy is to be maximised


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "nnpipe sweep"}, "not the result of a search"),
        ({"schema": 9}, "schema 9 is unknown"),
        ({"objectives": {}}, "an objective is to minimize or to maximize"),
        ({"objectives": {"accuracy": "best"}}, "an objective is to minimize or to maximize"),
        ({"parameters": {"a": {"low": 1, "high": 0, "log": False}}}, "a has no range"),
        ({"parameters": {"a": {"low": 0, "high": 1, "log": True}}}, "a has no range"),
        ({"parameters": {"a": {"choices": []}}}, "a has 0 choices"),
        ({"trials": "many"}, "'trials' should be a list"),
        ({"trials": [{"number": 0, "state": "odd"}]}, "there is no state 'odd'"),
        (
            {"trials": [{"number": 0, "state": "failed", "values": {"a": "x"}}]},
            "'x' is not a number",
        ),
        (
            {"trials": [{"number": 0, "state": "failed", "intervals": {"a": [1]}}]},
            "not a usable result",
        ),
        ({"importance": {"accuracy": {"trials": 1}}}, "'additive' is missing"),
    ],
)
def test_a_damaged_file_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ArtifactError, match=said) as error:
        SearchFile.from_json(made_up_search(5) | change)
    assert "\n" not in str(error.value)
