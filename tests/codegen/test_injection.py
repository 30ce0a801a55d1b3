"""Whatever stands in a description stays data: no name, text or path of it becomes code."""

from __future__ import annotations

import ast
import copy
import random
from functools import cache

import numpy as np
import pytest
import yaml
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.codegen import check_script, generate

pytest.importorskip("torch", reason="PyTorch is not installed")

BASE = yaml.safe_load(
    """
script: canary
framework: pytorch
networks:
  net:
    - {class: Input, name: IN, shape: [4]}
    - {class: Dense, units: 3, name: OUT, activation: softmax}
variables: {a: network, b: data, c: compiled, d: callback, e: callback, f: network, g: outputs, h: callback}
tasks:
  - {task: load_model, network: net, model: a}
  - {task: load_npz, path: PATH, inputs: [INPUT], target: TARGET, data: b}
  - {task: compile, model: a, loss: cross_entropy, metrics: [accuracy], compiled: c}
  - {task: checkpoint, path: BEST, callback: d}
  - {task: csv_logger, path: LOG, callback: e}
  - {task: progress, path: PROGRESS, callback: h}
  - {task: train, compiled: c, data: b, callbacks: [d, e, h], epochs: 1, model: f}
  - {task: inference, model: f, samples: b, path: CSV, outputs: g}
  - {task: save, model: f, path: SAVED, after: [inference]}
"""
)
TEXTS = ("IN", "OUT", "PATH", "INPUT", "TARGET", "BEST", "LOG", "PROGRESS", "CSV", "SAVED")
PLAIN = {name: f"{name.lower()}x" for name in TEXTS}
HOSTILE = (
    '"); import os; os.system("touch canary"); ("',
    "'); __import__('os').system('touch canary') #",
    '""" + open("canary", "w").write("x") + """',
    "\\",
    "\\'",
    '\\"',
    "\n    open('canary', 'w')\n",
    "{open('canary', 'w')}",
    "%(prog)s %s %",
    "{0.__class__}",
    "\u202eevil",
    "a\rb",
    "\x1b[2J",
    "𝒆𝒗𝒂𝒍",
    "é'\"",
    "$(touch canary)",
    "`touch canary`",
    "a.b",
    "class",
    "__import__",
    "../../etc/passwd",
    "\N{FULLWIDTH QUOTATION MARK}); open",
    "\x0c",
    "\x85",
    "\u2028",
)


def filled(texts: dict[str, str], framework: str = "pytorch"):
    """Put texts into the places of the description."""

    def put(value):
        if isinstance(value, dict):
            return {key: put(item) for key, item in value.items()}
        if isinstance(value, list):
            return [put(item) for item in value]
        return texts.get(value, value) if isinstance(value, str) else value

    return put(copy.deepcopy(BASE)) | {"framework": framework}


# which would take minutes, for each example is slow
_NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)


class Shape(ast.NodeVisitor):
    """What a script does, whatever its texts and the names of its layers are."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_Constant(self, node):
        self.found.append(type(node.value).__name__)

    def visit_Name(self, node):
        self.found.append("name")

    def visit_Attribute(self, node):
        self.found.append("attribute")
        self.visit(node.value)

    def visit_arg(self, node):
        self.found.append("parameter")

    def generic_visit(self, node):
        self.found.append(type(node).__name__)
        super().generic_visit(node)


def shape(text: str) -> list[str]:
    visitor = Shape()
    visitor.visit(ast.parse(text))
    return visitor.found


def called(text: str) -> set[str]:
    tree = ast.parse(text)
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {ast.unparse(node) for node in functions if isinstance(node, (ast.Name, ast.Attribute))}
    # The layers' own names are attributes of the network.
    return {name for name in names if not name.startswith("self.")} | {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }


@cache
def benign(framework):
    return generate(check_script(filled(PLAIN, framework)).graph).text


_TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
hostile = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(_TEXT, min_size=1, max_size=30),
    st.text("'\"\\\n{}#;()", min_size=1, max_size=12),
)


@pytest.mark.slow
@settings(max_examples=examples(25), phases=_NO_SHRINKING)
@given(st.fixed_dictionaries(dict.fromkeys(TEXTS, hostile)), st.sampled_from(["pytorch", "keras"]))
@example(dict.fromkeys(TEXTS, HOSTILE[0]), "pytorch")
@example({name: HOSTILE[i] for i, name in enumerate(TEXTS)}, "pytorch")
@example({name: HOSTILE[i + 10] for i, name in enumerate(TEXTS)}, "pytorch")
def test_texts_change_nothing_but_texts(texts, framework):
    if texts["IN"] == texts["OUT"]:
        texts = {**texts, "OUT": "digit"}
    if framework == "keras":  # which takes no such name for a layer
        texts = {name: text.replace("/", "|") for name, text in texts.items()}
    end = {"pytorch": ".safetensors", "keras": ".keras"}[framework]
    texts = {**texts, "BEST": texts["BEST"] + end, "SAVED": texts["SAVED"] + end}
    checked = check_script(filled(texts, framework))
    assert checked.problems == ()
    made = generate(checked.graph).text
    assert called(made) == called(benign(framework))
    # A layer's name may be too long for a line that holds another's; all else leaves the same tree.
    layers = {name: texts[name] for name in ("IN", "OUT")}
    assert shape(made) == shape(
        generate(check_script(filled(PLAIN | layers, framework)).graph).text
    )
    assert all(line.isprintable() for line in made.split("\n"))
    constants = {node.value for node in ast.walk(ast.parse(made)) if isinstance(node, ast.Constant)}
    assert {texts["PATH"], texts["INPUT"], texts["TARGET"]} <= constants


@settings(max_examples=examples(80), phases=_NO_SHRINKING)
@given(
    st.sampled_from("script task variable function after network framework last seed kind".split()),
    st.one_of(
        hostile,
        st.integers(),
        st.none(),
        st.lists(hostile, max_size=2),
        st.dictionaries(hostile, hostile, max_size=2),
    ),
)
def test_names_that_are_none_are_refused_or_harmless(place, value):
    data = filled({name: "plain" + name for name in TEXTS})
    match place:
        case "script" | "framework" | "last" | "seed":
            data[place] = value
        case "task":
            data["tasks"][0]["name"] = value
        case "variable":
            if not isinstance(value, str):
                return
            data["variables"] = {
                value if key == "b" else key: kind for key, kind in data["variables"].items()
            }
            for task in data["tasks"]:
                task.update({key: value for key, item in task.items() if item == "b"})
        case "kind":
            data["variables"]["a"] = value
        case "function":
            data["variables"]["z"] = "any"
            data["tasks"].insert(
                1, {"task": "call", "function": value, "arguments": ["a"], "result": "z"}
            )
        case "after":
            data["tasks"][3]["after"] = value
        case "network":
            data["networks"]["net"] = value
    checked = check_script(data)
    assert (checked.graph is None) == bool(checked.problems)
    if checked.graph is not None:
        made = generate(checked.graph).text
        extra = called(made) - called(benign("pytorch"))
        assert len(extra) <= (2 if place == "function" else 0), extra


def test_a_canary_lives(run_script, tmp_path):
    """Run a script whose every text tries to break out."""
    texts = {name: HOSTILE[i % 3] for i, name in enumerate(TEXTS)} | {"IN": "image", "OUT": "digit"}
    texts |= {
        name: texts[name].replace("/", "") + end
        for name, end in (("BEST", ".safetensors"), ("SAVED", ".safetensors"))
    }
    checked = check_script(filled(texts))
    assert checked.problems == ()
    (tmp_path / "script.py").write_text(generate(checked.graph).text, "utf-8")
    arrays = {texts["INPUT"]: np.zeros((20, 4)), texts["TARGET"]: np.zeros(20, int)}
    with open(tmp_path / texts["PATH"], "wb") as file:
        np.savez(file, **arrays)
    for arguments in (["--help"], []):
        run_script(tmp_path / "script.py", *arguments)
    # Every text was used, as what it is: the name of a file or of an array.
    assert {path.name for path in tmp_path.iterdir()} == {
        "script.py",
        *(texts[name] for name in ("PATH", "BEST", "LOG", "PROGRESS", "CSV", "SAVED")),
    }


@pytest.mark.slow
def test_ruff_finds_nothing_whatever_the_texts_are(ruff_finds_nothing, tmp_path):
    draw = random.Random(5)
    for number in range(24):
        # Wide characters take two columns, and each text is as long as to be near the end of some
        # line.
        texts = {
            name: "".join(draw.choices("a'\"\\日é\n {}0語\t𝒆_", k=draw.randint(1, 40)))
            for name in TEXTS
        }
        texts |= {name: texts[name] + ".safetensors" for name in ("BEST", "SAVED")}
        text = generate(check_script(filled(texts | {"OUT": texts["OUT"] + "!"})).graph).text
        (tmp_path / f"script_{number}.py").write_text(text, "utf-8")
    ruff_finds_nothing(tmp_path)
