"""Numbers are written for people, foreign text is made harmless."""

from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.report.formatting import (
    NOTHING,
    Scale,
    clean,
    format_duration,
    format_number,
    format_percentage_points,
    format_share,
    format_size,
    shorten,
    shorten_distinctly,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123456, "0.0123"),
        (12.3456, "12.3"),
        (123456.7, "123,457"),
        (9.996, "10.0"),
        (999.9, "1,000"),
        (-3.14159, "-3.14"),
        (0, "0"),
        (None, NOTHING),
        (math.nan, NOTHING),
        (math.inf, NOTHING),
    ],
)
def test_numbers_have_as_many_digits_as_matter(value, text):
    assert format_number(value) == text


@given(st.floats(1e-9, 1e12))
def test_a_written_number_is_near_the_number(value):
    assert float(format_number(value, 4).replace(",", "")) == pytest.approx(
        value, rel=6e-4, abs=1e-12
    )


def test_quantities_get_the_unit_that_suits_them():
    assert format_duration(1_234_567) == "1.23\u00a0ms"
    assert format_duration(850) == "850\u00a0ns"
    assert format_duration(2.5e9) == "2.50\u00a0s"
    assert format_size(4_200_000) == "4.20\u00a0MB"
    assert format_size(0) == "0\u00a0B"
    assert (format_duration(None), format_size(None), format_share(None)) == (
        NOTHING,
        NOTHING,
        NOTHING,
    )
    assert format_share(0.97222) == "97.22\u00a0%"
    assert (format_percentage_points(0.0125), format_percentage_points(-0.0125)) == (
        "+1.25",
        "−1.25",
    )
    assert (format_percentage_points(0.0), format_percentage_points(-0.00001)) == ("0.00", "0.00")


def test_a_scale_serves_all_values_of_a_column():
    scale = Scale.from_times([20_000, 900_000, None, 35_000])
    assert scale.unit == "µs"
    assert [scale.text(value) for value in (20_000, 900_000, None)] == ["20.0", "900", NOTHING]


@given(st.text(), st.integers(5, 50))
def test_foreign_text_becomes_one_line_that_can_be_written(content, limit):
    line = clean(content, limit)
    assert len(line) <= limit
    assert line == line.strip()
    line.encode("utf-8")
    assert not any(
        unicodedata.category(c) in ("Cc", "Cs") or c in "\u2028\u2029\u202e\u2066" for c in line
    )
    assert clean(line, limit) == line


def test_ordinary_text_is_left_alone():
    for content in (
        "ONNX int8, per channel",
        "größer ≤ 3",
        "日本語",
        "می\u200cخواهم",
        "😀 96\u00a0%",
    ):
        assert clean(content) == content


def test_what_is_nested_without_end_is_no_text():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    assert clean(nested) == "…"


def test_long_names_keep_both_ends():
    assert shorten("mobilenet_v2_float32_per_channel", 20) == "mobilenet_v2…channel"
    assert shorten("short", 20) == "short"


@given(
    st.lists(st.text(st.sampled_from("ab ·"), min_size=1, max_size=60), min_size=1, max_size=8),
    st.integers(12, 30),
)
def test_names_that_differ_differ_when_they_are_cut(names, limit):
    found = shorten_distinctly(names, limit)
    assert all(len(text) <= limit for text in found)
    for one, short in zip(names, found, strict=True):
        for two, other in zip(names, found, strict=True):
            assert (one == two) == (short == other)


def test_names_are_told_apart_by_where_they_differ():
    names = [
        f"model · Quantizer(per_channel=False) · Runtime(num_threads={n}) · batch 8" for n in (1, 2)
    ]
    one, two = shorten_distinctly(names, 40)
    assert one != two
    assert shorten_distinctly(["short", "other"], 40) == ["short", "other"]
