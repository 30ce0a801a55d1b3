"""A PyTorch module built from layers and outputs, so that a configuration needs no code."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.module import Module
from nnpipe.training.outputs.contrastive import ContrastiveOutput
from nnpipe.training.outputs.embedding import EmbeddingOutput
from nnpipe.training.outputs.output import Output


class Head(Module):
    """An output of a network, and the feature that holds its target.

    Parameters
    ----------
    output
        The dotted path of an :class:`~nnpipe.training.outputs.output.Output`.
    target
        The feature that holds the target; None for an output without one.
    layers
        Layers of this output only, after the common ones.
    options
        Further arguments of the output, such as ``label_smoothing`` or ``scale``.
    weights
        The feature that holds the weight of each sample.
    features
        Features that are further arguments of the output, by the arguments' names: ``{classes: class}``.
    """

    def __init__(
        self,
        output: str = "nnpipe.training.outputs.classification.ClassificationOutput",
        target: str | None = None,
        *,
        layers: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
        weights: str | None = None,
        features: Mapping[str, str] | None = None,
    ) -> None:
        self.output: Callable[..., Output] = output_class(output)
        self.target = target
        self.own_layers = tuple(layers)
        self.options = {n: tuple(v) if isinstance(v, list) else v for n, v in (options or {}).items()}
        self.features = {**(features or {}), **({} if weights is None else {"weights": weights})}

    def children(self) -> Any:
        """Return none: the layers belong to the network's module."""
        return iter(())


class Network(Module):
    """A chain of layers, with one or more outputs after the last one.

    In a configuration::

        network:
          class: nnpipe.training.network.Network
          arguments:
            input: image
            layers:
              - {class: torch.nn.Flatten}
              - {class: torch.nn.Linear, arguments: {in_features: 64, out_features: 10}}
            outputs:
              digit: {class: nnpipe.training.network.Head, arguments: {target: label}}

    Attributes
    ----------
    module
        The ``torch.nn.Module``, whose ``forward(batch)`` returns outputs by name, as the trainer expects.

    Parameters
    ----------
    layers
        Modules that take one tensor and return one.
    outputs
        The outputs by name.
    input
        The feature that is the first layer's input.
    scale
        The factor of the input, such as 1/255 for pixels; integers are converted to floating point.
    channels_last
        Whether the input's channels are its last axis, and become the first one after that of samples.
    """

    def __init__(
        self,
        layers: Sequence[Any],
        outputs: Mapping[str, Head],
        *,
        input: str = "input",
        scale: float = 1.0,
        channels_last: bool = False,
    ) -> None:
        for name, head in outputs.items():
            if not isinstance(head, Head):
                raise ConfigError(f"Network: the output {name!r} is a {type(head).__name__}; it must be a Head")
        if not outputs:
            raise ConfigError("Network: without an output there is nothing to learn")
        self.module = _module(layers, outputs, input, scale, channels_last)


class Adversaries(Module):
    """A generator and a critic, for the step :class:`~nnpipe.training.step_modules.Adversarial`.

    Attributes
    ----------
    module
        The ``torch.nn.Module`` with the parts ``generator`` and ``critic``.

    Parameters
    ----------
    generator
        Layers that take noise ``(n, noise)`` and return flat samples.
    critic
        Layers that take flat samples and return a logit ``(n, 1)``.
    """

    def __init__(self, generator: Sequence[Any], critic: Sequence[Any]) -> None:
        import torch

        parts = {"generator": torch.nn.Sequential(*generator), "critic": torch.nn.Sequential(*critic)}
        self.module = torch.nn.ModuleDict(parts)


class ViewNetwork(Module):
    """A network that learns without labels which views are of one sample (Chen et al., SimCLR, 2020).

    Attributes
    ----------
    module
        The ``torch.nn.Module``: in training, a
        :class:`~nnpipe.training.outputs.contrastive.ContrastiveOutput` called ``views`` of two random views of each
        sample; otherwise its features as ``features``.

    Parameters
    ----------
    views
        Layers that change a sample at random, such as ``torch.nn.Dropout``.
    layers
        Layers that take a view and return features ``(n, features)``.
    head
        Layers after the features, in training only.
    input
        The feature that is the first layer's input.
    target
        The feature of classes, by which metrics judge embeddings; None without.
    scale
        The factor of the input.
    temperature
        What cosines are divided by.
    """

    def __init__(
        self,
        views: Sequence[Any],
        layers: Sequence[Any],
        head: Sequence[Any],
        *,
        input: str = "input",
        target: str | None = None,
        scale: float = 1.0,
        temperature: float = 0.2,
    ) -> None:
        self.module = _view_module(views, layers, head, input, target, scale, temperature)


def output_class(path: str) -> type[Output]:
    """Return a class of outputs by its dotted path; raise :class:`ConfigError` if there is none."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{path} cannot be found: {error}") from None
    if not isinstance(found, type) or not issubclass(found, Output):
        raise ConfigError(f"{path} is no Output")
    return found


def _module(layers: Sequence[Any], outputs: Mapping[str, Head], input: str, scale: float, channels_last: bool) -> Any:
    import torch

    class Whole(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(*layers)
            self.heads = torch.nn.ModuleDict({n: torch.nn.Sequential(*h.own_layers) for n, h in outputs.items()})

        def forward(self, batch: Mapping[str, Any]) -> dict[str, Output]:
            if input not in batch:
                raise ConfigError(f"Network: a batch has no {input!r}; it has {', '.join(batch)}")
            given = batch[input]
            given = given.movedim(-1, 1) if channels_last else given
            values = (given if given.is_floating_point() else given.float()) * scale
            try:
                values = self.layers(values)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                raise _layer_error(self.layers, values, error) from error
            found = {}
            for name, head in outputs.items():
                own = self.heads[name](values)
                wanted = [feature for feature in (head.target, *head.features.values()) if feature is not None]
                missing = [feature for feature in wanted if feature not in batch]
                if missing:
                    raise ConfigError(f"Network: a batch has no {missing[0]!r}; it has {', '.join(batch)}")
                target = None if head.target is None else batch[head.target]
                features = {argument: batch[feature] for argument, feature in head.features.items()}
                found[name] = head.output(own, target, **features, **head.options)
            return found

    return Whole()


def _layer_error(layers: Any, values: Any, error: Exception) -> Exception:
    """Return an error that names the first layer that fails for a batch; the error itself if none fails alone."""
    import torch

    if type(error).__name__ == "OutOfMemoryError":
        return error
    for number, layer in enumerate(layers):
        shape = tuple(values.shape)
        try:
            with torch.no_grad():
                values = layer(values)
        except Exception as cause:
            why = str(cause).strip().partition("\n")[0]
            return ConfigError(f"Network: layers.{number}, {layer}, does not fit values of shape {shape}: {why}")
    return error


def _view_module(
    views: Sequence[Any],
    layers: Sequence[Any],
    head: Sequence[Any],
    input: str,
    target: str | None,
    scale: float,
    temperature: float,
) -> Any:
    import torch

    class Views(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.views, self.layers, self.head = (torch.nn.Sequential(*part) for part in (views, layers, head))

        def forward(self, batch: Mapping[str, Any]) -> dict[str, Output]:
            given = batch[input].float() * scale
            if not self.training:
                return {"features": EmbeddingOutput(self.layers(given), None if target is None else batch[target])}
            one, other = (self.head(self.layers(self.views(given))) for _ in range(2))
            return {"views": ContrastiveOutput(one, other=other, temperature=temperature)}

    return Views()
