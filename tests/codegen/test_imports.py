"""Imports of scripts are those that their code uses, in the order of ruff and isort."""

from __future__ import annotations

import ast
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.codegen.unparse import find_imports, generate_source, is_shadowing_module, sort_imports

LINES = [
    "import Big",
    "import b2 as np",
    "import b10",
    "import keras",
    "import os",
    "from A3 import x3",
    "from a import b",
    "from a import b as c",
    "from a import d as e",
    "from a import z as y",
    "from a10 import x10",
    "from a2 import x2",
    "from keras import layers",
    "from keras.ops import abs as abs_2",
    "from os.path import join",
    "from os.path import split",
    "from pathlib import Path",
    *(f"from a import {name}" for name in "B BB Bb a10 a2 _p A1 Zz zz aB ab ABC_D".split()),
    *(
        f"from long_package.long_module import quite_a_long_name_{number}"
        for number in range(1, 12)
    ),
]


def written(lines) -> str:
    imports = sort_imports([ast.parse(line).body[0] for line in lines])
    names = [(alias.asname or alias.name) for line in imports for alias in line.names]
    uses = [ast.Expr(ast.Name(name, ast.Load())) for name in sorted(set(names))]
    return generate_source(
        ast.Module([*imports, *(ast.Expr(ast.Call(use.value, [], [])) for use in uses)], [])
    )


def test_ruff_leaves_the_order_as_it_is(ruff_finds_nothing, tmp_path):
    draw = random.Random(0)
    for number in range(30):
        lines = draw.sample(LINES, draw.randint(2, len(LINES)))
        (tmp_path / f"script_{number}.py").write_text(written(lines), "utf-8")
    ruff_finds_nothing(tmp_path)


@settings(max_examples=examples(50))
@given(st.permutations(LINES))
def test_the_order_does_not_depend_on_that_of_the_uses(lines):
    assert written(lines) == written(LINES) == written([*lines, *lines[:5]])


def test_code_gets_the_imports_of_the_names_that_it_uses():
    body = ast.parse("def f(x):\n    return np.abs(x) + len(sys.argv) + F.relu(x).torch").body
    assert [ast.unparse(line) for line in find_imports(body)] == [
        "import sys",
        "import numpy as np",
        "import torch.nn.functional as F",
    ]


@pytest.mark.parametrize(
    ("title", "expected"), [("torch", True), ("json", True), ("nnpipe", True), ("digits", False)]
)
def test_a_script_may_not_have_the_name_of_a_module(title, expected):
    assert is_shadowing_module(title) is expected
