"""The contract of layers holds for a plain one, and catches each way to break it."""

from __future__ import annotations

import pytest
from suite_outcomes import outcomes

Found = dict[tuple[str, str], set[str]]
FAULTS = [
    ("TestThawed", "test_its_arguments_never_change"),
    ("TestLonely", "test_equal_arguments_make_equal_layers"),
    ("TestComplaining", "test_nothing_is_wrong_with_it"),
    ("TestRounding", "test_it_survives_a_description"),
    ("TestTrusting", "test_a_wrong_argument_is_a_problem_that_names_it"),
    ("TestGreedy", "test_a_wrong_number_of_inputs_is_told"),
    ("TestMisshapen", "test_pytorch_computes_the_shapes_and_has_the_weights_that_it_says"),
    ("TestInfinite", "test_pytorch_computes_the_shapes_and_has_the_weights_that_it_says"),
    ("TestBlank", "test_pytorch_computes_the_shapes_and_has_the_weights_that_it_says"),
    ("TestBoastful", "test_pytorch_computes_the_shapes_and_has_the_weights_that_it_says"),
    ("TestDetached", "test_training_runs_backwards_through_it"),
    ("TestHidden", "test_its_dotted_path_leads_to_it"),
    ("TestSilent", "test_it_has_a_summary"),
    ("TestStammering", "test_its_options_are_described_once"),
]


@pytest.fixture(scope="module")
def found() -> Found:
    return outcomes("layers.py", "TestScaled", FAULTS, "-k", "not keras")


@pytest.mark.slow
def test_a_layer_that_keeps_the_contract_passes(found: Found) -> None:
    own = {test: outcome for (suite, test), outcome in found.items() if suite == "TestScaled"}
    assert [test for test, outcome in own.items() if not outcome <= {"PASSED", "SKIPPED"}] == []
    assert sum("PASSED" in outcome for outcome in own.values()) >= 13


@pytest.mark.parametrize(
    ("suite", "test"), FAULTS, ids=[f"{suite[4:]}-{test[5:]}" for suite, test in FAULTS]
)
def test_a_layer_that_breaks_the_contract_is_caught(found: Found, suite: str, test: str) -> None:
    assert "FAILED" in found[suite, test]
