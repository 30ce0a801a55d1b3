"""The reader of script descriptions in YAML or JSON, which reports all mistakes together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from nnpipe.codegen import fields
from nnpipe.codegen.catalogue import described_task, task_classes
from nnpipe.codegen.generator import ScriptGenerator
from nnpipe.codegen.graph import Checked, check
from nnpipe.codegen.networks import network_of
from nnpipe.codegen.problems import ScriptProblem
from nnpipe.codegen.script_task import ScriptTask
from nnpipe.codegen.variables import Variable
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ComponentNotFound
from nnpipe.core.messages import one_line, shown
from nnpipe.core.naming import nearest

KEYS = ("script", "framework", "seed", "networks", "variables", "tasks", "last")


def read_script(data: Mapping[str, Any]) -> tuple[ScriptGenerator, tuple[ScriptProblem, ...]]:
    """Return the readable part of a description, and the problems with its structure."""
    found: list[ScriptProblem] = []
    for key in data:
        if key not in KEYS:
            found.append(ScriptProblem("structure", str(key), f"is not a known setting{nearest(str(key), KEYS)}"))
    for key in ("script", "framework", "tasks"):
        if key not in data:
            found.append(ScriptProblem("structure", key, "is missing"))
    graphs: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    for name, item in _object(data, "networks", found).items():
        graph, weights = network_of(str(name), item, found)
        if graph is not None:
            graphs[str(name)] = graph
        if weights:
            stored[str(name)] = weights
    variables = [
        Variable(str(n), k if isinstance(k, str) else shown(k)) for n, k in _object(data, "variables", found).items()
    ]
    items = data.get("tasks") or []
    if not isinstance(items, list):
        found.append(ScriptProblem("structure", "tasks", f"must be a list, not {shown(items)}"))
        items = []
    made = [_task(item, place, found) for place, item in enumerate(items)]
    script = ScriptGenerator(
        name=_text(data, "script", "script"), framework=_text(data, "framework", "pytorch"), variables=tuple(variables),
        tasks=tuple(task for task in made if task is not None), networks=graphs, stored=stored,
        last=_text(data, "last", "") or None, seed=data.get("seed", 0),
    )  # fmt: skip
    return script, tuple(found)


def check_script(data: Mapping[str, Any]) -> Checked:
    """Return the graph of a description, or all its problems."""
    check_call(check_script, locals())
    script, found = read_script(data)
    checked = check(script)
    # Unreadable parts are reported already; problems that only follow from them are left out.
    places = {problem.where for problem in found}
    read = tuple(
        f"networks.{name}." for name in script.networks if any(p.startswith(f"networks.{name}.") for p in places)
    )
    follow = [p for p in checked.problems if p.where not in places and not p.where.startswith(read or ("\0",))]
    problems = (*found, *follow)
    return Checked(None if problems else checked.graph, problems)


def _task(item: Any, place: int, found: list[ScriptProblem]) -> ScriptTask | None:
    """Return the task at an index of the list, or ``None`` if its class is not known; add problems to ``found``."""
    where = f"tasks[{place}]"
    if not isinstance(item, Mapping):
        found.append(
            ScriptProblem("structure", where, f"must be an object with task and its arguments, not {shown(item)}")
        )
        return None
    kind = item.get("task")
    hint = nearest(kind, task_classes()) if isinstance(kind, str) else ""
    try:
        cls, why = described_task(kind) if isinstance(kind, str) else None, f"there is no task {shown(kind)}{hint}"
    except ComponentNotFound as error:
        cls, why = None, one_line(error)
    if cls is None:
        found.append(ScriptProblem("unknown-task", f"{where}.task", why))
        return None
    rows = {row.name: row for row in fields.rows(cls)}
    name = item.get("name", cls.short_name())
    if not isinstance(name, str):
        found.append(ScriptProblem("name", f"{where}.name", f"must be a text, not {shown(name)}"))
        name = cls.short_name()
    title = name
    values: dict[str, Any] = {"name": name}
    after = item.get("after", ())
    after = [after] if isinstance(after, str) else after
    if isinstance(after, (list, tuple)) and all(isinstance(one, str) for one in after):
        values["after"] = tuple(after)
    else:
        found.append(ScriptProblem("argument", f"{title}.after", f"must be a list of tasks, not {shown(after)}"))
    for key, value in item.items():
        if key in rows:
            values[key] = _settled(value)
        elif key not in ("task", "name", "after"):
            found.append(
                ScriptProblem("argument", f"{title}.{key}", f"{kind} has no such argument{nearest(str(key), rows)}")
            )
    for row in rows.values():
        if row.name not in values and row.default is MISSING:
            values[row.name] = None
            found.append(ScriptProblem("argument", f"{title}.{row.name}", f"is missing: {row.help}"))
    return cls(**values)


def _text(data: Mapping[str, Any], key: str, default: str) -> str:
    """Return a setting that is a string; another value becomes a string that no check accepts."""
    value = data.get(key, default)
    return value if isinstance(value, str) else shown(value)


def _settled(value: Any) -> Any:
    return tuple(map(_settled, value)) if isinstance(value, list) else value


def _object(data: Mapping[str, Any], key: str, found: list[ScriptProblem]) -> Mapping[Any, Any]:
    value = data.get(key) or {}
    if isinstance(value, Mapping):
        return value
    found.append(ScriptProblem("structure", key, f"must be an object, not {shown(value)}"))
    return {}
