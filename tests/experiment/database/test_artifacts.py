"""Artifacts lie in files by digest, are shared, checked, and removed with the last run that
needs them.
"""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.experiment.database.database import RunDatabase


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_states_arrays_and_files_come_back(database, tmp_path):
    run = database.runs.create("digits")
    state = {
        "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
        "epoch": 3,
        "names": ("a", None),
    }
    database.artifacts.put_state(run, "checkpoint", state)
    arrays = {
        "a/b": np.array([[1, 2]], np.int16),
        "..": np.float64(2.5),
        "empty": np.zeros((0, 3), bool),
    }
    database.artifacts.put_arrays(run, "predictions", arrays)
    (tmp_path / "model.onnx").write_bytes(b"onnx")
    record = database.artifacts.put_file(run, "model", tmp_path / "model.onnx")
    assert (record.size, record.suffix, record.kind) == (4, ".onnx", "file")
    found = database.artifacts.get_state(run, "checkpoint")
    assert found["weights"].tobytes() == state["weights"].tobytes()
    assert (found["epoch"], found["names"]) == (3, ("a", None))
    back = database.artifacts.get_arrays(run, "predictions")
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert np.array_equal(back[name], array)
    assert database.artifacts.path(run, "model").read_bytes() == b"onnx"
    assert [(a.name, a.kind) for a in database.artifacts.list(run)] == [
        ("checkpoint", "state"),
        ("model", "file"),
        ("predictions", "arrays"),
    ]


def test_what_is_alike_is_stored_once_and_stays_while_it_is_needed(database, tmp_path):
    one, two = database.runs.create("one"), database.runs.create("two")
    database.artifacts.put_state(one, "a", {"x": 1})
    database.artifacts.put_state(two, "b", {"x": 1})
    assert len(files(tmp_path / "store")) == 1
    database.artifacts.put_state(one, "a", {"x": 2})
    assert len(files(tmp_path / "store")) == 2
    database.artifacts.put_state(one, "a", {"x": 3})
    assert len(files(tmp_path / "store")) == 2
    database.artifacts.remove(two, "b")
    database.artifacts.remove(two, "never was")
    assert len(files(tmp_path / "store")) == 1
    assert database.artifacts.get_state(one, "a") == {"x": 3}


def test_damage_is_noticed_by_name(database):
    run = database.runs.create("one")
    database.artifacts.put_state(run, "a", {"x": 1})
    path = database.artifacts.path(run, "a")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(ArtifactError, match="damaged: the content of artifact 'a'"):
        database.artifacts.get_state(run, "a")
    path.unlink()
    with pytest.raises(ArtifactError, match="artifact 'a' is not in the store"):
        database.artifacts.get_state(run, "a")
    database.artifacts.put_state(run, "a", {"x": 1})  # the same again mends it
    assert path.read_bytes() == content


def test_what_cannot_be_stored_or_found_is_told(database, tmp_path):
    run = database.runs.create("one")
    database.artifacts.put_arrays(run, "a", {"x": [1]})
    with pytest.raises(ConfigError, match="has no artifact 'b'; it has a"):
        database.artifacts.get_state(run, "b")
    with pytest.raises(ConfigError, match="'a' is of the kind arrays, not state"):
        database.artifacts.get_state(run, "a")
    with pytest.raises(ConfigError, match="an array of object cannot be stored"):
        database.artifacts.put_arrays(run, "a", {"x": [None]})
    with pytest.raises(ConfigError, match="no such file"):
        database.artifacts.put_file(run, "f", tmp_path / "none")
    assert len(database.artifacts.list(run)) == 1


def test_orphans_are_collected_and_nothing_else(database, tmp_path):
    run = database.runs.create("one")
    database.artifacts.put_state(run, "a", {"x": 1})
    orphan = tmp_path / "store" / "ab" / ("ab" + "0" * 62 + ".h5")
    orphan.parent.mkdir()
    orphan.write_bytes(b"12345")
    for name, age in ((".old.arriving", 100_000), (".new.arriving", 10)):
        path = orphan.with_name(name)
        path.write_bytes(b"1234567")
        os.utime(path, (time.time() - age,) * 2)
    foreign = tmp_path / "store" / "notes.txt"
    foreign.write_text("mine")
    assert database.artifacts.collect() == 12
    assert not orphan.with_name(".old.arriving").exists()
    assert orphan.with_name(".new.arriving").exists()
    assert not orphan.exists()
    assert foreign.exists()
    assert database.artifacts.get_state(run, "a") == {"x": 1}


def test_postgresql_asks_for_a_folder(schema_of_postgresql):
    with RunDatabase(schema_of_postgresql()) as database:
        run = database.runs.create("one")
        with pytest.raises(ConfigError, match="name the folder of its artifacts"):
            database.artifacts.put_state(run, "a", {})
        database.delete([run])


def test_sqlite_keeps_them_beside_the_file(tmp_path):
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        database.artifacts.put_state(database.runs.create("one"), "a", {})
    assert len(files(tmp_path / "runs.sqlite.artifacts")) == 1


def test_writing_a_large_artifact_holds_nobody_up(opened, monkeypatch):
    """Another writer gets its turn while the file is on its way."""
    from nnpipe.experiment.database import artifacts

    database, other = opened(), opened(patience=5.0)
    run = database.runs.create("one")
    write, done = artifacts._write, []

    def slow(place, content, digest):
        thread = threading.Thread(target=lambda: done.append(other.runs.create("two")))
        thread.start()
        thread.join(30)
        write(place, content, digest)

    monkeypatch.setattr(artifacts, "_write", slow)
    database.artifacts.put_state(run, "a", {"x": 1})
    assert len(done) == 1


def test_a_file_collected_in_between_is_written_again(database, monkeypatch):
    one, two = database.runs.create("one"), database.runs.create("two")
    database.artifacts.put_state(one, "a", {"x": 1})
    enter, calls = database.artifacts._enter, []

    def late(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            database.artifacts.remove(one, "a")
        return enter(*arguments)

    monkeypatch.setattr(database.artifacts, "_enter", late)
    database.artifacts.put_state(two, "a", {"x": 1})
    assert len(calls) == 2
    assert database.artifacts.get_state(two, "a") == {"x": 1}
