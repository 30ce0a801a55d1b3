"""Whole scripts: they run where nnpipe is not, learn, and are the same each time."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path

import pytest
import yaml

from nnpipe.codegen import check_script, generate

EXAMPLE = Path(__file__).parents[2] / "examples" / "generate.yaml"
_ALONE = """
import runpy, sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None  # whoever imports it fails
del sys.argv[1]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def described(framework: str, **changes):
    data = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    return {**data, "framework": framework, **changes}


def generated(framework: str, **changes):
    checked = check_script(described(framework, **changes))
    assert checked.problems == ()
    return generate(checked.graph)


def alone(folder: Path, made, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder of its own, where nnpipe cannot be imported."""
    for name, content in made.files.items():
        (folder / name).write_bytes(content)
    script = folder / "script.py"
    script.write_text(made.text, "utf-8")
    with resources.as_file(resources.files("nnpipe.datasets") / "data" / "digits.npz") as digits:
        shutil.copy(digits, folder / "digits.npz")
    missing = (
        # the latter are what Keras looks for and can do without
        "nnpipe,safetensors,jax,matplotlib,pandas,sklearn"
    )
    missing += ",numpy" if "import torch" in made.text else ""
    command = [sys.executable, "-c", _ALONE, missing, str(script), *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=280
    )


# test_tasks.py and tasks/test_losses.py run scripts in processes that have the frameworks already
@pytest.mark.slow
@pytest.mark.parametrize(("framework", "needs"), [("pytorch", "torch"), ("keras", "keras")])
def test_a_script_learns_digits_without_nnpipe(framework, needs, tmp_path):
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    ran = alone(tmp_path, generated(framework), "--epochs", "5")
    assert ran.returncode == 0, ran.stderr[-2000:]
    figures = json.loads(ran.stdout.splitlines()[-1])
    assert figures["accuracy"] >= 0.9
    lines = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert lines[0]["fraction"] == 0
    assert lines[-1]["fraction"] == 1
    assert all(isinstance(value, float) for line in lines for value in line["metrics"].values())
    suffix = {"pytorch": "safetensors", "keras": "keras"}[framework]
    for name in (f"best.{suffix}", f"digits.{suffix}", "log.csv"):
        assert (tmp_path / name).stat().st_size > 100


@pytest.fixture(scope="module")
def written_with() -> Callable[[str], list[str]]:
    """Return the scripts for both frameworks as a process writes them that draws hashes with a
    seed.
    """
    program = "import json, sys; from nnpipe.codegen import *; told = json.load(sys.stdin)\n"
    program += "json.dump([generate(check_script(data).graph).text for data in told], sys.stdout)"

    @cache
    def texts(seed: str) -> list[str]:
        ran = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps([described("pytorch"), described("keras")]),
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )
        return json.loads(ran.stdout)

    return texts


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["pytorch", "keras"])
def test_the_same_description_gives_the_same_bytes(framework, written_with):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    one, two = generated(framework), generated(framework)
    assert one.text.encode() == two.text.encode()
    assert one.files == two.files
    # The order of sets must not show.  This process has drawn a seed of its own.
    assert written_with("1")[["pytorch", "keras"].index(framework)] == one.text


@pytest.mark.parametrize(
    ("framework", "allowed"), [("pytorch", {"torch"}), ("keras", {"keras", "numpy"})]
)
def test_a_script_imports_its_framework_and_what_comes_with_python(framework, allowed):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    found = set()
    for node in ast.walk(ast.parse(generated(framework).text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.partition(".")[0])
    assert found - set(sys.stdlib_module_names) == allowed


def test_a_script_for_keras_is_written_without_any_framework():
    program = (
        "import sys; sys.modules['torch'] = sys.modules['keras'] = sys.modules['tensorflow'] = "
        "None\n"
    )
    program += "import yaml; from nnpipe.codegen import *; data = yaml.safe_load(sys.stdin)\n"
    program += "print(generate(check_script(data).graph).text, end='')"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        input=yaml.safe_dump(described("keras"), sort_keys=False),
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert ran.stdout == generated("keras").text


@pytest.mark.parametrize("framework", ["pytorch", "keras"])
def test_ruff_finds_nothing(framework, ruff_finds_nothing, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (tmp_path / "script.py").write_text(generated(framework).text, "utf-8")
    ruff_finds_nothing(tmp_path)
