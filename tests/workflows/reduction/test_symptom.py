"""When a smaller model goes wrong in the same way."""

from __future__ import annotations

from nnpipe.workflows.reduction.symptom import Symptom

OPERATORS = {"Conv", "Relu", "Gather"}


def alike(one: Symptom, other: Symptom | None, names: tuple[str, ...] = ()) -> bool:
    return one.is_shown_by(other, names, OPERATORS)


def error(message: str, stage: str = "loading", what: str = "ValueError") -> Symptom:
    return Symptom("error", stage, what, message)


def test_names_and_numbers_of_a_message_do_not_matter() -> None:
    one = error("cannot lower Conv node 'a/b' of 17 inputs: stride 3 on block_one")
    assert alike(
        one,
        error("cannot lower Conv node 'c' of 2 inputs: stride 1 on block_two"),
        ("block_one", "block_two"),
    )


def test_another_operator_class_stage_or_cause_is_another_symptom() -> None:
    one = error("cannot lower operator Conv")
    assert not alike(one, error("cannot lower operator Gather"))
    assert not alike(one, error("cannot lower operator Conv", what="KeyError"))
    assert not alike(one, error("cannot lower operator Conv", stage="running"))
    assert not alike(one, error("Conv: the shape of some input is unknown here"))
    assert not alike(one, None)


def test_fewer_of_the_operators_that_a_message_lists_are_the_same_symptom() -> None:
    assert alike(
        error("operators not supported: Conv, Gather"), error("operators not supported: Gather")
    )


def test_a_difference_that_all_but_vanishes_is_another() -> None:
    one = Symptom("difference", "comparing", error=0.5)
    assert alike(one, Symptom("difference", "comparing", error=0.06))
    assert not alike(one, Symptom("difference", "comparing", error=0.002))
