"""The recipes of trainings: short, working, and continued to the bit after kills."""

from __future__ import annotations

import ast
import os
import random
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from nnpipe.experiment.state_file import read_state, to_bytes

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

HERE = Path(__file__).parent
RECIPES = sorted((HERE.parents[1] / "examples" / "recipes").glob("*.py"))
STEPS = 80  # of the shortest training of a recipe

GOOD = {
    "contrastive": r"same digit: 9\d\.\d%",
    "detection": r"precision: (5|6|7)\d\.\d%",
    "distillation": r"student: 9\d\.\d%",
    "fine_tune": r"accuracy: 9\d\.\d%",
    "gan": r"unmasks: (5|6|7|8)\d%",
    "keywords": r"accuracy: (9\d|100)\.\d%",
    "language_model": r"foretold: 9\d\.\d%",
    "quantised": r"integers: 9\d\.\d%",
    "segmentation": r"IoU: (8|9)\d\.\d%",
    "tabular": r"curve: 9\d\.\d%",
}
"""What a recipe prints at its end."""


def done(recipe: Path, folder: Path, *kills: int) -> list[str]:
    answer = subprocess.run(
        [
            sys.executable,
            str(HERE / "killed_recipe.py"),
            str(recipe),
            str(folder),
            *map(str, kills),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


def states(folder: Path) -> dict[str, bytes]:
    """The last checkpoints, but for the callbacks, which keep how long an epoch took."""
    found = {}
    for path in folder.rglob("last.state"):
        state = read_state(path, kind="training checkpoint")
        del state["callbacks"]
        found[path.relative_to(folder).as_posix()] = to_bytes(state, kind="training checkpoint")
    return found


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_short(recipe: Path) -> None:
    statements = [
        node for node in ast.walk(ast.parse(recipe.read_text())) if isinstance(node, ast.stmt)
    ]
    assert len(statements) < 43


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_works_and_ends_equal_to_the_bit_after_five_kills(
    recipe: Path, tmp_path: Path
) -> None:
    *_, said, killed = done(recipe, tmp_path / "undisturbed")
    assert re.search(GOOD[recipe.stem], said)
    assert killed == "0"
    # Places in the whole training; each process counts from its own beginning, at the last
    # checkpoint.
    places = [0, *sorted(random.Random(recipe.stem).sample(range(1, STEPS), 5))]
    *_, again, killed = done(
        recipe, tmp_path / "killed", *(end - begin for begin, end in pairwise(places))
    )
    assert (again, killed) == (said, "5")
    expected = states(tmp_path / "undisturbed")
    assert expected
    assert states(tmp_path / "killed") == expected
