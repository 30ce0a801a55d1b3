"""``nnpipe storage`` keeps files and replaces or removes nothing by itself."""

from __future__ import annotations

import json

import pytest

from nnpipe.scenarios.storage import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NNPIPE_STORAGE", str(tmp_path / "store"))
    (tmp_path / "lenet.pt").write_bytes(b"weights")
    (tmp_path / "scans" / "train").mkdir(parents=True)
    (tmp_path / "scans" / "train" / "0").write_bytes(b"0")
    (tmp_path / "scans" / "labels").write_bytes(b"labels")
    return tmp_path


def refused(capsys, *argv):
    assert main(argv) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("nnpipe storage: ")
    return told


def test_a_file_there_and_back(here, capsys):
    assert main(["put", "lenet.pt", "untrained-models"]) == 0
    assert main(["put", "lenet.pt", "untrained-models/old/five.pt"]) == 0
    told = capsys.readouterr()
    assert "put one file into" in told.out
    assert told.err == ""  # what is over in ten seconds writes no progress to a log
    assert main(["list", "untrained-models", "--json", "list.json"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [["lenet.pt", "7"], ["old/five.pt", "7"]]
    found = json.loads((here / "list.json").read_text())
    assert [entry["name"] for entry in found["untrained-models"]] == ["lenet.pt", "old/five.pt"]
    assert main(["get", "untrained-models/old/five.pt"]) == 0
    assert main(["get", "untrained-models/old/five.pt", "scans"]) == 0
    assert main(["get", "untrained-models/old/five.pt", "new/six.pt"]) == 0
    for path in ("five.pt", "scans/five.pt", "new/six.pt"):
        assert (here / path).read_bytes() == b"weights"


def test_a_folder_there_and_back(here, capsys):
    assert main(["put", "scans", "datasets"]) == 0
    assert main(["put", "scans", "datasets/digits"]) == 0
    assert "put 2 files into" in capsys.readouterr().out
    assert main(["list"]) == 0
    assert ["datasets", "4", "14"] in [row.split() for row in capsys.readouterr().out.splitlines()]
    assert main(["list", "datasets/digits/"]) == 0
    assert [row.split()[0] for row in capsys.readouterr().out.splitlines()[1:]] == [
        "digits/labels",
        "digits/train/0",
    ]
    assert main(["get", "datasets/digits/", "back"]) == 0
    assert (here / "back" / "train" / "0").read_bytes() == b"0"
    assert main(["list", "datasets/nowhere"]) == 0
    assert "no files" in capsys.readouterr().out


def test_nothing_is_replaced_unless_told(here, capsys):
    assert main(["put", "scans/labels", "datasets/digits/labels"]) == 0
    (here / "scans" / "labels").write_bytes(b"new")
    assert "digits/labels: the name is taken; nothing was put" in refused(
        capsys, "put", "scans", "datasets/digits"
    )
    assert main(["list", "datasets"]) == 0
    assert "train" not in capsys.readouterr().out
    assert main(["put", "scans", "datasets/digits", "--replace"]) == 0
    (here / "labels").write_bytes(b"mine")
    assert "labels: there is such a file; nothing was fetched" in refused(
        capsys, "get", "datasets/digits/labels"
    )
    assert (here / "labels").read_bytes() == b"mine"
    assert main(["get", "datasets/digits/labels", "--replace"]) == 0
    assert (here / "labels").read_bytes() == b"new"


def test_removes_only_when_told_twice(here, capsys):
    assert main(["put", "scans", "datasets"]) == 0
    assert "nothing has been removed; --yes removes" in refused(capsys, "remove", "datasets/scans/")
    assert main(["remove", "datasets/scans/labels", "--yes"]) == 0
    assert "remove datasets/scans/labels" in capsys.readouterr().out
    assert "nothing was removed" in refused(
        capsys, "remove", "datasets/scans/train/0", "datasets/x", "--yes"
    )
    assert main(["remove", "datasets/scans/", "--yes"]) == 0
    assert not list((here / "store").rglob("*"))


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["put", "lenet.pt", "models"], "there is no shelf 'models'"),
        (["put", "lenet.pt", "datasets/../x"], "no part may begin with a dot"),
        (["put", "nowhere", "datasets"], "nowhere: no such file"),
        (["put", "lenet.pt"], "expected nnpipe storage put FILE SHELF[/NAME]"),
        (["get", "datasets/nowhere"], "no file 'nowhere'"),
        (["get", "datasets/nowhere/"], "no files below 'nowhere'"),
        (
            ["list", "--at", "gopher://x"],
            "a storage is a folder, file:///FOLDER or s3://BUCKET/PREFIX",
        ),
        (["list", "--endpoint", "http://x"], "a folder has no endpoint"),
        (["eat"], "invalid choice"),
    ],
)
def test_mistakes_are_one_line(here, capsys, argv, told):
    assert told in refused(capsys, *argv)


def test_larger_than_wanted_is_refused(here, capsys):
    assert main(["put", "lenet.pt", "datasets"]) == 0
    assert "7 bytes, more than the 6 allowed" in refused(
        capsys, "get", "datasets/lenet.pt", "x", "--max-bytes", "6"
    )
    assert not (here / "x").exists()


def test_without_an_address_it_says_how_to_give_one(here, capsys, monkeypatch):
    monkeypatch.delenv("NNPIPE_STORAGE")
    assert "--at ADDRESS or set NNPIPE_STORAGE" in refused(capsys, "list")


def test_a_cache_may_be_named(here):
    assert main(["put", "lenet.pt", "datasets"]) == 0
    assert main(["get", "datasets/lenet.pt", "back", "--cache", "kept"]) == 0
    assert b"weights" in [
        path.read_bytes() for path in (here / "kept").rglob("*") if path.is_file()
    ]


def test_the_help_names_the_shelves(capsys):
    with pytest.raises(SystemExit):
        main(["-h"])
    text = capsys.readouterr().out
    assert "training-progress  status and checkpoints" in text
    assert "NNPIPE_STORAGE" in text
