"""The writer of the function that initialises a network's weights with ``torch.nn.init``."""

from __future__ import annotations

import ast
from typing import Any

from nnpipe.codegen.syntax import attribute, call, dotted, literal
from nnpipe.codegen.syntax import function as define
from nnpipe.codegen.torch_code.code_blocks import Script
from nnpipe.codegen.torch_code.network import Written
from nnpipe.codegen.torch_code.values import Untranslatable
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import variables_of
from nnpipe.layers.vocabulary import initialisers as law


def first_weights(graph: NetworkGraph, written: Written, script: Script) -> str:
    """Write the function that initialises a network's weights into a script, and return its name.

    The distributions are those of the initialisers; PyTorch draws the numbers.

    Raises
    ------
    Untranslatable
        If an initialiser cannot be translated.
    """
    body: list[ast.stmt] = []
    for title, variable in variables_of(graph).items():
        place = dotted(f"network.{written.parameters[title]}")
        body += _drawn(variable.initialiser, variable.shape, place)
    made = define("first_weights", ["network"], body, "Initialise the weights of a network.")
    made.decorator_list = [call("torch.no_grad")]
    return script.define("first_weights", made)


def _drawn(initialiser: Any, shape: tuple[int, ...], place: ast.expr) -> list[ast.stmt]:
    """Return the statements that initialise one weight of a shape in Keras's order of axes."""
    seed = getattr(initialiser, "seed", None)
    more: dict[str, ast.expr] = {}
    if seed is not None:
        more = {"generator": call(attribute(call("torch.Generator"), "manual_seed"), literal(seed))}
    if isinstance(initialiser, law.Zeros):
        return _init("zeros_", place)
    if isinstance(initialiser, law.Ones):
        return _init("ones_", place)
    if isinstance(initialiser, law.Constant) and not isinstance(initialiser.value, tuple):
        return _init("constant_", place, initialiser.value)
    if isinstance(initialiser, law.RandomUniform):
        return _init("uniform_", place, initialiser.minval, initialiser.maxval, **more)
    if isinstance(initialiser, law.RandomNormal):
        return _init("normal_", place, initialiser.mean, initialiser.stddev, **more)
    if isinstance(initialiser, law.TruncatedNormal):
        return _truncated(place, initialiser.mean, initialiser.stddev, more)
    if hasattr(initialiser, "spread"):
        distribution, width = initialiser.spread(shape)
        if distribution == "uniform":
            return _init("uniform_", place, -width, width, **more)
        if distribution == "untruncated_normal":
            return _init("normal_", place, 0.0, width, **more)
        return _truncated(place, 0.0, width, more)
    if isinstance(initialiser, law.Orthogonal):
        gain = {} if initialiser.gain == 1 else {"gain": literal(initialiser.gain)}
        return _init("orthogonal_", place, **gain, **more)
    if hasattr(initialiser, "inner"):  # the bias of an LSTM, whose forget gate starts with ones
        width = shape[-1] // 4
        part = ast.Subscript(place, ast.Slice(literal(width), literal(2 * width)), ast.Load())
        return [*_drawn(initialiser.inner, shape, place), *_init("ones_", part)]
    raise Untranslatable(f"{type(initialiser).__name__} cannot be translated")


def _truncated(place: ast.expr, mean: float, width: float, more: dict[str, ast.expr]) -> list[ast.stmt]:
    edges = {"a": literal(mean - 2 * width), "b": literal(mean + 2 * width)}
    return _init("trunc_normal_", place, mean, width, **edges, **more)


def _init(function: str, place: ast.expr, *args: float, **named: ast.expr) -> list[ast.stmt]:
    return [ast.Expr(call(f"nn.init.{function}", place, *(literal(value) for value in args), **named))]
