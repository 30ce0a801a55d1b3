"""The package of one class of each kind, installed by pip: found by its entry point, and held to
every suite.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pip_package import installed

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
FOUND = {
    "datasets": "bricks.rings.RingsDataset",
    "compilers": "bricks.packer.BricksPacker",
    "runtimes": "bricks.runtime.BricksRuntime",
    "callbacks": "bricks.balance.Balance",
    "layers": "bricks.swish.SteepSwish",
    "operators": "bricks.swish.BricksSwish",
    "c_operators": "bricks.swish_in_c.BricksSwishInC",
    "script_tasks": "bricks.announce.Announce",
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder into which the package is installed."""
    return installed(HERE / "bricks", tmp_path_factory.mktemp("installed"))


def run(folder: Path, *words: object, path: tuple[Path, ...]) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in a folder, with these folders to import from."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )


@pytest.mark.parametrize("family", FOUND)
def test_its_classes_are_listed_where_it_is_installed_and_nowhere_else(
    family: str, site: Path, tmp_path: Path
) -> None:
    with_it = run(tmp_path, "nnpipe", "list", family, path=(site, SOURCE))
    assert with_it.returncode == 0, with_it.stderr
    assert FOUND[family] in with_it.stdout
    assert with_it.stderr == ""
    assert FOUND[family] not in run(tmp_path, "nnpipe", "list", family, path=(SOURCE,)).stdout


def test_its_classes_are_explained_by_their_short_names(site: Path, tmp_path: Path) -> None:
    for name, told in (
        ("Balance", "feature"),
        ("SteepSwish", "beta"),
        ("announce", "line"),
        ("RingsDataset", "noise"),
    ):
        done = run(tmp_path, "nnpipe", "info", name, path=(site, SOURCE))
        assert done.returncode == 0, done.stderr
        assert told in done.stdout


def test_a_network_with_its_layer_and_a_script_with_its_task_are_read(
    site: Path, tmp_path: Path
) -> None:
    network = [{"class": "Input", "shape": [4]}, {"class": "SteepSwish", "beta": 2.0}]
    tasks = [
        {"task": "load_model", "network": "small", "model": "net"},
        {"task": "announce", "line": "built", "after": ["load_model"]},
    ]
    script = {
        "script": "tried",
        "framework": "pytorch",
        "networks": {"small": network},
        "variables": {"net": "network"},
    }
    (tmp_path / "script.json").write_text(json.dumps({**script, "tasks": tasks}), "utf-8")
    done = run(tmp_path, "nnpipe", "generate", "script.json", path=(site, SOURCE))
    assert done.returncode == 0, done.stderr
    written = "".join(path.read_text("utf-8") for path in tmp_path.glob("*.py")) + done.stdout
    assert "what to print" in written


def test_it_passes_the_suites_as_it_is_installed(site: Path, tmp_path: Path) -> None:
    text = (HERE / "test_bricks.py").read_text("utf-8")
    told = "\n\ndef test_the_installed_one_is_tried() -> None:\n    import bricks\n\n"
    (tmp_path / "test_bricks.py").write_text(
        f"{text}{told}    assert {str(site)!r} in (bricks.__file__ or '')\n", "utf-8"
    )
    words = (
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--deselect",
        "test_bricks.py::test_a_module_of_the_package_has_fewer_than_nineteen_statements_on_average",
    )
    done = run(tmp_path, *words, "test_bricks.py", path=(site, SOURCE))
    assert done.returncode == 0, done.stdout[-4000:]
    assert "1 deselected" in done.stdout
    assert " failed" not in done.stdout
