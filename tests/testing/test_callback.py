"""The contract of callbacks holds for a callback that only counts, and catches each way to break
it.
"""

from __future__ import annotations

import pytest
from suite_outcomes import outcomes

Found = dict[tuple[str, str], set[str]]
FAULTS = [
    ("TestForeign", "test_it_says_whose_trainings_it_can_look_on"),
    ("TestAimless", "test_it_says_whose_trainings_it_can_look_on"),
    ("TestUnexplained", "test_its_docstring_says_what_its_options_mean"),
    ("TestUnprepared", "test_it_can_be_closed_before_a_training_and_twice"),
    (
        "TestMeddling",
        "test_a_training_with_pytorch_is_the_same_with_it_and_files_lie_in_its_folder",
    ),
    ("TestDrawing", "test_a_training_with_pytorch_is_the_same_with_it_and_files_lie_in_its_folder"),
    ("TestResting", "test_a_training_with_pytorch_is_the_same_with_it_and_files_lie_in_its_folder"),
    ("TestHooking", "test_a_training_with_pytorch_is_the_same_with_it_and_files_lie_in_its_folder"),
    (
        "TestFreezing",
        "test_a_training_with_pytorch_is_the_same_with_it_and_files_lie_in_its_folder",
    ),
    (
        "TestLittering",
        "test_a_training_with_pytorch_is_the_same_with_it_and_files_lie_in_its_folder",
    ),
    ("TestForgetful", "test_a_training_that_was_interrupted_goes_on_with_it"),
    ("TestHidden", "test_its_dotted_path_leads_to_it"),
    ("TestSilent", "test_it_has_a_summary"),
    ("TestStammering", "test_its_options_are_described_once"),
    ("TestLocal", "test_its_dotted_path_leads_to_it"),
    ("TestMisspelt", "test_it_names_the_packages_it_needs"),
]


@pytest.fixture(scope="module")
def found() -> Found:
    return outcomes("callbacks.py", "TestCounting", FAULTS, "-k", "not keras")


@pytest.mark.slow
def test_a_callback_that_keeps_the_contract_passes(found: Found) -> None:
    own = {test: outcome for (suite, test), outcome in found.items() if suite == "TestCounting"}
    assert [test for test, outcome in own.items() if not outcome <= {"PASSED", "SKIPPED"}] == []
    assert sum("PASSED" in outcome for outcome in own.values()) >= 10


@pytest.mark.parametrize(
    ("suite", "test"), FAULTS, ids=[f"{suite[4:]}-{test[5:]}" for suite, test in FAULTS]
)
def test_a_callback_that_breaks_the_contract_is_caught(found: Found, suite: str, test: str) -> None:
    assert "FAILED" in found[suite, test]


@pytest.mark.slow
def test_a_callback_that_changes_trainings_with_keras_is_caught() -> None:
    fault = ("TestShaking", "test_a_training_with_keras_is_the_same_with_it")
    found = outcomes("callbacks.py", "TestCounting", [fault], "-k", "keras")
    assert found.pop(fault) == {"FAILED"}
    assert set().union(*found.values()) == {"PASSED"}
