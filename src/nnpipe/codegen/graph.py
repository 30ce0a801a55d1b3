"""The graph of a script's tasks, and the checks of a script.

A task depends on another in two ways: it names the other one as a task that comes
before it, or it uses a variable that the other one creates.  Both kinds are checked
separately and together, so that no fault hides another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from nnpipe.codegen import script_task
from nnpipe.codegen.script_task import FRAMEWORKS, KINDS, ScriptProblem, ScriptTask
from nnpipe.codegen.syntax import is_name
from nnpipe.codegen.unparse import is_shadowing_module
from nnpipe.core.arguments import Kind
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import format_value, suggest_name

if TYPE_CHECKING:
    from nnpipe.codegen.description import ScriptGenerator

Node = TypeVar("Node")
Edge = tuple[int, int]
"""Indices of two nodes; the first comes before the second."""


def find_reachable(start: Iterable[Node], follow: Mapping[Node, Iterable[Node]]) -> set[Node]:
    """Return the nodes of ``start`` and all that can be reached from them; ``follow`` holds the
    successors of nodes.
    """
    found: set[Node] = set()
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += follow.get(node, ())
    return found


def find_cycles(count: int, edges: Collection[Edge]) -> list[frozenset[int]]:
    """Return the sets of nodes that can all be reached from each other, and the nodes with an edge
    to themselves.

    Nodes are numbered from 0; the sets are in the order of their lowest nodes.
    """
    follow: dict[int, set[int]] = defaultdict(set)
    for before, after in edges:
        follow[before].add(after)
    reach = {node: find_reachable(follow.get(node, ()), follow) for node in range(count)}
    found: list[frozenset[int]] = []
    for node in range(count):
        circle = frozenset(other for other in reach[node] if node in reach[other])
        if node in reach[node] and circle not in found:
            found.append(circle)
    return found


def sort_topologically(count: int, edges: Collection[Edge], last: int | None = None) -> list[int]:
    """Return the nodes in topological order; where the edges leave a choice, lower numbers come
    first.

    ``last`` is the node that comes last.  There must be no cycles, and no edge may start at
    ``last``.
    """
    needs: dict[int, set[int]] = defaultdict(set)
    for before, after in edges:
        needs[after].add(before)
    found: list[int] = []
    while len(found) < count:
        ready = [node for node in range(count) if node not in found and needs[node] <= set(found)]
        found.append(next((node for node in ready if node != last), ready[0]))
    return found


@dataclass(frozen=True)
class CodeGraph:
    """A valid script: a connected, acyclic graph of tasks, in topological order.

    Attributes
    ----------
    script
        The description.
    order
        The tasks; each one follows its dependencies.
    edges
        Names of two tasks, of which the first comes before the second, and the name of the variable
        that the second one uses.  The variable is empty if the second task names the first one.
    """

    script: ScriptGenerator
    order: tuple[ScriptTask, ...]
    edges: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class CheckedScript:
    """The result of a check: the graph, or ``None`` and the problems."""

    graph: CodeGraph | None
    problems: tuple[ScriptProblem, ...]


def check(script: ScriptGenerator) -> CheckedScript:
    """Return the graph of a script, or the problems with its names, variables, dependencies,
    tasks and networks.
    """
    made, used = _map_variable_tasks(script, "gives"), _map_variable_tasks(script, "takes")
    named, by_variable = _find_task_edges(script), _find_variable_edges(made, used)
    problems = [
        *_check_names(script),
        *_check_variables(script, made, used),
        *_check_task_references(script),
        *_check_last_task(script, {*named, *by_variable}),
        *_check_cycles(script, named, by_variable),
        *_check_connections(script, named, made, used),
        *_check_parts(script),
    ]
    if problems:
        return CheckedScript(None, tuple(problems))
    order = sort_topologically(len(script.tasks), {*named, *by_variable}, find_last_task(script))
    names = [task.name for task in script.tasks]
    edges = [(names[a], names[b], "") for a, b in sorted(named)]
    edges += [(names[a], names[b], variable) for (a, b), variable in sorted(by_variable.items())]
    return CheckedScript(
        CodeGraph(script, tuple(script.tasks[place] for place in order), tuple(edges)), ()
    )


def find_last_task(script: ScriptGenerator) -> int | None:
    """Return the index of the last task; ``None`` if there are no tasks, or none with the name
    of the last task.
    """
    if script.last is None:
        return len(script.tasks) - 1 if script.tasks else None
    return next(
        (place for place, task in enumerate(script.tasks) if task.name == script.last), None
    )


# -- links ----------------------------------------------------------------------------------------


def _map_variable_tasks(script: ScriptGenerator, role: str) -> dict[str, list[int]]:
    """Return the indices of the tasks that take or give each variable."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, task in enumerate(script.tasks):
        for _, variable in task.variables(role):
            if place not in found[variable]:
                found[variable].append(place)
    return dict(found)


def _find_task_edges(script: ScriptGenerator) -> set[Edge]:
    """Return the edges between tasks that name each other."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, task in enumerate(script.tasks):
        places[task.name].append(place)
    return {
        (p, place)
        for place, task in enumerate(script.tasks)
        for name in task.after
        for p in places.get(name, ())
    }


def _find_variable_edges(
    made: Mapping[str, list[int]], used: Mapping[str, list[int]]
) -> dict[Edge, str]:
    """Return the edges between tasks that create and use the same variable, with the variable."""
    return {
        (a, b): variable
        for variable in used
        for a in made.get(variable, ())
        for b in used[variable]
    }


# -- checks ---------------------------------------------------------------------------------------


def _check_names(script: ScriptGenerator) -> Iterator[ScriptProblem]:
    for what, name in (
        ("the script", script.name),
        *(("a task", task.name) for task in script.tasks),
        *(("a variable", variable.name) for variable in script.variables),
        # files beside the script are named after networks
        *(("a network", title) for title in script.networks),
    ):
        if not isinstance(name, str) or not is_name(name):
            message = (
                "it must consist of letters, digits and _, not start with a digit, and not be a "
                "keyword of Python"
            )
            yield ScriptProblem(
                "name", format_value(name), f"cannot be the name of {what}: {message}"
            )
    if isinstance(script.name, str) and is_shadowing_module(script.name):
        yield ScriptProblem(
            "name",
            script.name,
            "cannot be the name of the script: Python would import it as a module",
        )
    kinds = (
        ("tasks", [t.name for t in script.tasks]),
        ("variables", [v.name for v in script.variables]),
    )
    for what, names in kinds:
        for name, count in Counter(map(str, names)).items():
            if count > 1:
                yield ScriptProblem("duplicate-name", name, f"{count} {what} have this name")
    for variable in script.variables:
        if variable.kind not in KINDS:
            yield ScriptProblem(
                "variable-kind",
                variable.name,
                f"there is no kind {format_value(variable.kind)}: {', '.join(KINDS)}",
            )


def _check_variables(
    script: ScriptGenerator, made: Mapping[str, list[int]], used: Mapping[str, list[int]]
) -> Iterator[ScriptProblem]:
    kinds = script.kinds
    for task in script.tasks:
        for row, variable in (*task.variables("takes"), *task.variables("gives")):
            if variable not in kinds:
                hint = suggest_name(variable, kinds) or "; list it under variables"
                yield ScriptProblem(
                    "undeclared-variable",
                    f"{task.name}.{row.name}",
                    f"{format_value(variable)} is not declared{hint}",
                )
            elif (
                kinds[variable] in KINDS
                and not {kinds[variable], "any"} & {*row.kind}
                and kinds[variable] != "any"
            ):
                message = (
                    f"{variable} is of the kind {kinds[variable]}, not {' or '.join(row.kind)}"
                )
                yield ScriptProblem("variable-kind", f"{task.name}.{row.name}", message)
    for variable, places in used.items():
        if variable in kinds and variable not in made:
            users = ", ".join(script.tasks[place].name for place in places)
            yield ScriptProblem(
                "never-generated", variable, f"is needed by {users}, and no task creates it"
            )
    for variable, places in made.items():
        if len(places) > 1:
            makers = ", ".join(script.tasks[place].name for place in places)
            yield ScriptProblem(
                "generated-twice", variable, f"is created by {makers}; only one task may create it"
            )


def _check_task_references(script: ScriptGenerator) -> Iterator[ScriptProblem]:
    names = {task.name for task in script.tasks}
    for task in script.tasks:
        for name in task.after:
            if name not in names:
                yield ScriptProblem(
                    "undeclared-task",
                    f"{task.name}.after",
                    f"there is no task {format_value(name)}{suggest_name(str(name), names)}",
                )


def _check_last_task(script: ScriptGenerator, edges: Collection[Edge]) -> Iterator[ScriptProblem]:
    if not script.tasks:
        yield ScriptProblem("structure", "tasks", "the script has no tasks")
        return
    last = find_last_task(script)
    if last is None:
        yield ScriptProblem(
            "undeclared-task", "last", f"there is no task {format_value(script.last)}"
        )
        return
    for before, after in sorted(edges):
        if before == last and after != last:
            message = f"comes after {script.tasks[last].name}, which is the last task"
            yield ScriptProblem("after-last", script.tasks[after].name, message)


def _check_cycles(
    script: ScriptGenerator, named: Collection[Edge], by_variable: Collection[Edge]
) -> Iterator[ScriptProblem]:
    reported: list[frozenset[int]] = []
    for code, edges, how in (
        ("cycle", named, "wait for each other (after)"),
        ("variable-cycle", by_variable, "need each other's results"),
        ("cycle", {*named, *by_variable}, "wait for each other, partly through variables"),
    ):
        for circle in find_cycles(len(script.tasks), edges):
            if not any(known <= circle for known in reported) or code == "variable-cycle":
                names = ", ".join(script.tasks[place].name for place in sorted(circle))
                yield ScriptProblem(code, script.tasks[min(circle)].name, f"{names} {how}")
            reported.append(circle)


def _check_connections(
    script: ScriptGenerator,
    named: Collection[Edge],
    made: Mapping[str, list[int]],
    used: Mapping[str, list[int]],
) -> Iterator[ScriptProblem]:
    """Yield a problem for each group of tasks and variables that has no connection to the last
    task.
    """
    follow: dict[object, set[object]] = defaultdict(set)
    for before, after in named:
        follow[before].add(after)
        follow[after].add(before)
    for links in (made, used):
        for variable, places in links.items():
            for place in places:
                follow[variable].add(place)
                follow[place].add(variable)
    last = find_last_task(script)
    main = find_reachable([len(script.tasks) - 1 if last is None else last], follow)
    everything = [
        *range(len(script.tasks)),
        *dict.fromkeys(variable.name for variable in script.variables),
    ]
    for node in everything:
        if node not in main and script.tasks:
            island = find_reachable([node], follow)
            main |= island
            names = [script.tasks[n].name for n in sorted(m for m in island if isinstance(m, int))]
            names += sorted(n for n in island if isinstance(n, str))
            what = "is" if len(names) == 1 else "are"
            message = f"{', '.join(map(str, names))} {what} not connected to the last task"
            yield ScriptProblem("island", str(names[0]), message)


def _check_parts(script: ScriptGenerator) -> Iterator[ScriptProblem]:
    if script.framework not in FRAMEWORKS:
        yield ScriptProblem(
            "framework",
            "framework",
            f"must be one of {', '.join(FRAMEWORKS)}, not {format_value(script.framework)}",
        )
    if fault := script_task.find_fault(Kind(int, minimum=0, maximum=2**31 - 1), script.seed):
        yield ScriptProblem("argument", "seed", fault)
    for name, graph in script.networks.items():
        yield from (
            ScriptProblem("network", f"networks.{name}.{p.path}".rstrip("."), p.message)
            for p in graph.problems()
        )
        yield from _check_network(script, name)
    for task in script.tasks:
        faults = list(script_task.find_faults(task))
        yield from (
            ScriptProblem("argument", f"{task.name}.{field}", fault) for field, fault in faults
        )
        if script.framework in FRAMEWORKS and script.framework not in task.frameworks:
            there = " and ".join(task.frameworks)
            message = f"{task.task} is available for {there}, not for {script.framework}"
            yield ScriptProblem("framework", task.name, message)
        bad = {field for field, _ in faults}
        yield from (p for p in task.problems(script) if p.where.partition(".")[2] not in bad)


def _check_network(script: ScriptGenerator, name: str) -> Iterable[ScriptProblem]:
    """Return the reasons why the framework cannot build a network."""
    from nnpipe.layers.torch.to_torch import find_backend_problems

    if script.framework not in FRAMEWORKS:
        return []
    graph = script.networks[name]
    found = find_backend_problems(graph, "torch" if script.framework == "pytorch" else "keras")
    if found or graph.problems() or script.framework == "keras":
        return [ScriptProblem("framework", f"networks.{name}.{p.path}", p.message) for p in found]
    from nnpipe.codegen.torch_code.code_blocks import Script
    from nnpipe.codegen.torch_code.network import write_network_class

    try:
        write_network_class(graph, Script())
    except ConfigError as error:
        return [ScriptProblem("framework", f"networks.{name}", str(error))]
    return []
