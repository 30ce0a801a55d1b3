"""The contract of tasks of scripts."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from nnpipe.codegen import script_task
from nnpipe.codegen.description import GeneratedScript, check_script, list_task_classes
from nnpipe.codegen.graph import CodeGraph
from nnpipe.codegen.script import generate
from nnpipe.codegen.script_task import FRAMEWORKS, ScriptTask
from nnpipe.core.discoverable import Discoverable
from nnpipe.core.messages import suggest_name
from nnpipe.testing.discoverable import DiscoverableContract

_PACKAGES = {"pytorch": "torch", "keras": "keras"}


class ScriptTaskContract(DiscoverableContract):
    """What every task of a script must do; subclass it and define two fixtures.

    ``task``
        The class.
    ``script``
        A valid description of a script, as a file holds it, with the task among its ``tasks``.
        Its ``framework`` is set to each framework of the task.
    """

    @pytest.fixture
    def task(self) -> type[ScriptTask]:
        raise NotImplementedError("a subclass of ScriptTaskContract gives the fixture `task`")

    @pytest.fixture
    def script(self) -> Mapping[str, Any]:
        raise NotImplementedError("a subclass of ScriptTaskContract gives the fixture `script`")

    @pytest.fixture
    def discovered(self, task: type[ScriptTask]) -> type[Discoverable]:
        return task

    def test_descriptions_have_a_name_for_it(self, task: type[ScriptTask]) -> None:
        assert vars(task).get("task"), "say what descriptions call it: task = ..."
        assert list_task_classes()[task.task] is task

    def test_it_says_what_each_argument_means(self, task: type[ScriptTask]) -> None:
        assert [option.name for option in task.options() if not option.help] == []
        undeclared = {field.name for field in dataclasses.fields(task)} - {
            row.name for row in script_task.list_fields(task)
        }
        assert undeclared == {"name", "after"}, "declare each field with argument, takes or gives"

    def test_it_is_there_for_a_framework(self, task: type[ScriptTask]) -> None:
        assert task.frameworks
        assert set(task.frameworks) <= set(FRAMEWORKS)

    @pytest.mark.parametrize("framework", FRAMEWORKS)
    def test_its_script_is_python_that_stands_alone_and_the_same_each_time(
        self, task: type[ScriptTask], script: Mapping[str, Any], framework: str
    ) -> None:
        one, two = (
            _generate_script(task, script, framework),
            _generate_script(task, script, framework),
        )
        assert one.text == two.text
        assert one.files == two.files
        packages = {
            name.partition(".")[0]
            for node in ast.walk(ast.parse(one.text))
            for name in _list_imports(node)
        }
        assert "nnpipe" not in packages
        compile(one.text, "script.py", "exec")

    @pytest.mark.parametrize("framework", FRAMEWORKS)
    def test_its_arguments_never_change_and_equal_ones_make_equal_tasks(
        self, task: type[ScriptTask], script: Mapping[str, Any], framework: str
    ) -> None:
        (one, *_), (two, *_) = (_find_tasks(task, script, framework) for _ in range(2))
        assert one == two
        assert hash(one) == hash(two)
        for field in dataclasses.fields(one):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(one, field.name, getattr(one, field.name))

    def test_an_unknown_argument_is_a_problem_that_names_it(
        self, task: type[ScriptTask], script: Mapping[str, Any]
    ) -> None:
        (found,) = check_script(_change_description(task, script, no_such_argument=1)).problems
        assert found.where.endswith(".no_such_argument")

    def test_a_missing_argument_is_told_with_its_meaning(
        self, task: type[ScriptTask], script: Mapping[str, Any]
    ) -> None:
        for row in script_task.list_fields(task):
            if row.default is dataclasses.MISSING:
                problems = check_script(_change_description(task, script, row.name)).problems
                assert any(
                    p.where.endswith(f".{row.name}") and row.help in p.message for p in problems
                ), row.name

    def test_a_value_of_the_wrong_kind_is_a_problem_that_names_it(
        self, task: type[ScriptTask], script: Mapping[str, Any]
    ) -> None:
        for row in script_task.list_fields(task):
            problems = check_script(
                _change_description(task, script, **{row.name: {"not": "a value"}})
            ).problems
            assert any(problem.where.endswith(f".{row.name}") for problem in problems), row.name
            assert all("\n" not in str(problem) for problem in problems)


def _change_description(
    task: type[ScriptTask], script: Mapping[str, Any], *without: str, **more: Any
) -> dict[str, Any]:
    """Return the description for one of the task's frameworks, with changed arguments of the
    task.
    """
    tasks = [dict(item) for item in script["tasks"]]
    first = next((item for item in tasks if item.get("task") == task.task), None)
    assert first is not None, (
        f"the script has no task {task.task}{suggest_name(task.task, [t['task'] for t in tasks])}"
    )
    first.update(more)
    for name in without:
        first.pop(name, None)
    framework = script.get("framework")
    return {
        **script,
        "framework": framework if framework in task.frameworks else task.frameworks[0],
        "tasks": tasks,
    }


def _build_graph(task: type[ScriptTask], script: Mapping[str, Any], framework: str) -> CodeGraph:
    if framework not in task.frameworks:
        pytest.skip(f"is there for {' and '.join(task.frameworks)} only")
    pytest.importorskip(_PACKAGES[framework], reason=f"{framework} is not installed")
    checked = check_script({**_change_description(task, script), "framework": framework})
    assert checked.problems == (), "; ".join(map(str, checked.problems))
    assert checked.graph is not None
    return checked.graph


def _find_tasks(
    task: type[ScriptTask], script: Mapping[str, Any], framework: str
) -> list[ScriptTask]:
    return [one for one in _build_graph(task, script, framework).order if type(one) is task]


def _generate_script(
    task: type[ScriptTask], script: Mapping[str, Any], framework: str
) -> GeneratedScript:
    return generate(_build_graph(task, script, framework))


def _list_imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
