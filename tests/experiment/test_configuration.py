from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ComponentNotFound, ConfigError, NNPipeError
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.history import History

TEXTS = st.text(
    st.characters(
        exclude_categories=["Cs", "Cc"], exclude_characters="\x85\u2028\u2029\ufeff\ufffe\uffff"
    )
)
TREES = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | TEXTS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("xyz", max_size=2), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=3,
)


@given(TREES)
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_any_tree_goes_to_a_file_and_back(suffix, tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("configuration") / f"a.{suffix}"
    Configuration(tree).write(path)
    found = Configuration.read(path)
    assert found == Configuration(tree)
    assert hash(found) == hash(Configuration(tree))


def test_components_and_modules_are_made():
    made = Configuration(
        {
            "dataset": {"class": "nnpipe.datasets.digits.DigitsDataset"},
            "history": {"class": "nnpipe.experiment.history.History"},
            "seed": 5,
            "inside": {
                "list": [{"class": "nnpipe.experiment.state.State", "arguments": {"epoch": 1}}]
            },
        }
    ).build()
    assert made["dataset"] == DigitsDataset()
    assert isinstance(made["history"], History)
    assert made["seed"] == 5
    assert made["inside"]["list"][0].epoch == 1
    assert list(made) == ["dataset", "history", "seed", "inside"]


def test_references_share_objects_and_are_made_first():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    made = Configuration(
        {
            "optimiser": {
                "class": "torch.optim.SGD",
                "arguments": {"params": {"reference": "model", "call": "parameters"}, "lr": 0.5},
            },
            "same": {"reference": "model"},
            "weight": {"reference": "model.weight"},
            "model": {
                "class": "torch.nn.Linear",
                "arguments": {"in_features": 2, "out_features": 1},
            },
        }
    ).build()
    assert made["same"] is made["model"]
    assert made["weight"] is made["model"].weight
    assert isinstance(made["optimiser"], torch.optim.SGD)
    assert made["optimiser"].param_groups[0]["params"][0] is made["model"].weight


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {"class": "os.system", "arguments": {"command": "true"}}}, "no component, no class"),
        (
            {"a": {"class": "subprocess.Popen", "arguments": {"args": "true"}}},
            "no component, no class",
        ),
        ({"a": {"class": "nowhere.Thing"}}, r"a\.class: nowhere\.Thing cannot be found"),
        ({"a": {"class": "nnpipe.datasets.digits.Digits"}}, "cannot be found"),
        ({"a": {"class": "Short"}}, "expected a dotted path"),
        ({"a": {"class": 5}}, "expected a dotted path"),
        (
            {"a": {"class": "nnpipe.experiment.history.History", "arguments": {"x": 1}}},
            "a: History: .*'x'",
        ),
        (
            {"a": {"class": "nnpipe.experiment.history.History", "arguments": [1]}},
            "expected names with values",
        ),
        ({"a": {"class": "nnpipe.experiment.history.History", "args": {}}}, "not args"),
        (
            {"a": {"class": "nnpipe.datasets.digits.DigitsDataset", "arguments": {"colour": 1}}},
            "a: .*colour",
        ),
        ({"a": {"reference": "b"}, "c": 1}, "a: nothing is called 'b'"),
        ({"a": {"reference": "b"}, "b": [{"reference": "a"}]}, "a circle"),
        ({"a": {"reference": "b.colour"}, "b": 1}, "b.colour has no 'colour'"),
        ({"a": {"reference": "b.__class__"}, "b": 1}, "has no '__class__'"),
        ({"a": {"reference": "b", "call": "_secret"}, "b": 1}, "has no '_secret'"),
    ],
)
def test_what_cannot_be_made_is_named_by_its_place(tree, message):
    with pytest.raises((ConfigError, ComponentNotFound), match=message) as caught:
        Configuration(tree).build()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("units", [-3, "many"])
def test_a_layer_that_refuses_its_arguments_is_named_by_its_place(units):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    layer = {"class": "torch.nn.Linear", "arguments": {"in_features": 2, "out_features": units}}
    with pytest.raises(ConfigError, match=r"^a\.0: Linear: "):
        Configuration({"a": [layer]}).build()


@pytest.mark.parametrize(
    ("tree", "message"),
    [({"a": [object()]}, r"a\.0: .* cannot hold object"), ({1: 2}, "names are texts")],
)
def test_what_yaml_cannot_say_is_refused(tree, message):
    with pytest.raises(ConfigError, match=message):
        Configuration(tree)


def test_changes_make_a_new_configuration():
    first = Configuration({"optimiser": {"arguments": {"lr": 0.1}}})
    second = first.with_changes("optimiser.arguments.lr=0.01")
    assert second.tree == {"optimiser": {"arguments": {"lr": 0.01}}}
    first.tree["optimiser"] = None
    assert first.tree == {"optimiser": {"arguments": {"lr": 0.1}}}
    with pytest.raises(NNPipeError, match="is not of the form"):
        first.with_changes("lr")
