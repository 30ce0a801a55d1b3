"""The name that was probably meant."""

from nnpipe.core.messages import suggest_name


def test_a_slip_of_the_pen_is_seen() -> None:
    assert suggest_name(
        "nnpipe.datasets.digit.DigitsDataset", ["nnpipe.datasets.digits.DigitsDataset", "a.B"]
    ) == ("; did you mean nnpipe.datasets.digits.DigitsDataset?")


def test_a_class_that_moved_is_found_by_its_own_name() -> None:
    assert "new.place.Thing" in suggest_name(
        "entirely.other.module.path.Thing", ["new.place.Thing", "x.Y"]
    )


def test_nothing_near_gives_nothing() -> None:
    assert suggest_name("qqqq", ["nnpipe.datasets.digits.DigitsDataset"]) == ""
