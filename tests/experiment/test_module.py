from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError, NotSupported
from nnpipe.experiment.history import Statistics
from nnpipe.experiment.module import Module, StateError
from nnpipe.experiment.state import State
from nnpipe.experiment.state_file import from_bytes, to_bytes

_SPEC = importlib.util.spec_from_file_location(
    "strategies", Path(__file__).with_name("strategies.py")
)
strategies = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(strategies)
same = strategies.same

NAMES = st.text("abcdefgh", min_size=1, max_size=4).filter(lambda name: not hasattr(State, name))


class Node(Module):
    def __init__(self, **parts):
        for name, part in parts.items():
            setattr(self, name, part)


NODES = st.recursive(
    st.dictionaries(NAMES, strategies.VALUES, max_size=3).map(lambda values: State(**values)),
    lambda inner: st.dictionaries(
        NAMES,
        inner
        | st.lists(inner, max_size=2)
        | st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=2),
        max_size=3,
    ).map(lambda parts: Node(**parts)),
    max_leaves=8,
)


def blank(module):
    """Return a module of the same form with other values."""
    if isinstance(module, State):
        return State(**dict.fromkeys(module, "blank"))
    if isinstance(module, list):
        return [blank(item) for item in module]
    if isinstance(module, dict):
        return {key: blank(item) for key, item in module.items()}
    return Node(**{name: blank(part) for name, part in vars(module).items()})


@given(NODES)
def test_any_tree_goes_to_a_file_and_back_to_the_bit(tree):
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    state = tree.state_dict()
    other = blank(tree)
    other.load_state_dict(from_bytes(to_bytes({"tree": state}, kind="tree"), kind="tree")["tree"])
    assert same(other.state_dict(), state)


def test_attributes_that_have_a_state_are_children():
    tree = Node(
        a=State(x=1), plain=5, many=[State(y=2), 3, State(z=4)], named={"k": State(w=5)}, kind=State
    )
    assert [name for name, _ in tree.children()] == ["a", "many.0", "many.2", "named.k"]
    assert tree.state_dict() == {
        "a": {"x": 1},
        "many.0": {"y": 2},
        "many.2": {"z": 4},
        "named.k": {"w": 5},
    }


def test_a_child_that_is_reached_twice_is_saved_once():
    shared = State(x=1)
    tree = Node(a=shared, b=shared, c=Node(d=shared))
    assert tree.state_dict() == {"a": {"x": 1}, "c": {"d": {"x": 1}}}
    assert [path for path, _ in tree.modules()] == ["", "a", "c"]


def test_children_of_one_name_are_refused():
    class Crooked(Module):
        def children(self):
            return iter([("a", State(x=1)), ("a", State(y=1))])

    with pytest.raises(ConfigError, match="two children are called 'a'"):
        Crooked().state_dict()


def test_layers_and_optimisers_are_children_too():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def made():
        layer = torch.nn.Linear(2, 1)
        return Node(
            model=layer, optimiser=torch.optim.Adam(layer.parameters()), state=State(step=0)
        )

    one, other = made(), made()
    one.model(torch.ones(1, 2)).sum().backward()
    one.optimiser.step()
    one.state.step = 1
    other.load_state_dict(from_bytes(to_bytes(one.state_dict(), kind="x"), kind="x"))
    assert torch.equal(other.model.weight, one.model.weight)
    assert other.optimiser.state_dict()["state"][0]["step"] == 1
    assert other.state.step == 1


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"x": 1}}, "Node: the state has no inner"),
        (
            {"a": {"x": 1}, "inner": {"b": {"y": 2}}, "c": {}},
            "Node: the state has c, which is unknown here",
        ),
        ({"a": {"x": 1}, "inner": {"b": {}}}, r"inner\.b: the state has no y"),
        ({"a": {"x": 1}, "inner": {"b": {"y": 2, "z": 3}}}, r"inner\.b: the state has z"),
        ({"a": {"x": 1}, "inner": 5}, "inner: expected the state of a Node, found int"),
        ({"a": 5, "inner": {"b": {"y": 2}}}, "a: expected the state of a State, found int"),
        (5, "Node: expected the state of a Node"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(state, message):
    tree = Node(a=State(x=10), inner=Node(b=State(y=20)))
    before = copy.deepcopy(tree.state_dict())
    with pytest.raises(StateError, match=message):
        tree.load_state_dict(state)
    assert tree.state_dict() == before


def test_when_a_layer_refuses_its_part_the_rest_is_as_before():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tree = Node(
        a=State(x=1), first=torch.nn.Linear(2, 2), second=torch.nn.Linear(3, 3), z=State(y=1)
    )
    before = copy.deepcopy(tree.state_dict())
    given_state = copy.deepcopy(before)
    given_state["a"]["x"] = 5
    given_state["first"]["weight"] += 1
    given_state["second"]["weight"] = torch.zeros(7, 7)
    with pytest.raises(StateError, match="second: Linear refused it"):
        tree.load_state_dict(given_state)
    assert tree.state_dict()["a"] == {"x": 1}
    assert torch.equal(tree.first.weight, before["first"]["weight"])
    assert torch.equal(tree.second.weight, before["second"]["weight"])


def test_a_defect_in_a_child_keeps_its_traceback():
    class Broken(State):
        def load_state_dict(self, state=None):
            raise ZeroDivisionError

    tree = Node(a=State(x=1), b=Broken())
    with pytest.raises(ZeroDivisionError):
        tree.load_state_dict({"a": {"x": 2}, "b": {}})


def test_a_module_that_does_nothing_says_so():
    with pytest.raises(NotSupported, match="Node does nothing"):
        Node()()


def test_a_state_gives_its_values_in_three_ways():
    state = State(epoch=1, best=None)
    state.epoch += 1
    assert state() == state.state_dict() == state.load_state_dict() == {"epoch": 2, "best": None}
    assert state.load_state_dict({"best": 0.5, "epoch": 7}) == {"epoch": 7, "best": 0.5}
    assert (len(state), list(state), "best" in state) == (2, ["epoch", "best"], True)
    assert repr(state) == "State(epoch=7, best=0.5)"


def test_a_misspelt_value_is_an_error():
    state = State(epoch=1)
    with pytest.raises(AttributeError, match="no value 'epohc' to set; it has epoch"):
        state.epohc = 2
    with pytest.raises(AttributeError, match="no value 'epohc'"):
        _ = state.epohc
    with pytest.raises(ConfigError, match="cannot be called 'state_dict'"):
        State(state_dict=1)


def test_what_is_loaded_is_a_copy():
    given_state = {"values": [1, 2]}
    state = State(values=[])
    state.load_state_dict(given_state)
    given_state["values"].append(3)
    assert state.values == [1, 2]


def test_a_state_can_be_copied():
    state = copy.deepcopy(State(values=[1]))
    state.values.append(2)
    assert state() == {"values": [1, 2]}


def test_modules_are_found_with_their_paths():
    tree = Node(a=Node(b=State(x=1)), c=[Statistics()])
    assert [(path, type(m).__name__) for path, m in tree.modules()] == [
        ("", "Node"),
        ("a", "Node"),
        ("a.b", "State"),
        ("c.0", "Statistics"),
    ]
    assert np.isnan(Statistics().means().get("x", np.nan))
