"""Everything that can be wrong with a script's tasks is told, all of it at once."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe import layers as nn
from nnpipe.codegen import CODES, ScriptGenerator, ScriptProblem, Variable
from nnpipe.codegen.tasks.data import LoadArrays
from nnpipe.codegen.tasks.function_call import Call
from nnpipe.codegen.tasks.models import LoadModel
from nnpipe.codegen.tasks.outputs import Save
from nnpipe.codegen.tasks.training import Compile, Train

IMAGE = nn.Input((8, 8, 1), name="image")
GRAPH = nn.network(IMAGE, nn.Dense(nn.Flatten(IMAGE), 10, name="digit"), "digits")
VARIABLES = {
    "network": "network",
    "samples": "data",
    "compiled": "compiled",
    "trained": "network",
}
TASKS = (
    LoadModel(name="load", network="digits", model="network"),
    LoadArrays(name="read", path="digits.npz", data="samples"),
    Compile(name="choose", model="network", loss="cross_entropy", compiled="compiled"),
    Train(name="learn", compiled="compiled", data="samples", epochs=2, model="trained"),
    Save(name="keep", model="trained", path="digits"),
)


def script(tasks=TASKS, variables=VARIABLES, **more):
    given = {"name": "digits", "framework": "pytorch", "networks": {"digits": GRAPH}}
    return ScriptGenerator(
        variables=tuple(Variable(*item) for item in variables.items()),
        tasks=tuple(tasks),
        **{**given, **more},
    )


def told(made: ScriptGenerator) -> Counter[tuple[str, str]]:
    checked = made.check()
    assert (checked.graph is None) == bool(checked.problems)
    assert all(
        problem.code in CODES and "\n" not in problem.message for problem in checked.problems
    )
    return Counter((problem.code, problem.where) for problem in checked.problems)


def test_a_script_in_order_becomes_a_graph():
    checked = script(reversed(TASKS), last="keep").check()
    assert checked.problems == ()
    assert [task.name for task in checked.graph.order] == [
        "read",
        "load",
        "choose",
        "learn",
        "keep",
    ]
    assert ("choose", "learn", "compiled") in checked.graph.edges


def test_a_named_task_comes_before():
    first = dataclasses.replace(TASKS[0], after=("read",))
    order = [task.name for task in script((first, *TASKS[1:])).check().graph.order]
    assert order.index("read") < order.index("load")


# Each fault is put into a script of its own corner, so that several can be there at once.
def _cycle(tasks, variables):
    tasks += [
        Call(name="one", function="a:b", after=("two", "load")),
        Call(name="two", function="a:b", after=("one",)),
    ]
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "two"))
    return ("cycle", "one")


def _variable_cycle(tasks, variables):
    variables |= {"egg": "any", "hen": "any"}
    tasks += [
        Call(name="hatch", function="a:b", arguments=("egg", "network"), result="hen"),
        Call(name="lay", function="a:b", arguments=("hen",), result="egg"),
    ]
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "lay"))
    return ("variable-cycle", "hatch")


def _itself(tasks, variables):
    tasks.append(Call(name="narcissus", function="a:b", after=("narcissus", "load")))
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "narcissus"))
    return ("cycle", "narcissus")


def _island(tasks, variables):
    variables["sand"] = "any"
    tasks += [
        Call(name="robinson", function="a:b", result="sand"),
        Call(name="friday", function="a:b", arguments=("sand",)),
    ]
    return ("island", "robinson")


def _unused(tasks, variables):
    variables["driftwood"] = "any"
    return ("island", "driftwood")


def _duplicate_task(tasks, variables):
    tasks += [
        Call(name="twin", function="a:b", after=("load",)),
        Call(name="twin", function="a:b", after=("load",)),
    ]
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "twin"))
    return ("duplicate-name", "twin")


def _undeclared(tasks, variables):
    tasks.append(Call(name="user", function="a:b", arguments=("nowhere",), after=("load",)))
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "user"))
    return ("undeclared-variable", "user.arguments")


def _undeclared_task(tasks, variables):
    tasks[1] = dataclasses.replace(tasks[1], after=(*tasks[1].after, "nobody"))
    return ("undeclared-task", "read.after")


def _follower(tasks, variables):
    tasks.append(Call(name="epilogue", function="a:b", after=("keep",)))
    return ("after-last", "epilogue")


def _follower_by_variable(tasks, variables):
    variables["written"] = "file"
    tasks[4] = dataclasses.replace(tasks[4], file="written")
    tasks.append(Call(name="sequel", function="a:b", arguments=("written",)))
    return ("after-last", "sequel")


def _never(tasks, variables):
    variables["manna"] = "any"
    tasks.append(Call(name="eater", function="a:b", arguments=("manna", "network")))
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "eater"))
    return ("never-generated", "manna")


def _twice(tasks, variables):
    variables["both"] = "any"
    for name in ("left", "right"):
        tasks.append(Call(name=name, function="a:b", result="both", after=("load",)))
        tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, name))
    return ("generated-twice", "both")


def _import(tasks, variables):
    tasks.append(Call(name="importer", function="os; import sys:path", after=("load",)))
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "importer"))
    return ("import", "importer.function")


def _keyword_import(tasks, variables):
    tasks.append(Call(name="classy", function="package.class:function", after=("load",)))
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "classy"))
    return ("import", "classy.function")


def _keyword_task(tasks, variables):
    tasks.append(Call(name="lambda", function="a:b", after=("load",)))
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "lambda"))
    return ("name", "'lambda'")


def _keyword_variable(tasks, variables):
    variables["yield"] = "any"
    tasks.append(Call(name="farmer", function="a:b", result="yield", after=("load",)))
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "farmer"))
    return ("name", "'yield'")


def _kind(tasks, variables):
    tasks.append(Save(name="stow", model="samples", path="samples"))
    tasks[4] = dataclasses.replace(tasks[4], after=(*tasks[4].after, "stow"))
    return ("variable-kind", "stow.model")


def _argument(tasks, variables):
    tasks[3] = dataclasses.replace(tasks[3], epochs=0)
    return ("argument", "learn.epochs")


def _another_argument(tasks, variables):
    tasks[2] = dataclasses.replace(tasks[2], loss="regret")
    return ("argument", "choose.loss")


FAULTS = (
    _cycle,
    _variable_cycle,
    _itself,
    _island,
    _unused,
    _duplicate_task,
    _undeclared,
    _undeclared_task,
    _follower,
    _follower_by_variable,
    _never,
    _twice,
    _import,
    _keyword_import,
    _keyword_task,
    _keyword_variable,
    _kind,
    _argument,
    _another_argument,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told_and_nothing_else(fault):
    tasks, variables = list(TASKS), dict(VARIABLES)
    expected = fault(tasks, variables)
    assert told(script(tasks, variables, last="keep")) == {expected: 1}


@given(st.lists(st.sampled_from(FAULTS), unique=True, min_size=2), st.randoms())
def test_no_fault_hides_another(faults, random):
    tasks, variables = list(TASKS), dict(VARIABLES)
    expected = Counter(fault(tasks, variables) for fault in faults)
    random.shuffle(tasks)
    found = told(script(tasks, variables, last="keep"))
    # A circle and an island are told at the first of theirs, whichever that is in this order.
    names = {"hatch": "lay", "one": "two", "robinson": "friday"}
    for (code, where), count in expected.items():
        also = found[code, where] + (found[code, names[where]] if where in names else 0)
        assert also >= count, (code, where, found)
    assert sum(found.values()) == sum(expected.values())


def test_several_last_tasks_and_none():
    assert told(script(last="nobody")) == {("undeclared-task", "last"): 1}
    assert ("structure", "tasks") in told(script(()))


def test_whatever_the_circle_is_made_of():
    tasks = list(TASKS)
    tasks[0] = dataclasses.replace(tasks[0], after=("learn",))  # which needs what load makes
    ((problem),) = script(tasks).check().problems
    assert problem.code == "cycle"
    assert "load, choose, learn" in problem.message


def test_faults_of_names_and_networks_and_frameworks_are_told_together():
    wrong = nn.network(IMAGE, nn.Dense(nn.Flatten(IMAGE), 0, name="digit"), "digits")
    made = script(
        name="two words", framework="caffe", networks={"digits": wrong, "../../up": GRAPH}, seed=-1
    )
    assert told(made).keys() >= {
        ("name", "'two words'"),
        ("framework", "framework"),
        ("argument", "seed"),
        ("network", "networks.digits.digit.units"),
        ("name", "'../../up'"),
    }


def test_a_problem_has_a_code_that_is_explained():
    with pytest.raises(ValueError, match="no such code"):
        ScriptProblem("mood", "", "is bad")
