"""Whatever stands in a description, what is wrong is told and nothing breaks."""

from __future__ import annotations

import copy

import pytest
import yaml

from nnpipe.codegen import check_script, generate

BASE = yaml.safe_load(
    """
script: tried
framework: keras
seed: 3
networks:
  net:
    - {class: Input, name: row, shape: [4]}
    - {class: Dense, units: 3}
    - {class: OutputClassification, target: kind, name: answer, top: [2]}
variables: {a: network, b: data, c: compiled, d: callback, e: callback, f: network, g: outputs, n: network}
tasks:
  - {task: load_model, network: net, model: a}
  - {task: apply_delta, model: a, network: net, changed: n}
  - {task: load_npz, path: rows.npz, inputs: [x], target: y, shape: [4], scale: 0.5, test_fraction: 0.3, data: b}
  - {task: compile, model: a, metrics: [accuracy], momentum: 0.5, optimiser: sgd, compiled: c}
  - {task: checkpoint, path: best, monitor: test_accuracy, callback: d}
  - {task: early_stopping, patience: 3, monitor: loss, callback: e}
  - {task: train, compiled: c, data: b, callbacks: [d, e], epochs: 1, model: f}
  - {task: inference, model: f, samples: b, path: given.csv, outputs: g}
  - {task: call, function: "package.module:function", arguments: [g, n]}
  - {task: save, model: f, path: saved, after: [call], name: keep}
last: keep
"""
)


def places(node, path=()):
    """List the ways to everything in a description."""
    inner = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    return [
        *([path] if path else []),
        *(place for key, item in inner for place in places(item, (*path, key))),
    ]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "\0",
        "out",
        *(pytest.param(each, marks=pytest.mark.slow) for each in (3, "x", [1], [], {"a": [1]})),
    ],
    ids=repr,
)
def test_anything_in_any_place_is_told_or_harmless(value):
    for *way, last in places(BASE):
        data = copy.deepcopy(BASE)
        node = data
        for key in way:
            node = node[key]
        if value == "out":
            del node[last]
        else:
            node[last] = value
        checked = check_script(data)
        assert (checked.graph is None) == bool(checked.problems), (way, last)
        assert all(str(problem).isprintable() for problem in checked.problems), (way, last)
        if checked.graph is not None:
            compile(generate(checked.graph).text, "script.py", "exec")


def test_the_description_that_is_changed_here_is_in_order():
    assert check_script(BASE).problems == ()


@pytest.mark.parametrize("kind", [["save"], {"save": 1}, 3, None, "sav"])
def test_a_task_that_there_is_not_is_told(kind):
    (problem,) = check_script({**BASE, "tasks": [*BASE["tasks"][:-1], {"task": kind}]}).problems[:1]
    assert (problem.code, problem.where) == ("unknown-task", "tasks[9].task")


TASK = """
from nnpipe import argument
from nnpipe.codegen import ScriptTask
from nnpipe.codegen.syntax import fill_template


class Tell(ScriptTask):
    task = "tell"
    line: str = argument("done", help="what to print")

    def write(self, writer):
        return fill_template("print(LINE)", LINE=writer.add_option(self, "line", self.line, "what to print"))
"""


def test_a_task_of_ones_own_is_named_by_its_dotted_path(tmp_path, monkeypatch):
    (tmp_path / "told_by_me.py").write_text(TASK, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    data = {
        "script": "tried",
        "framework": "pytorch",
        "networks": BASE["networks"],
        "variables": {"a": "network"},
        "tasks": [
            BASE["tasks"][0],
            {"task": "told_by_me.Tell", "line": "built", "after": ["load_model"]},
        ],
    }
    checked = check_script(data)
    assert checked.problems == ()
    assert "# tell" in (text := generate(checked.graph).text)
    assert 'default="built"' in text.replace("'", '"')
    data["tasks"][1]["task"] = "told_by_me.Tel"
    assert "told_by_me.py has Tell" in str(check_script(data).problems[0])
