"""``nnpipe runs`` shows what was recorded and deletes only what it is told to."""

from __future__ import annotations

import importlib
import json
import math

import pytest

from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.provenance import Origin
from nnpipe.scenarios.runs import main
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import Proposal

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")


@pytest.fixture
def address(tmp_path, monkeypatch):
    path = tmp_path / "some runs.sqlite"
    monkeypatch.setenv("NNPIPE_RUNS", str(path))
    with RunDatabase(path) as database:
        for number, experiment in enumerate(["digits", "digits", 'odd "name"\x1b[2J']):
            run = database.runs.create(
                experiment,
                Configuration({"lr": 0.1 * number, "same": 1}),
                environment={"packages": {"numpy": f"2.{number}", "torch": "2"}},
            )
            database.runs.enter(run, "running")
            database.figures.put_statistics(run, {"accuracy": 0.5 + number / 10, "odd": math.nan})
            database.figures.put_history(run, "training", [{"loss": math.inf}, {"loss": 0.5}])
            database.put_origins(
                run, [Origin(path="a.B", module="a", commit=str(number) * 40, dirty=True)]
            )
            database.runs.enter(run, *(("completed",) if number else ("failed", "no more paper")))
    return path


def runs(address):
    with RunDatabase(address) as database:
        return database.runs.find(order="created")


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def test_searches_are_listed_shown_and_found_by_their_best_value(address, capsys):
    with RunDatabase(address) as database:
        for title, accuracies in (("widths", (0.5, 0.9, 0.7)), ("rates", (0.6,)), ("empty", ())):
            search = database.searches.open(
                title, {"accuracy": "maximize", 'odd "size"': "minimize"}
            )
            trials = DatabaseTrials(database, search)
            for number, accuracy in enumerate(accuracies):
                lease = trials.lease("one", lambda number: Proposal({"units": number}), 9)
                trials.finish(lease, {"accuracy": accuracy, 'odd "size"': 3.0 - number})
            trials.fail(
                trials.lease("one", lambda number: Proposal({"units": 99}), 9), "no more paper"
            )
    assert main(["query", "best.accuracy > 0.55", "--order=-best.accuracy"]) == 0
    header, *rows = lines(capsys)
    assert [row.split()[1] for row in rows] == ["widths", "rates"]
    assert header.index("best accuracy") > header.index("trials finished") > 0
    assert "0.9" in rows[0]
    assert main(["query", """best.'odd "size"' <= 1 and trials.failed = 1"""]) == 0
    assert lines(capsys)[1].split()[1] == "widths"
    assert main(["query", "best.accuracy = null and trials.failed > 0"]) == 0
    assert [row.split()[1] for row in lines(capsys)[1:]] == ["empty"]
    assert main(["show", "widths"]) == 0
    shown = capsys.readouterr().out
    assert "trials: 3 finished, 1 failed" in shown
    assert "accuracy, to maximize: best 0.9" in shown
    assert main(["query", "trials.done > 1"]) == 2
    assert "no trials are 'done'; there are: finished" in capsys.readouterr().err
    assert main(["export", "widths", "--report", "x.html"]) == 2
    assert "its space was not stored" in capsys.readouterr().err


def test_lists_the_newest_first_or_those_of_experiments(address, capsys):
    assert main(["list"]) == 0
    header, *rows = lines(capsys)
    assert header.split()[:5] == ["run", "experiment", "differs", "by", "status"]
    assert [row.split()[0] for row in rows] == [run.id[:12] for run in reversed(runs(address))]
    assert not any("\x1b" in row for row in rows)
    assert "0.7" in rows[0]
    assert (
        main(
            [
                "list",
                "digits",
                "--order",
                "created",
                "--limit",
                "1",
                "--columns",
                "configuration.lr,reason",
            ]
        )
        == 0
    )
    header, row = lines(capsys)
    assert header.split()[-2:] == ["lr", "reason"]
    assert row.split()[0] == runs(address)[0].id[:12]
    assert row.endswith("no more paper")
    assert main(["list", "nowhere"]) == 0
    assert lines(capsys) == ["no such runs"]
    assert main(["list", 'odd "name"\x1b[2J']) == 0
    assert len(lines(capsys)) == 2


def test_queries(address, capsys):
    assert main(["query", "statistics.accuracy", ">", "0.55", "and", "status = completed"]) == 0
    assert len(lines(capsys)) == 3
    assert main(["query", "statistics.acuracy > "]) == 2
    assert capsys.readouterr().err.startswith("nnpipe runs: condition: expected a value after")
    assert main(["query"]) == 2
    assert "a condition is missing" in capsys.readouterr().err


def test_shows_all_about_a_run(address, capsys):
    assert main(["show", runs(address)[0].id[:10]]) == 0
    text = capsys.readouterr().out
    for part in (
        "failed: no more paper",
        "lr = 0.0",
        "accuracy",
        "training: 2 rows",
        "a.B: commit 000000000000, changed",
    ):
        assert part in text
    assert main(["show", "digit"]) == 2
    assert "did you mean digits?" in capsys.readouterr().err


def test_compares_what_differs(address, capsys):
    first, second, _ = runs(address)
    assert main(["compare", first.id, second.id]) == 0
    text = capsys.readouterr().out
    names = [line.split("  ")[0] for line in text.splitlines()[1:]]
    assert names == [
        "experiment",
        "status",
        "lr",
        "code a.B",
        "package numpy",
        "statistics accuracy",
        "statistics odd",
    ]
    assert main(["compare", first.id, first.id]) == 2
    assert "two different runs" in capsys.readouterr().err


def test_deletes_only_when_told_twice(address, capsys):
    first = runs(address)[0]
    assert main(["delete", first.id]) == 2
    told = capsys.readouterr()
    assert f"would delete {first.id[:12]}" in told.out
    assert "nothing has been deleted" in told.err
    assert len(runs(address)) == 3
    assert main(["delete", first.id, "--yes"]) == 0
    assert [run.id for run in runs(address)].count(first.id) == 0
    assert len(runs(address)) == 2


def test_exports_to_json_that_any_reader_takes(address, capsys, tmp_path):
    assert main(["export", "digits", "--json", str(tmp_path / "out.json")]) == 0
    (run,) = json.loads((tmp_path / "out.json").read_text("utf-8"), parse_constant=pytest.fail)[
        "runs"
    ]
    assert run["histories"] == {"training": [{"loss": "inf"}, {"loss": 0.5}]}
    assert run["statistics"]["odd"]["mean"] == "nan"
    assert run["origins"][0]["dirty"] is True
    assert main(["export", "digits"]) == 2
    assert "to where?" in capsys.readouterr().err
    assert main(["export", "digits", "--tensorboard", str(tmp_path / "logs")]) == 0
    assert list((tmp_path / "logs").iterdir())


@pytest.mark.parametrize("arguments", [["list"], ["show", "x"]])
def test_a_missing_database_is_told_and_not_made(tmp_path, capsys, arguments):
    path = tmp_path / "none.sqlite"
    assert main([*arguments, "--database", str(path)]) == 2
    assert capsys.readouterr().err == f"nnpipe runs: {path}: no such run database\n"
    assert not path.exists()


@pytest.mark.parametrize("command", ["runs", "jobs", "experiment"])
def test_an_empty_variable_is_named(command, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("NNPIPE_RUNS", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.yaml").write_text("{}", "utf-8")
    module = importlib.import_module(f"nnpipe.scenarios.{command}")
    assert module.main(["e.yaml"] if command == "experiment" else ["list"]) == 2
    assert "the variable NNPIPE_RUNS is empty" in capsys.readouterr().err


def test_texts_may_stand_between_either_quotes(address, capsys):
    for condition in ("experiment = 'digits'", 'experiment = "digits"', "experiment = digits"):
        assert main(["query", condition]) == 0
        assert "digits" in capsys.readouterr().out
    assert main(["query", "status = complete"]) == 2
    assert "did you mean completed?" in capsys.readouterr().err
