"""Where code came from: packages by version, work trees by commit and whether they were changed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.provenance import (
    CURRENT_FOLDER,
    Origin,
    describe_environment,
    find_object_origin,
    find_origin,
    find_origins,
)


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path / "tree"
    (folder / "package_of_tree").mkdir(parents=True)
    (folder / "package_of_tree" / "__init__.py").write_text("def function():\n    pass\n")
    (folder / ".gitignore").write_text("ignored_of_tree.py\n")
    (folder / "ignored_of_tree.py").write_text("def function():\n    pass\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in ("package_of_tree", "ignored_of_tree"):
        sys.modules.pop(name, None)


PATH = "package_of_tree.function"


def test_code_of_a_work_tree_has_its_commit(tree):
    origin = find_origin(PATH)
    file = tree / "package_of_tree" / "__init__.py"
    assert origin == Origin(
        path=PATH,
        module="package_of_tree",
        commit=git(tree, "rev-parse", "HEAD"),
        dirty=False,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
    )
    assert origin.told == f"commit {origin.commit[:12]}"
    assert Origin.from_json(origin.to_json()) == origin


def test_changes_and_new_code_make_it_dirty_but_no_other_new_file(tree):
    (tree / "runs.sqlite").write_text("x")
    assert find_origin(PATH).dirty is False
    (tree / "new.py").write_text("x = 1\n")
    assert find_origin(PATH).dirty is True
    (tree / "new.py").unlink()
    assert find_origin(PATH).dirty is False
    (tree / ".gitignore").write_text("")
    assert find_origin(PATH).dirty is True
    assert find_origin(PATH).told.endswith(", changed since")


def test_an_ignored_file_is_of_no_commit(tree):
    origin = find_origin("ignored_of_tree.function")
    assert (origin.commit, origin.dirty, origin.told) == ("", None, "unknown")
    assert len(origin.sha256) == 64


def test_a_work_tree_starts_no_program_of_its_own(tree):
    hook = tree / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {tree}/started\n")
    hook.chmod(0o755)
    git(tree, "config", "core.fsmonitor", str(hook))
    assert find_origin(PATH) is not None
    assert not (tree / "started").exists()


def test_installed_packages_have_a_version():
    origin = find_origin("yaml.SafeLoader")
    assert (origin.package, origin.version) == ("PyYAML", importlib.metadata.version("PyYAML"))
    assert (origin.module, origin.commit, origin.dirty) == ("yaml.loader", "", None)
    assert origin.told == f"PyYAML {origin.version}"


def test_python_itself_is_told():
    assert find_origin("json.JSONDecoder").told == f"Python {platform.python_version()}"
    assert find_object_origin(len).package == "Python"
    assert find_origin("nowhere.at_all") is None
    assert find_origin("json.nothing") is None


def test_the_commit_of_the_users_folder_is_told(tree: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tree)
    (found,) = find_origins(Configuration({"a": 1}))
    assert found.path == CURRENT_FOLDER
    assert (found.commit, found.dirty) == (git(tree, "rev-parse", "HEAD"), False)
    (tree / "script.py").write_text("new = 1\n")
    assert find_origins(Configuration({"a": 1}))[0].told.endswith(", changed since")


def test_versions_of_the_process_that_was_measured_count():
    found = describe_environment({"onnxruntime": "0.0.1", "numpy": "0.0.2"})["packages"]
    assert (found["onnxruntime"], found["numpy"]) == ("0.0.1", "0.0.2")


def test_every_class_of_a_configuration_has_an_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    found = find_origins(
        Configuration(
            {
                "a": {"class": "nnpipe.experiment.history.History"},
                "b": [
                    {"class": "json.JSONDecoder", "arguments": {"x": {"class": "yaml.SafeLoader"}}}
                ],
                "c": {"class": "nowhere.Thing"},
            }
        )
    )
    assert [origin.path for origin in found] == [
        "nnpipe.experiment.history.History",
        "json.JSONDecoder",
        "yaml.SafeLoader",
    ]


def test_the_environment_names_python_and_the_packages_in_use():
    found = describe_environment()
    assert found["python"] == platform.python_version()
    assert found["packages"]["pytest"] == pytest.__version__
