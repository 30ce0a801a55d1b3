"""Which runs are based on which, as ``nnpipe runs tree`` shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios.runs import main


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A base with two children, of which one has a child that is also based on the other; and a
    run alone.
    """
    monkeypatch.setenv("NNPIPE_RUNS", str(tmp_path / "runs.sqlite"))
    made: dict[str, str] = {}
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        for name, parents in (
            ("base", []),
            ("left", ["base"]),
            ("right", ["base"]),
            ("both", ["left", "right"]),
        ):
            made[name] = database.runs.create(name, parents=parents)
        made["alone"] = database.runs.create("alone")
        database.figures.put_statistics(
            made["left"], {"d/test/x/accuracy": 0.9, "d/train/loss": 1.0}
        )
    return made


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["tree", *arguments]) == 0
    return [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_runs_stand_below_their_parents(
    names: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = lines(capsys)
    assert found[0].startswith(f"base  {names['base'][:12]}")
    assert found[1].startswith(f"├─ left  {names['left'][:12]}  created  d/test/x/accuracy 0.9")
    assert found[2].startswith("│  └─ both")
    assert found[3].startswith("└─ right")
    assert found[4].startswith("   └─ both")
    assert len(found) == 5
    assert not any("alone" in line for line in found)


def test_a_name_shows_its_family(names: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert len(lines(capsys, "both")) == 5
    assert lines(capsys, "alone") == [f"alone  {names['alone'][:12]}  created"]


def test_a_parent_can_be_added_once_and_not_in_a_circle(
    names: dict[str, str], tmp_path: Path
) -> None:
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        for _ in range(2):
            database.add_parent("alone", "both")
        assert database.runs.get("alone").parents == (names["both"],)
        assert [run.experiment for run in database.runs.find(f"parent = {names['both']}")] == [
            "alone"
        ]
        with pytest.raises(ConfigError, match="cannot be its parent"):
            database.add_parent("base", "alone")
        with pytest.raises(ConfigError, match="cannot be its parent"):
            database.add_parent("alone", "alone")
