"""The reader of script descriptions in YAML or JSON, which reports all mistakes together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import Any

from nnpipe.codegen import script_task
from nnpipe.codegen.graph import CheckedScript, check
from nnpipe.codegen.script_task import ScriptProblem, ScriptTask, Variable
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ComponentNotFound, NNPipeError
from nnpipe.core.messages import format_one_line, format_value, suggest_name
from nnpipe.core.registry import find_or_import, map_names_to_classes
from nnpipe.layers.description.from_description import from_description
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import Weights
from nnpipe.layers.imports.network_files import KERAS, read_network
from nnpipe.layers.keras.read_file import read_keras


def parse_network(
    name: str, data: Any, found: list[ScriptProblem]
) -> tuple[NetworkGraph | None, Weights]:
    """Return a network and its stored weights; problems are appended to ``found``.

    The network is ``None`` if it cannot be read; the weights are empty if there are none.

    Parameters
    ----------
    name
        Name of the network.
    data
        A list of layers, or an object in the format of
        :mod:`nnpipe.layers.description.from_description`, or ``{file: PATH}`` with the path of such
        a description or of a Keras file; ``own_layers`` beside it names the user's layers in the
        file.
    found
        The list that problems are appended to.
    """
    where = f"networks.{name}"
    if isinstance(data, Mapping) and "file" in data:
        for key in data:
            if key not in ("file", "own_layers"):
                found.append(
                    ScriptProblem("structure", f"{where}.{key}", "is not allowed beside file")
                )
        return _read_network_file(
            name, data["file"], data.get("own_layers", []), f"{where}.file", found
        )
    parsed = from_description({"layers": data} if isinstance(data, list) else data)
    for problem in parsed.problems:
        found.append(
            ScriptProblem("network", f"{where}.{problem.path}".rstrip("."), problem.message)
        )
    return (None if parsed.graph is None else replace(parsed.graph, name=name)), {}


def _read_network_file(
    name: str, path: Any, own_layers: Any, where: str, found: list[ScriptProblem]
) -> tuple[NetworkGraph | None, Weights]:
    if not isinstance(path, str) or not path or "\0" in path:
        found.append(
            ScriptProblem("file", where, f"must be the path of a network, not {format_value(path)}")
        )
        return None, {}
    if not isinstance(own_layers, list) or not all(isinstance(title, str) for title in own_layers):
        found.append(
            ScriptProblem(
                "file", where, f"own_layers must be a list of names, not {format_value(own_layers)}"
            )
        )
        return None, {}
    try:
        keras = Path(path).suffix in KERAS
        reading = (
            read_keras(path, own_layers=own_layers) if keras else read_network(path, own_layers)
        )
    except NNPipeError as error:
        found.append(ScriptProblem("file", where, str(error)))
        return None, {}
    for problem in reading.problems:
        if problem.code != "changed-meaning":
            found.append(ScriptProblem("file", where, f"{path}: {problem}"))
    return (None if reading.graph is None else replace(reading.graph, name=name)), reading.weights


def list_task_classes() -> Mapping[str, type[ScriptTask]]:
    """Return all task classes of nnpipe, plugins and the running program, by their names in
    descriptions.
    """
    return map_names_to_classes(ScriptTask)


def find_task_class(name: str) -> type[ScriptTask] | None:
    """Return the task class that a description names; ``None`` if there is none with this short
    name.

    The module of a dotted path is imported.

    Raises
    ------
    ComponentNotFound
        If there is no class with this dotted path.
    """
    return find_or_import(name, ScriptTask)


@dataclass(frozen=True, kw_only=True)
class ScriptGenerator:
    """The description of a script.  Nothing is checked on creation; :meth:`check` returns
    everything that is wrong.

    Parameters
    ----------
    name
        Name of the script.
    framework
        ``pytorch`` or ``keras``.
    variables
        Values that tasks pass to each other.
    tasks
        The steps of the script.  Their order matters only where dependencies do not fix it.
    networks
        Networks by the names that tasks use.
    stored
        Stored weights by the names of the networks.
    last
        The last task of the script; by default the last one listed.
    seed
        Seed of the initial weights, the split of the samples, and the order of the samples.
    """

    name: str
    framework: str
    variables: tuple[Variable, ...]
    tasks: tuple[ScriptTask, ...]
    networks: Mapping[str, NetworkGraph] = field(default_factory=dict)
    stored: Mapping[str, Weights] = field(default_factory=dict, compare=False)
    last: str | None = None
    seed: int = 0

    def check(self) -> CheckedScript:
        """Return the graph of the tasks, or all problems of the description."""
        return check(self)

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of variables by their names."""
        return {variable.name: variable.kind for variable in self.variables}


@dataclass(frozen=True)
class GeneratedScript:
    """A generated script and its files.

    Attributes
    ----------
    text
        The source code of the script.
    files
        Content of the files that the script reads from its own folder, such as weights, by name.
    """

    text: str
    files: Mapping[str, bytes] = field(default_factory=dict)


KEYS = ("script", "framework", "seed", "networks", "variables", "tasks", "last")


def read_script(data: Mapping[str, Any]) -> tuple[ScriptGenerator, tuple[ScriptProblem, ...]]:
    """Return the readable part of a description, and the problems with its structure."""
    found: list[ScriptProblem] = []
    for key in data:
        if key not in KEYS:
            found.append(
                ScriptProblem(
                    "structure", str(key), f"is not a known setting{suggest_name(str(key), KEYS)}"
                )
            )
    for key in ("script", "framework", "tasks"):
        if key not in data:
            found.append(ScriptProblem("structure", key, "is missing"))
    graphs: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    for name, item in _get_object(data, "networks", found).items():
        graph, weights = parse_network(str(name), item, found)
        if graph is not None:
            graphs[str(name)] = graph
        if weights:
            stored[str(name)] = weights
    variables = [
        Variable(str(n), k if isinstance(k, str) else format_value(k))
        for n, k in _get_object(data, "variables", found).items()
    ]
    items = data.get("tasks") or []
    if not isinstance(items, list):
        found.append(
            ScriptProblem("structure", "tasks", f"must be a list, not {format_value(items)}")
        )
        items = []
    made = [_parse_task(item, place, found) for place, item in enumerate(items)]
    script = ScriptGenerator(
        name=_get_text(data, "script", "script"),
        framework=_get_text(data, "framework", "pytorch"),
        variables=tuple(variables),
        tasks=tuple(task for task in made if task is not None),
        networks=graphs,
        stored=stored,
        last=_get_text(data, "last", "") or None,
        seed=data.get("seed", 0),
    )
    return script, tuple(found)


def check_script(data: Mapping[str, Any]) -> CheckedScript:
    """Return the graph of a description, or all its problems."""
    check_call(check_script, locals())
    script, found = read_script(data)
    checked = check(script)
    # Unreadable parts are reported already; problems that only follow from them are left out.
    places = {problem.where for problem in found}
    read = tuple(
        f"networks.{name}."
        for name in script.networks
        if any(p.startswith(f"networks.{name}.") for p in places)
    )
    follow = [
        p
        for p in checked.problems
        if p.where not in places and not p.where.startswith(read or ("\0",))
    ]
    problems = (*found, *follow)
    return CheckedScript(None if problems else checked.graph, problems)


def _parse_task(item: Any, place: int, found: list[ScriptProblem]) -> ScriptTask | None:
    """Return the task at an index of the list, or ``None`` if its class is not known; add
    problems to ``found``.
    """
    where = f"tasks[{place}]"
    if not isinstance(item, Mapping):
        found.append(
            ScriptProblem(
                "structure",
                where,
                f"must be an object with task and its arguments, not {format_value(item)}",
            )
        )
        return None
    kind = item.get("task")
    hint = suggest_name(kind, list_task_classes()) if isinstance(kind, str) else ""
    try:
        cls, why = (
            find_task_class(kind) if isinstance(kind, str) else None,
            f"there is no task {format_value(kind)}{hint}",
        )
    except ComponentNotFound as error:
        cls, why = None, format_one_line(error)
    if cls is None:
        found.append(ScriptProblem("unknown-task", f"{where}.task", why))
        return None
    rows = {row.name: row for row in script_task.list_fields(cls)}
    name = item.get("name", cls.short_name())
    if not isinstance(name, str):
        found.append(
            ScriptProblem("name", f"{where}.name", f"must be a text, not {format_value(name)}")
        )
        name = cls.short_name()
    title = name
    values: dict[str, Any] = {"name": name}
    after = item.get("after", ())
    after = [after] if isinstance(after, str) else after
    if isinstance(after, (list, tuple)) and all(isinstance(one, str) for one in after):
        values["after"] = tuple(after)
    else:
        found.append(
            ScriptProblem(
                "argument", f"{title}.after", f"must be a list of tasks, not {format_value(after)}"
            )
        )
    for key, value in item.items():
        if key in rows:
            values[key] = _convert_lists(value)
        elif key not in ("task", "name", "after"):
            found.append(
                ScriptProblem(
                    "argument",
                    f"{title}.{key}",
                    f"{kind} has no such argument{suggest_name(str(key), rows)}",
                )
            )
    for row in rows.values():
        if row.name not in values and row.default is MISSING:
            values[row.name] = None
            found.append(
                ScriptProblem("argument", f"{title}.{row.name}", f"is missing: {row.help}")
            )
    return cls(**values)


def _get_text(data: Mapping[str, Any], key: str, default: str) -> str:
    """Return a setting that is a string; another value becomes a string that no check accepts."""
    value = data.get(key, default)
    return value if isinstance(value, str) else format_value(value)


def _convert_lists(value: Any) -> Any:
    return tuple(map(_convert_lists, value)) if isinstance(value, list) else value


def _get_object(data: Mapping[str, Any], key: str, found: list[ScriptProblem]) -> Mapping[Any, Any]:
    value = data.get(key) or {}
    if isinstance(value, Mapping):
        return value
    found.append(ScriptProblem("structure", key, f"must be an object, not {format_value(value)}"))
    return {}
