"""Every layer of the vocabulary as code: it computes what the layer computes, in PyTorch and in
Keras.
"""

from __future__ import annotations

import numpy as np
import pytest
from installed import needs

from nnpipe.codegen.keras_code import write_network_function
from nnpipe.codegen.torch_code.code_blocks import Script
from nnpipe.codegen.torch_code.network import (
    build_state_dict,
    write_network_class,
    write_weight_initialisation,
)
from nnpipe.codegen.weights import build_keras_state
from nnpipe.layers.graph.weights import initial_weights, list_variables
from nnpipe.layers.keras.to_keras import to_keras
from nnpipe.layers.torch.to_torch import to_torch
from nnpipe.testing.layer import create_network_batch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs("keras", "tensorflow")


def test_the_code_for_pytorch_computes_what_the_layer_computes(
    cls, make, shapes, every_layer, built
):
    graph = every_layer.declared(cls, make, shapes)
    weights = initial_weights(graph, 3)
    module, _ = built(graph, weights)
    reference = to_torch(graph, weights)
    inputs = [torch.from_numpy(x) for x in create_network_batch(graph)]
    with torch.no_grad():
        torch.testing.assert_close(
            module.eval()(*inputs), reference.eval()(*inputs), rtol=1e-5, atol=1e-5
        )


def test_the_code_for_pytorch_trains_as_the_layer_does(cls, make, shapes, every_layer, built):
    graph = every_layer.declared(cls, make, shapes)
    weights = initial_weights(graph, 3)
    module, _ = built(graph, weights)
    reference = to_torch(graph, weights)
    inputs = [torch.from_numpy(x) for x in create_network_batch(graph)]
    found = []
    for network in (module.train(), reference.train()):
        torch.manual_seed(5)  # the same units drop out
        loss = network(*inputs).square().sum()
        penalty = getattr(network, "penalty", None)
        loss = loss + penalty() if penalty is not None else loss
        if loss.requires_grad:
            loss.backward()
        found.append(
            sorted(p.grad.abs().sum().item() for p in network.parameters() if p.grad is not None)
        )
        found.append(loss.item())
    np.testing.assert_allclose(found[0], found[2], rtol=2e-4, atol=1e-5)
    assert found[1] == pytest.approx(found[3], rel=1e-4)


def test_first_weights_are_drawn_as_the_initialisers_say(cls, make, shapes, every_layer, run):
    graph = every_layer.declared(cls, make, shapes)
    script = Script()
    written = write_network_class(graph, script)
    function = write_weight_initialisation(graph, written, script)
    namespace = run("pytorch", script)
    module = namespace[written.title]()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(float("nan"))
    torch.manual_seed(0)
    namespace[function](module)
    state = module.state_dict()
    mine = build_state_dict(written, graph, initial_weights(graph, 0))
    for name in list_variables(graph):
        drawn, expected = state[written.parameters[name]].numpy(), mine[written.parameters[name]]
        assert np.isfinite(drawn).all(), name
        if drawn.size > 40:
            assert drawn.std() == pytest.approx(expected.std(), rel=0.5, abs=1e-6), name
        if expected.std() == 0:
            np.testing.assert_array_equal(drawn, expected)


def test_the_code_for_keras_computes_what_the_layer_computes(cls, make, shapes, every_layer, run):
    graph = every_layer.declared(cls, make, shapes)
    weights = initial_weights(graph, 3)
    script = Script()
    built = write_network_function(graph, script, "network")
    namespace = run("keras", script, ("set_layer_weights",))
    model = namespace[built.title]()
    namespace["set_layer_weights"](model, build_keras_state(graph, weights), "")
    reference = to_keras(graph, weights)
    inputs = create_network_batch(graph)
    inputs = inputs if len(inputs) > 1 else inputs[0]
    mine, its = (np.asarray(m(inputs, training=False)) for m in (model, reference))
    np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-5)
