"""The writer of a PyTorch class for a network."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.codegen.layer_imports import build_torch_layer_call, is_foreign
from nnpipe.codegen.syntax import (
    assign,
    attribute,
    build_class,
    build_dotted_name,
    call,
    fill_template,
    literal,
)
from nnpipe.codegen.syntax import build_function as define
from nnpipe.codegen.torch_code.code_blocks import (
    CodeBlock,
    Names,
    NoSource,
    Scope,
    Script,
    remove_intermediate_names,
)
from nnpipe.codegen.torch_code.expression_evaluation import apply_function
from nnpipe.codegen.torch_code.function_evaluation import inline_call
from nnpipe.codegen.torch_code.layer_class import (
    Change,
    add_activity_penalty,
    build_change_statements,
    build_core_call,
    build_penalty_methods,
    create_empty_closure,
    write_inner_class,
    write_layer_class,
)
from nnpipe.codegen.torch_code.values import Expression, ModuleValue, Untranslatable, lift
from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import LayerEntry, Ref, infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.graph.weights import list_variables
from nnpipe.layers.problems import raise_if
from nnpipe.layers.torch.network_module import build_layer_module
from nnpipe.layers.torch.to_torch import find_backend_problems
from nnpipe.layers.vocabulary import initialisers as law
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer, Shape
from nnpipe.layers.vocabulary.normalisation import BatchNorm
from nnpipe.layers.vocabulary.regularisers import Regulariser

SELF = ast.Name("self", ast.Load())


@dataclass
class NetworkClass:
    """A network that has been written into a script.

    Attributes
    ----------
    title
        The name of the network's class.
    parameters
        The key of each weight in the ``state_dict`` of the class, by the weight's full name.
    """

    title: str
    parameters: dict[str, str] = field(default_factory=dict)


def write_network_class(
    graph: NetworkGraph, script: Script, wanted: str = "Network"
) -> NetworkClass:
    """Write the class of a network into a script, and return its name and the places of its
    weights.

    Raises
    ------
    ConfigError
        If the graph has problems, or a layer cannot be translated.
    MissingDependency
        If PyTorch is not installed.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            f"PyTorch is needed here: pip install 'nnpipe[torch]' ({error})"
        ) from None
    found = infer(graph)
    raise_if(found.problems, graph.name)
    raise_if(find_backend_problems(graph, "torch"), graph.name)
    try:
        return _NetworkWriter(graph, script, wanted, whole=True).write()
    except (Untranslatable, NoSource) as error:
        raise ConfigError(f"{graph.name}: cannot be written as PyTorch code: {error}") from None


def build_state_dict(
    written: NetworkClass, graph: NetworkGraph, weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return a network's weights as the ``state_dict`` of its class, with PyTorch's order of
    axes and shapes.
    """

    state = {}
    for name, variable in list_variables(graph).items():
        value = np.asarray(weights[name], dtype=np.float32)
        value = value if variable.axes is None else value.transpose(variable.axes)
        shape = variable.torch_shape
        state[written.parameters[name]] = np.ascontiguousarray(
            value if shape is None else value.reshape(shape)
        )
    return state


class _NetworkWriter:
    def __init__(
        self, graph: NetworkGraph, script: Script, wanted: str, whole: bool = False
    ) -> None:
        from torch import nn

        self.graph, self.script, self.wanted = graph, script, wanted
        self.attributes = Names({*dir(nn.Module()), "activity", "penalty", "constrain", "self"})
        self.parts: dict[str, str] = {}
        self.made: list[ast.stmt] = []
        self.forward = CodeBlock(Names({"self", "nn", "F", "torch"}))
        self.written = NetworkClass("")
        self.still: list[str] = []
        self.telling: set[str] = set()
        self.regularised = False
        self.used = find_used_outputs(graph)
        self.own: dict[str, bool] = {}
        self.modules: dict[str, Any] = {}
        self.whole = whole
        self.more: list[ast.stmt] = []

    def write(self) -> NetworkClass:
        found = infer(self.graph)
        values: dict[Ref, Expression] = {}
        inputs = []
        for ref in self.graph.inputs:
            inputs.append(self.forward.names.fresh(ref.layer))
            values[ref] = Expression(ast.Name(inputs[-1], ast.Load()), found.shapes[ref])
        for entry, number in self.graph.steps():
            if not isinstance(entry.layer, Input):
                given = [values[ref] for ref in entry.uses[number].inputs]
                shapes = tuple(found.shapes[ref] for ref in entry.uses[number].inputs)
                for index, value in enumerate(self._write_layer_use(entry, number, given, shapes)):
                    ref = Ref(entry.layer.name, number, index)
                    values[ref] = Expression(value, found.shapes[ref])
        outputs = [values[ref].node for ref in self.graph.outputs]
        self.forward.statements.append(
            ast.Return(outputs[0] if len(outputs) == 1 else ast.Tuple(outputs, ast.Load()))
        )
        last = self.forward.statements[-2] if len(self.forward.statements) > 1 else None
        if isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name):
            self.telling.discard(last.targets[0].id)
        if self.whole:
            self.more = build_penalty_methods(
                self.graph, self.written.parameters, self.script, _is_watched(self.graph)
            )
        self.written.title = self.script.define(self.wanted, self._build_class(inputs))
        return self.written

    # -- one layer -------------------------------------------------------------------------------

    def _write_layer_use(
        self, entry: LayerEntry, number: int, given: list[Expression], shapes: tuple[Shape, ...]
    ) -> list[ast.expr]:
        layer, name = entry.layer, entry.layer.name
        if number == 0 or name not in self.modules:
            self._declare_layer(entry, given, shapes)
        training = entry.uses[number].training
        if training is not None:
            mine = attribute(SELF, self.parts[name])
            value: Any = Expression(
                call("run_in_mode", mine, literal(training), *(g.node for g in given))
            )
        elif self.own[name]:
            value = Expression(call(attribute(SELF, self.parts[name]), *(g.node for g in given)))
        else:
            value = self._inline_layer(self.modules[name], given)
        used = [
            Ref(name, number, index) in self.used for index in range(len(layer.shapes(*shapes)))
        ]
        found = self._bind_outputs(value, layer, used)
        self.regularised |= add_activity_penalty(layer, found, self.script, self.forward)
        return found

    def _declare_layer(
        self, entry: LayerEntry, given: list[Expression], shapes: tuple[Shape, ...]
    ) -> None:
        layer = entry.layer
        name = layer.name
        if isinstance(layer, Submodel):
            inner = _NetworkWriter(
                layer.with_input_shapes(shapes), self.script, to_class_name(name)
            ).write()
            self._put(name, call(inner.title))
            self.own[name], self.modules[name] = True, None
            for weight, place in inner.parameters.items():
                self.written.parameters[f"{name}/{weight}"] = f"{self.parts[name]}.{place}"
        else:
            self._declare_plain_layer(entry, given, shapes)
            prefix = f"{self.parts[name]}.core." if self.own[name] else f"{self.parts.get(name)}."
            for variable in layer.variables(*shapes):
                self.written.parameters[f"{name}/{variable.name}"] = prefix + variable.torch_name
        if not layer.trainable and name in self.parts:
            mine = attribute(SELF, self.parts[name])
            if isinstance(layer, Submodel) or layer.variables(*shapes):
                self.made.append(ast.Expr(call(attribute(mine, "requires_grad_"), literal(False))))
            # frozen layers must not update their statistics either
            if isinstance(layer, (BatchNorm, Submodel)):
                self.still.append(self.parts[name])

    def _declare_plain_layer(
        self, entry: LayerEntry, given: list[Expression], shapes: tuple[Shape, ...]
    ) -> None:
        layer, script = entry.layer, self.script.save_state()
        module = self.modules[layer.name] = build_layer_module(layer, shapes)
        self.own[layer.name] = any(use.training is not None for use in entry.uses)
        self.own[layer.name] |= not self._can_inline(module, given)
        try:
            made: ast.expr | None = None
            changes: list[Change] = []
            if self.own[layer.name]:
                made = call(write_layer_class(module, self.script, shapes))
            elif module.core is not None:
                made, changes = build_core_call(module.core, self.script, write_inner_class)
        except (Untranslatable, NoSource):
            if not is_foreign(layer):
                raise
            self.script.restore_state(script)
            self.own[layer.name] = True
            made, changes = build_torch_layer_call(layer, shapes, self.script), []
        if made is not None:
            self._put(layer.name, made)
            self.made += build_change_statements(attribute(SELF, self.parts[layer.name]), changes)

    def _put(self, name: str, made: ast.expr) -> None:
        self.parts[name] = self.attributes.fresh(name)
        self.made.append(assign(attribute(SELF, self.parts[name]), made))

    def _can_inline(self, module: Any, given: list[Expression]) -> bool:
        """Return whether a layer can be inlined in the network's ``forward``; the attempt leaves
        no trace.
        """
        forward, script, parts = (
            self.forward.save_state(),
            self.script.save_state(),
            dict(self.parts),
        )
        self.parts[module.layer.name] = "part"
        try:
            self._inline_layer(module, given)
            return True
        except (Untranslatable, NoSource):
            return False
        finally:
            self.forward.restore_state(forward)
            self.script.restore_state(script)
            self.parts = parts

    def _inline_layer(self, module: Any, given: list[Expression]) -> Any:
        core = attribute(SELF, self.parts[module.layer.name]) if module.core is not None else None
        standing = ModuleValue(SELF, live=module, core=core)
        return apply_function(
            module.call,
            [standing, *given],
            {},
            Scope({}, create_empty_closure(), self.script, self.forward, inline_call),
        )

    def _bind_outputs(self, value: Any, layer: Layer, used: list[bool]) -> list[ast.expr]:
        """Assign the outputs of a layer to names, and return the names; those of unused outputs
        start with ``_``.
        """
        wanted = [layer.name if needed else f"_{layer.name}" for needed in used]
        if len(used) == 1:
            node = lift(value[0] if isinstance(value, tuple) else value)
            if isinstance(node, ast.Name):
                return [node]
            title = self.forward.names.fresh(wanted[0])
            self.telling.add(title)
            self.forward.statements.append(assign(title, node))
            return [ast.Name(title, ast.Load())]
        names = [self.forward.names.fresh(title) for title in wanted]
        target = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
        self.forward.statements.append(ast.Assign([target], lift(value)))
        return [ast.Name(n, ast.Load()) for n in names]

    # -- the class -------------------------------------------------------------------------------

    def _build_class(self, inputs: list[str]) -> ast.ClassDef:
        start = fill_template("super().__init__()")
        start += fill_template("self.activity = {}") if self.regularised else []
        start += self.made
        body: list[ast.stmt] = [define("__init__", ["self"], start)] if len(start) > 1 else []
        if self.still:
            rest = [ast.Expr(call(attribute(attribute(SELF, part), "eval"))) for part in self.still]
            mode = define(
                "train",
                ["self", "mode"],
                [*fill_template("super().train(mode)"), *rest, *fill_template("return self")],
            )
            mode.args.defaults = [ast.Constant(True)]
            mode.body[:0] = [
                ast.Expr(
                    ast.Constant("Set the mode, but keep frozen layers in the mode of inference.")
                )
            ]
            body.append(mode)
        body += self.more
        body.append(
            define(
                "forward",
                ["self", *inputs],
                remove_intermediate_names(self.forward.statements, self.telling),
            )
        )
        return build_class(self.wanted, build_dotted_name("nn.Module"), body)


def find_used_outputs(graph: NetworkGraph) -> set[Ref]:
    """Return the outputs that other layers use or that are outputs of the network."""
    taken = {ref for entry in graph.entries for use in entry.uses for ref in use.inputs}
    return taken | set(graph.outputs)


def _is_watched(graph: NetworkGraph) -> bool:
    """Return whether a layer, including nested ones, has a regulariser of its outputs."""
    found = False
    waiting: list[Layer] = list(graph.layers.values())
    while waiting:
        layer = waiting.pop()
        found |= isinstance(getattr(layer, "activity_regularizer", None), Regulariser)
        inner = [getattr(layer, name, None) for name in ("layer", "backward_layer")]
        waiting += [item for item in inner if isinstance(item, Layer)]
        waiting += list(layer.graph.layers.values()) if isinstance(layer, Submodel) else []
    return found


def to_class_name(text: str) -> str:
    """Return a name in the form of a class name, such as ``SmallNet`` for ``small_net``."""
    return (
        "".join(part[:1].upper() + part[1:] for part in re.split(r"\W|_", text) if part)
        or "Network"
    )


def write_weight_initialisation(graph: NetworkGraph, written: NetworkClass, script: Script) -> str:
    """Write the function that initialises a network's weights into a script, and return its name.

    The distributions are those of the initialisers; PyTorch draws the numbers.

    Raises
    ------
    Untranslatable
        If an initialiser cannot be translated.
    """
    body: list[ast.stmt] = []
    for title, variable in list_variables(graph).items():
        place = build_dotted_name(f"network.{written.parameters[title]}")
        body += _build_initialisation(variable.initialiser, variable.shape, place)
    made = define("first_weights", ["network"], body, "Initialise the weights of a network.")
    made.decorator_list = [call("torch.no_grad")]
    return script.define("first_weights", made)


def _build_initialisation(
    initialiser: Any, shape: tuple[int, ...], place: ast.expr
) -> list[ast.stmt]:
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
        return _build_truncated_normal(place, initialiser.mean, initialiser.stddev, more)
    if hasattr(initialiser, "spread"):
        distribution, width = initialiser.spread(shape)
        if distribution == "uniform":
            return _init("uniform_", place, -width, width, **more)
        if distribution == "untruncated_normal":
            return _init("normal_", place, 0.0, width, **more)
        return _build_truncated_normal(place, 0.0, width, more)
    if isinstance(initialiser, law.Orthogonal):
        gain = {} if initialiser.gain == 1 else {"gain": literal(initialiser.gain)}
        return _init("orthogonal_", place, **gain, **more)
    if hasattr(initialiser, "inner"):  # the bias of an LSTM, whose forget gate starts with ones
        width = shape[-1] // 4
        part = ast.Subscript(place, ast.Slice(literal(width), literal(2 * width)), ast.Load())
        return [*_build_initialisation(initialiser.inner, shape, place), *_init("ones_", part)]
    raise Untranslatable(f"{type(initialiser).__name__} cannot be translated")


def _build_truncated_normal(
    place: ast.expr, mean: float, width: float, more: dict[str, ast.expr]
) -> list[ast.stmt]:
    edges = {"a": literal(mean - 2 * width), "b": literal(mean + 2 * width)}
    return _init("trunc_normal_", place, mean, width, **edges, **more)


def _init(function: str, place: ast.expr, *args: float, **named: ast.expr) -> list[ast.stmt]:
    return [
        ast.Expr(call(f"nn.init.{function}", place, *(literal(value) for value in args), **named))
    ]
