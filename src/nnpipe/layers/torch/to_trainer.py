"""The preparation of a graph whose outputs declare a loss for training, by nnpipe's trainer or
by Keras.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.loss_outputs import find_loss_outputs
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.graph.weights import Weights
from nnpipe.layers.torch.to_torch import to_torch
from nnpipe.layers.vocabulary.outputs import LossOutput

if TYPE_CHECKING:
    from nnpipe.training.outputs.output import Output

PENALTY = "penalty"
"""Name of the output that holds the sum of all penalties."""


def to_trainer(graph: NetworkGraph, weights: Weights | None = None, *, seed: int = 0) -> Any:
    """Return the PyTorch module of a graph for the trainer.

    Parameters
    ----------
    graph
        A network whose outputs declare a loss.
    weights, seed
        The same as for :func:`~nnpipe.layers.torch.to_torch.to_torch`.

    Returns
    -------
    torch.nn.Module
        ``forward(batch)`` takes the features named like the network's inputs,
        and returns the outputs by name, with one more, ``"penalty"``, if there
        are regularisers.  Constraints are applied to the weights before each
        batch and at the end of training.  ``network`` is the module that
        :func:`~nnpipe.layers.torch.to_torch.to_torch` returns.

    Raises
    ------
    ConfigError
        If the graph has problems, or none of its outputs declares a loss.
    """
    check_call(to_trainer, locals())
    judge = LossEvaluator.from_graph(graph)
    return _build_module(judge, to_torch(graph, weights, seed=seed))


@dataclass(frozen=True, eq=False)
class LossEvaluator:
    """Computes the losses that a network's outputs declare.

    Attributes
    ----------
    graph
        The network.
    outputs
        Its outputs that declare a loss, by name.
    penalised, constrained
        Whether there are regularisers, and whether there are constraints.
    """

    graph: NetworkGraph
    outputs: Mapping[str, LossOutput]
    penalised: bool
    constrained: bool

    @classmethod
    def from_graph(cls, graph: NetworkGraph) -> LossEvaluator:
        """Return the judge of a network.

        Raises
        ------
        ConfigError
            If no output declares a loss, or an output has the name of the penalty.
        """
        outputs, penalised = require_loss_outputs(graph), _has(graph, "regulariser")
        if PENALTY in outputs and penalised:
            raise ConfigError(
                f"{graph.name}: an output cannot be called {PENALTY!r} where there are regularisers"
            )
        return cls(graph, outputs, penalised, _has(graph, "constraint"))

    def __call__(
        self, network: Any, values: Sequence[Any], batch: Mapping[str, Any]
    ) -> dict[str, Output]:
        """Return the outputs of a batch by name, with the penalty if there is one.

        Parameters
        ----------
        network
            The module that :func:`~nnpipe.layers.torch.to_torch.to_torch` returned.
        values
            Its results: a tensor for each output of the graph.
        batch
            The features that the outputs name.
        """
        from nnpipe.training.outputs.embedding import EmbeddingOutput

        asked = [
            name
            for output in self.outputs.values()
            for name in (output.target, output.weights)
            if name
        ]
        _check_features(self.graph, asked, batch)
        places = {
            ref.layer: number for number, ref in reversed(list(enumerate(self.graph.outputs)))
        }
        found = {
            name: output.make_output(values[places[name]], batch)
            for name, output in self.outputs.items()
        }
        if self.penalised:
            penalty = network.penalty().expand(len(values[0]))
            found[PENALTY] = EmbeddingOutput(penalty.detach()[:, None], given=penalty)
        return found


def compile_arguments(graph: NetworkGraph) -> dict[str, Any]:
    """Return the losses, loss weights and metrics of a graph's outputs as arguments of
    ``keras.Model.compile``.

    Keras takes targets and sample weights in the order of the outputs.

    ::

        model = to_keras(graph)
        model.compile("adam", **compile_arguments(graph))

    Raises
    ------
    ConfigError
        If no output of the graph declares a loss.
    """
    check_call(compile_arguments, locals())
    outputs = require_loss_outputs(graph)
    # Keras requires an entry for every output, also for one without a loss.
    silent = {ref.layer: None for ref in graph.outputs}
    return {
        "loss": silent | {name: output.make_keras_loss() for name, output in outputs.items()},
        "loss_weights": {name: output.scale for name, output in outputs.items()},
        "metrics": {name: output.make_keras_metrics() for name, output in outputs.items()},
    }


def require_loss_outputs(graph: NetworkGraph) -> dict[str, LossOutput]:
    """Return the outputs of a graph that declare a loss, by name, in order.

    Raises
    ------
    ConfigError
        If there are none, or one has no effect at its place in the graph.
    """
    found = find_loss_outputs(graph)
    if not found:
        raise ConfigError(
            f"{graph.name}: no output carries a loss; end it with one, such as "
            f"OutputClassification(x, 'label')"
        )
    for path, layer, count in find_loss_layers(graph):
        if layer is not found.get(path) or count > 1:
            where = (
                "is used several times"
                if layer is found.get(path)
                else "is not an output of the network"
            )
            raise ConfigError(
                f"{graph.name}: {path} carries a loss and {where}; nothing would be learned from it"
            )
    return found


def find_loss_layers(graph: NetworkGraph, prefix: str = "") -> list[tuple[str, LossOutput, int]]:
    """Return all layers that declare a loss, in nested networks as well: path, layer, and number
    of uses.
    """
    found = []
    for entry in graph.entries:
        layer = entry.layer
        if isinstance(layer, LossOutput):
            found.append((f"{prefix}{layer.name}", layer, len(entry.uses)))
        elif isinstance(layer, Submodel):
            found += find_loss_layers(layer.graph, f"{prefix}{layer.name}/")
    return found


def _has(graph: NetworkGraph, what: str) -> bool:
    """Return whether a weight has a regulariser or constraint, or an output a regulariser."""
    weights = infer(graph).variables.values()
    if any(getattr(variable, what) is not None for own in weights for variable in own):
        return True
    return what == "regulariser" and any(
        getattr(entry.layer, "activity_regularizer", None) is not None
        or (isinstance(entry.layer, Submodel) and _has(entry.layer.graph, what))
        for entry in graph.entries
    )


def _check_features(graph: NetworkGraph, asked: Sequence[str], batch: Mapping[str, Any]) -> None:
    missing = [name for name in asked if name not in batch]
    if missing:
        raise ConfigError(f"{graph.name}: a batch has no {missing[0]!r}; it has {', '.join(batch)}")


def _build_module(judge: LossEvaluator, network: Any) -> Any:
    import torch

    graph = judge.graph
    inputs = [(ref.layer, graph.layers[ref.layer].dtype) for ref in graph.inputs]

    class Judged(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        """A network with the losses that its outputs declare."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def train(self, mode: bool = True) -> Any:
            """Set the mode as PyTorch does; when training ends, apply the constraints."""
            if judge.constrained and not mode:
                self.network.constrain()
            return super().train(mode)

        def forward(self, batch: Mapping[str, Any]) -> dict[str, Output]:
            """Return the outputs by name."""
            _check_features(graph, [name for name, _ in inputs], batch)
            if judge.constrained and self.training:
                self.network.constrain()
            values = self.network.flat(
                *(batch[name].to(getattr(torch, dtype)) for name, dtype in inputs)
            )
            return judge(self.network, values, batch)

    return Judged()
