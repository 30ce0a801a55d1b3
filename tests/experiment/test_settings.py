"""Pipeline files are read safely and overridden by path."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.settings import check_keys, override, parse_yaml, read_settings


def written(folder: Path, text: str, name: str = "p.yaml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    yaml = read_settings(written(tmp_path, "a: {b: [1, 2.5, x]}\nc: null\n"))
    assert yaml == read_settings(written(tmp_path, json.dumps(yaml), "p.json"))


BOMB = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", "not YAML in line"),
        ("a: 1\nb: 2\na: 3\n", "not YAML in line 3: 'a' is given twice"),
        ("- 1\n", "expected an object .* found list"),
        ("", "found NoneType"),
        ("a: !!python/object/apply:os.system ['false']", "not YAML in line 1"),
        ("[" * 5000, "not YAML"),
        ("'1': a\n1: b\n", "not YAML in line 2: '1' is given twice"),
        ("a: !!set {b, c}", "holds a set; write"),
        ("a: &a [*a]", "maximum recursion"),
        (BOMB, "more than 200,000 values"),
    ],
)
def test_what_is_no_pipeline_is_refused_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_settings(written(tmp_path, text))
    assert "p.yaml" in str(caught.value)


def test_whatever_yaml_gives_can_be_written_as_json(tmp_path: Path) -> None:
    found = read_settings(
        written(tmp_path, "title: 2026-01-31\nat: 2026-01-31 10:00:00\n1: {2.5: [&x {a: 1}, *x]}\n")
    )
    assert found == {
        "title": "2026-01-31",
        "at": "2026-01-31 10:00:00",
        "1": {"2.5": [{"a": 1}, {"a": 1}]},
    }
    assert override(found, ["title=2026-02-01"])["title"] == "2026-02-01"


def test_a_missing_or_binary_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file"):
        read_settings(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"b\.yaml: not a text file"):
        read_settings(tmp_path / "b.yaml")


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    from nnpipe.experiment.settings import parse_yaml

    with contextlib.suppress(ConfigError):
        parse_yaml(text, "x")


def test_changes_reach_into_objects_and_lists() -> None:
    settings = {"a": {"b": [{"c": 1}, {"c": 2}]}, "d": None}
    changed = override(settings, ["a.b.1.c=5", "a.new=[1, 2]", "d.e=text", "f=true", "g=a=b"])
    assert changed == {
        "a": {"b": [{"c": 1}, {"c": 5}], "new": [1, 2]},
        "d": {"e": "text"},
        "f": True,
        "g": "a=b",
    }
    assert settings == {"a": {"b": [{"c": 1}, {"c": 2}]}, "d": None}


@pytest.mark.parametrize("change", ["a", "=1", "a.b.2.c=1", "a.b.x=1", "a.b.0.c.d=1", "a.b=[1"])
def test_a_change_that_leads_nowhere_is_named(change: str) -> None:
    with pytest.raises(ConfigError, match=r".*" + change.split("=")[0].split(".")[-1]):
        override({"a": {"b": [{"c": 1}, {"c": 2}]}}, [change])


def test_an_unknown_key_is_named_with_its_place_and_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"model: unknown key 'clas'; did you mean class\?"):
        check_keys({"clas": 1}, ("class", "path"), "model")
    with pytest.raises(ConfigError, match="model: 'class' is missing"):
        check_keys({"path": 1}, ("class", "path"), "model", ("class",))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "\n".join(f"k{i}: {i}" for i in range(300_000)),
            "in line 25000: more than 50,000 keys and values",
        ),
        ("[" * 3000 + "]" * 3000, "nested more than 64 levels deep"),
        (
            "\n".join(["- &a0 [1]", *(f"- &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60))]),
            "that anchors stand for",
        ),
        ("a: " + "9" * 4000, "a whole number of 4,000 digits"),
        ('a: "\\ud800"', "half a character"),
        ('a: "x\\0y"', "a NUL"),
        ("!!map 5", "not YAML"),
        ("!!timestamp x", "not YAML"),
        ("!!bool x", "not YAML"),
    ],
    ids=["keys", "depth", "anchors", "digits", "surrogate", "nul", "map", "timestamp", "bool"],
)
def test_what_yaml_may_be_is_bounded_and_told_in_one_line(text: str, cause: str) -> None:
    with pytest.raises(ConfigError, match=f"^f.yaml: .*{cause}") as caught:
        parse_yaml(text, "f.yaml")
    assert "\n" not in str(caught.value)


def test_colons_make_no_number_to_the_base_60() -> None:
    assert parse_yaml("[12:30, 1:2:3.5, 12, -0x1f, 1.5, .inf]", "f.yaml")[:5] == [
        "12:30",
        "1:2:3.5",
        12,
        -31,
        1.5,
    ]
    long = "1:" * 100_000 + "1"
    assert parse_yaml(f"a: {long}", "f.yaml") == {"a": long}


def test_a_key_that_json_gives_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"title": "a", "title": "b"}')
    with pytest.raises(ConfigError, match="'title' is given twice"):
        read_settings(path)
