"""Tasks that build networks: from the description, or from another network."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.codegen.description import ScriptGenerator
from nnpipe.codegen.script import Writer
from nnpipe.codegen.script_task import ScriptProblem, ScriptTask, gives, takes
from nnpipe.codegen.syntax import assign, call, fill_template, literal
from nnpipe.codegen.weights import locate_keras_weights
from nnpipe.core.arguments import argument
from nnpipe.core.errors import NNPipeError
from nnpipe.core.messages import format_value, suggest_name
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.graph.weights import Weights, initial_weights


class LoadModel(ScriptTask):
    """Build a network of the description, and load its weights if there are any."""

    task = "load_model"
    network: str = argument(help="the network's name in the description")
    weights: str | None = argument(
        None, help="a Keras file with its weights, which are written beside the script"
    )
    model: str = gives("network", "the network")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem if the network does not exist, and problems with the file of weights."""
        yield from check_network(self.name, self.network, script)
        graph = script.networks.get(self.network) if isinstance(self.network, str) else None
        if graph is not None and isinstance(self.weights, str) and not graph.problems():
            yield from (
                ScriptProblem("file", f"{self.name}.weights", message)
                for message in _read(self.weights, graph)[1]
            )

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that build the network and set its weights."""
        graph = writer.generator.networks[self.network]
        made = writer.network(graph, self.network)
        model = writer.get_variable(self.model)
        found: list[ast.stmt] = [assign(model, call(made.title))]
        weights = writer.generator.stored.get(self.network)
        if self.weights is not None:
            weights = _read(self.weights, graph)[0]
        if weights:
            found += load_stored(writer, graph, self.network, weights, model, self)
        elif writer.framework == "pytorch":
            found += build_initialisation(writer, graph, self.network, model, self)
        if writer.framework == "pytorch":
            found += fill_template(
                "NETWORK = NETWORK.to(DEVICE)", NETWORK=model, DEVICE=add_device_option(writer)
            )
        return found


class ApplyDelta(ScriptTask):
    """Build a changed network; layers that both networks have, by name and shape, keep their
    weights.
    """

    task = "apply_delta"
    model: str = takes("network", help="the network before the change")
    network: str = argument(help="name of the changed network in the description")
    changed: str = gives("network", "the changed network")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem for each network that is not known, and for frozen layers that would
        lose their weights.
        """
        yield from check_network(self.name, self.network, script)
        if find_network_name(script, self.model) is None:
            message = (
                "which network this is is not known before the script runs; use the result of "
                "load_model"
            )
            yield ScriptProblem("network", f"{self.name}.model", f"{self.model}: {message}")
        known = isinstance(self.network, str)  # another type is reported as a fault of the field
        before, after = (
            find_network(script, self.model),
            script.networks.get(self.network) if known else None,
        )
        if (
            before is not None
            and after is not None
            and not (infer(before).problems or infer(after).problems)
        ):
            from nnpipe.layers.graph.transfer import find_frozen_problems

            for found in find_frozen_problems(before, after, find_kept_weights(before, after)):
                yield ScriptProblem(
                    "network", f"{self.name}.network", f"{found.path}: {found.message}"
                )

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that build the changed network and copy the weights that stay."""
        graphs = writer.generator.networks
        title = find_network_name(writer.generator, self.model)
        assert title is not None  # problems() reports an unknown network
        before, after = graphs[title], graphs[self.network]
        was, made = writer.network(before, title), writer.network(after, self.network)
        model, changed = writer.get_variable(self.model), writer.get_variable(self.changed)
        stay = find_kept_weights(before, after)
        found: list[ast.stmt] = [assign(changed, call(made.title))]
        if writer.framework == "keras":
            old, new = locate_keras_weights(before), locate_keras_weights(after)
            moves = [(new[name][0], old[name][1], new[name][1]) for name in stay]
            found.append(
                ast.Expr(
                    call(writer.require_helper("copy_weights"), model, changed, literal(moves))
                )
            )
            return found
        found += build_initialisation(writer, after, self.network, changed, self)
        pairs = [(was.parameters[name], made.parameters[name]) for name in stay]
        found.append(
            ast.Expr(call(writer.require_helper("copy_weights"), model, changed, literal(pairs)))
        )
        return found + fill_template(
            "NETWORK = NETWORK.to(DEVICE)", NETWORK=changed, DEVICE=add_device_option(writer)
        )


def find_network_name(script: ScriptGenerator, variable: str) -> str | None:
    """Return the name of the network in a variable; ``None`` if it is not known before the
    script runs.
    """
    for _ in script.tasks:  # no path has more steps than there are tasks; this also ends in a cycle
        maker = next(
            (task for task in script.tasks if variable in [v for _, v in task.variables("gives")]),
            None,
        )
        if maker is None:
            return None
        if isinstance(maker, (LoadModel, ApplyDelta)):
            return maker.network if isinstance(maker.network, str) else None
        taken = [v for row, v in maker.variables("takes") if row.kind[0] in ("network", "compiled")]
        if not taken:
            return None
        variable = taken[0]
    return None


def find_network(script: ScriptGenerator, variable: str) -> NetworkGraph | None:
    """Return the network in a variable; ``None`` if it is not known before the script runs."""
    return script.networks.get(find_network_name(script, variable) or "")


def find_kept_weights(before: NetworkGraph, after: NetworkGraph) -> list[str]:
    """Return the names of the weights that stay: their layers have the same name and class, and
    they the same shape.
    """
    from nnpipe.layers.graph.transfer import transfer
    from nnpipe.layers.graph.weights import list_variables

    nothing = {
        name: np.zeros(variable.shape, np.float32)
        for name, variable in list_variables(before).items()
    }
    return list(transfer(before, nothing, after).stayed)


def build_initialisation(
    writer: Writer, graph: NetworkGraph, network: str, model: ast.expr, task: ScriptTask
) -> list[ast.stmt]:
    """Return the statements that initialise a network's weights.

    If an initialiser cannot be translated, the weights are drawn now and loaded from a file beside
    the script.
    """
    from nnpipe.codegen.torch_code.network import write_weight_initialisation
    from nnpipe.codegen.torch_code.values import Untranslatable

    try:
        function = write_weight_initialisation(graph, writer.network(graph, network), writer.script)
    except Untranslatable:
        return load_stored(
            writer, graph, network, initial_weights(graph, writer.generator.seed), model, task
        )
    return [ast.Expr(call(function, model))]


def add_device_option(writer: Writer) -> ast.expr:
    """Return the expression of the option that names PyTorch's device, and add the option if it
    is missing.
    """
    if "device" not in writer.arguments:
        writer.add_option(None, "device", "cpu", "device to compute on, such as cpu or cuda")
    return ast.Attribute(ast.Name("args", ast.Load()), "device", ast.Load())


def load_stored(
    writer: Writer,
    graph: NetworkGraph,
    network: str,
    weights: Weights,
    model: ast.expr,
    task: ScriptTask,
) -> list[ast.stmt]:
    """Return the statements that load stored weights into a network, and add the file of
    weights.
    """
    place = writer.add_weights_file(graph, network, weights)
    path = writer.add_option(task, "weights", place, "initial weights of the network", path=True)
    if writer.framework == "pytorch":
        return [ast.Expr(call(writer.require_helper("load_weights"), model, path))]
    read = call(writer.require_helper("read_weights"), path)
    return [ast.Expr(call(writer.require_helper("set_layer_weights"), model, read, literal("")))]


def check_network(task: str, title: Any, script: ScriptGenerator) -> Iterable[ScriptProblem]:
    """Yield a problem if the description has no network of this name."""
    if isinstance(title, str) and title not in script.networks:
        message = f"there is no network {format_value(title)}{suggest_name(title, script.networks)}"
        yield ScriptProblem("network", f"{task}.network", message)


def _read(path: str, graph: NetworkGraph) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the weights for a network in a Keras file, and the problems with the file."""
    from nnpipe.layers.keras.read_file import read_keras

    try:
        found = read_keras(Path(path), graph)
    except NNPipeError as error:
        return {}, [str(error)]
    return dict(found.weights), [f"{path}: {problem}" for problem in found.problems]
