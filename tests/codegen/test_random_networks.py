"""Any network, drawn at random, as code: it computes, penalises and constrains as the network
does.
"""

from __future__ import annotations

import ast

import numpy as np
import pytest
from borrowed import LAYERS, loaded
from hypothesis import HealthCheck, Phase, given, settings
from property_examples import examples

from nnpipe import layers as nn
from nnpipe.codegen.keras_code import write_network_function
from nnpipe.codegen.torch_code.code_blocks import Script
from nnpipe.codegen.torch_code.network import (
    build_state_dict,
    write_network_class,
    write_weight_initialisation,
)
from nnpipe.codegen.weights import build_keras_state
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.keras.to_keras import to_keras
from nnpipe.layers.torch.network_module import iter_named_tensors
from nnpipe.layers.torch.to_torch import to_torch, torch_weights

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


_random = loaded("random_graphs", LAYERS / "test_random_graphs.py")
# shrinking takes longer than looking at the network
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def inputs_of(graph):
    random = np.random.default_rng(1)
    shapes = [graph.layers[ref.layer].shape for ref in graph.inputs]
    return [
        random.normal(size=(2, *(e or 16 for e in shape))).astype("float32") for shape in shapes
    ]


def close(one, two):
    one, two = (
        x.detach() if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))
        for x in (one, two)
    )
    scale = max(float(two.abs().max()), 1.0)
    torch.testing.assert_close(one / scale, two / scale, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*You are using a softmax over axis")
@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES
)
@given(graph=_random.graphs())
def test_pytorch(graph, built):
    weights = initial_weights(graph)
    reference = to_torch(graph, weights)
    module, written = built(graph, weights)
    inputs = [torch.from_numpy(x) for x in inputs_of(graph)]
    with torch.no_grad():
        mine, its = module.eval()(*inputs), reference.eval()(*inputs)
    for one, two in zip(*(x if isinstance(x, tuple) else (x,) for x in (mine, its)), strict=True):
        close(one, two)
    penalty = getattr(module, "penalty", None)
    expected = reference.penalty()
    close(penalty() if penalty else torch.zeros(()), expected)
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    wanted = {
        written.parameters[name]
        for name, _, tensor in iter_named_tensors(reference)
        if tensor.requires_grad
    }
    assert trained & set(written.parameters.values()) == wanted
    try:
        reference.constrain()
    except IndexError:  # an axis that a bias has not
        return
    if hasattr(module, "constrain"):
        module.constrain()
    state = module.state_dict()
    for name, value in build_state_dict(written, graph, torch_weights(reference)).items():
        torch.testing.assert_close(state[name], torch.from_numpy(value), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*You are using a softmax over axis")
@settings(
    max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES
)
@given(graph=_random.graphs(names=False))
def test_keras(graph, run):
    pytest.importorskip("keras", reason="Keras is not installed")
    weights = initial_weights(graph)
    script = Script()
    function = write_network_function(graph, script, "network")
    namespace = run("keras", script, ("set_layer_weights",))
    model = namespace[function.title]()
    namespace["set_layer_weights"](model, build_keras_state(graph, weights), "")
    inputs = inputs_of(graph)
    inputs = inputs if len(inputs) > 1 else inputs[0]
    reference = to_keras(graph, weights)
    mine, its = (m(inputs, training=False) for m in (model, reference))
    for one, two in zip(*(x if isinstance(x, list) else [x] for x in (mine, its)), strict=True):
        close(one, two)
    names = [[w.path.partition("/")[2] for w in m.trainable_weights] for m in (model, reference)]
    assert len(names[0]) == len(names[1])


def test_what_is_frozen_stays_as_in_inference_while_the_rest_is_trained(built):
    x = nn.Input((4,), name="x")
    inner = nn.network(x, nn.BatchNorm(nn.Dense(x, 3), name="norm"), "inner")
    y = nn.BatchNorm(nn.Dense(x, 4, name="learnt"), name="still", trainable=False)
    y = nn.BatchNorm(y, name="moving")
    z = nn.Submodel(x, inner, name="whole", trainable=False)
    once = nn.BatchNorm(y, name="both")
    graph = nn.network(x, [y, z, once, once.on(y, training=False)], "frozen")
    weights = initial_weights(graph, 1)
    reference = to_torch(graph, weights)
    module, written = built(graph, weights)
    batch = torch.from_numpy(np.random.default_rng(0).normal(3, 2, (6, 4)).astype("float32"))
    for network in (module.train(), reference.train()):
        torch.manual_seed(0)
        network(batch)
    for one, two in zip(module(batch), reference(batch), strict=True):
        close(one, two)
    state = module.state_dict()
    for name, value in build_state_dict(written, graph, torch_weights(reference)).items():
        torch.testing.assert_close(state[name], torch.from_numpy(value), rtol=1e-5, atol=1e-6)
    assert not module.still.training
    assert module.moving.training
    assert not any(p.requires_grad for p in module.whole.parameters())


@pytest.mark.parametrize(
    "names",
    [("__in", "__mangled"), ("日", "本"), ("1", "self"), ("class", "forward"), ("x y", "F")],
)
def test_layers_may_have_any_name(names, run, built):
    x = nn.Input((4,), name=names[0])
    graph = nn.network(x, nn.Dense(nn.Dense(x, 3, name=names[1]), 2, name=f"{names[1]}!"), "any")
    script = Script()
    written = write_network_class(graph, script)
    function = write_weight_initialisation(graph, written, script)
    namespace = run("pytorch", script)
    module = namespace[written.title]()
    namespace[function](module)
    assert set(written.parameters.values()) == set(module.state_dict())
    weights = initial_weights(graph)
    inputs = [torch.from_numpy(value) for value in inputs_of(graph)]
    close(built(graph, weights)[0](*inputs), to_torch(graph, weights)(*inputs))


def test_real_files_of_keras_become_code(shared_data, built):
    """What a public project stored with TensorFlow 1.x, as PyTorch code."""
    from nnpipe.layers.keras.read_file import read_keras

    pytest.importorskip("h5py", reason="h5py is not installed")
    count = 0
    for path in sorted((shared_data / "keras_files").glob("*.h5")):
        reading = read_keras(path)
        if reading.graph is None or any(
            problem.code != "changed-meaning" for problem in reading.problems
        ):
            continue
        module, _ = built(reading.graph, reading.weights)
        inputs = [torch.from_numpy(x) for x in inputs_of(reading.graph)]
        reference = to_torch(reading.graph, reading.weights).eval()
        with torch.no_grad():
            for one, two in zip(module.eval()(*inputs), reference(*inputs), strict=True):
                close(one, two)
        count += 1
    assert count > 15


@pytest.mark.slow  # a quarter of a thousand files
def test_ruff_finds_nothing_in_the_code_of_any_layer(every_layer, ruff_finds_nothing, tmp_path):
    """All examples of all layers in one go: laid out as ruff lays it out, and nothing to mend."""
    from nnpipe.codegen.runtime.function_sources import with_needed
    from nnpipe.codegen.unparse import find_imports, find_used_names, generate_source

    for number, case in enumerate(every_layer.CASES):
        cls, make, shapes = case.values
        graph = every_layer.declared(cls, make, shapes)
        for framework in ("pytorch", "keras"):
            script = Script()
            if framework == "pytorch":
                write_weight_initialisation(graph, write_network_class(graph, script), script)
            else:
                write_network_function(graph, script, "network")
            used = find_used_names(script.definitions.values())
            body = [
                *with_needed(framework, used & {"run_in_mode"}).values(),
                *script.definitions.values(),
            ]
            module = ast.Module([*find_imports(body), *body], [])
            (tmp_path / f"{cls.__name__}_{number}_{framework}.py").write_text(
                generate_source(module), "utf-8"
            )
    ruff_finds_nothing(tmp_path)
