"""The contract of tasks holds for a plain one, and catches each way to break it."""

from __future__ import annotations

import pytest
from suite_outcomes import outcomes

Found = dict[tuple[str, str], set[str]]
FAULTS = [
    ("TestHeir", "test_descriptions_have_a_name_for_it"),
    ("TestUnhelpful", "test_it_says_what_each_argument_means"),
    ("TestUndeclared", "test_it_says_what_each_argument_means"),
    ("TestAimless", "test_it_is_there_for_a_framework"),
    ("TestForeign", "test_it_is_there_for_a_framework"),
    ("TestLeaning", "test_its_script_is_python_that_stands_alone_and_the_same_each_time"),
    ("TestMoody", "test_its_script_is_python_that_stands_alone_and_the_same_each_time"),
    ("TestLonely", "test_its_arguments_never_change_and_equal_ones_make_equal_tasks"),
    ("TestThawed", "test_its_arguments_never_change_and_equal_ones_make_equal_tasks"),
    ("TestTrusting", "test_a_value_of_the_wrong_kind_is_a_problem_that_names_it"),
    ("TestHidden", "test_its_dotted_path_leads_to_it"),
    ("TestSilent", "test_it_has_a_summary"),
    ("TestStammering", "test_its_options_are_described_once"),
]


@pytest.fixture(scope="module")
def found() -> Found:
    return outcomes(
        "tasks.py", "TestTell", FAULTS, "-k", "not keras"
    )  # importing TensorFlow takes longer than all else


@pytest.mark.slow
def test_a_task_that_keeps_the_contract_passes(found: Found) -> None:
    own = {test: outcome for (suite, test), outcome in found.items() if suite == "TestTell"}
    assert [test for test, outcome in own.items() if not outcome <= {"PASSED", "SKIPPED"}] == []
    assert sum("PASSED" in outcome for outcome in own.values()) >= 12


@pytest.mark.parametrize(
    ("suite", "test"), FAULTS, ids=[f"{suite[4:]}-{test[5:]}" for suite, test in FAULTS]
)
def test_a_task_that_breaks_the_contract_is_caught(found: Found, suite: str, test: str) -> None:
    assert "FAILED" in found[suite, test]
