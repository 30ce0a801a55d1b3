"""Tables on the terminal."""

from __future__ import annotations

from nnpipe.report.document import Cell, Table
from nnpipe.report.writers.tables import to_text


def test_columns_are_aligned_and_the_best_bears_a_star():
    table = Table(
        ("Candidate", "Median, µs", "Accuracy"),
        (
            ("slow", Cell("1,000", 1000.0, note="from 990"), Cell("99.7 %", best=True)),
            ("a longer name", Cell("20", 20.0, best=True), "–"),
        ),
    )
    assert to_text(table).splitlines() == [
        "Candidate       Median, µs   Accuracy",
        "slow                 1,000     99.7 %*",
        "a longer name           20*         –",
    ]


def test_every_row_and_header_is_there():
    table = Table(("A", "B"), (("x", "1"), ("y", "2")))
    words = to_text(table).split()
    assert words == ["A", "B", "x", "1", "y", "2"]
