"""A PyTorch module built from layers and outputs, so that a configuration needs no code."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.experiment.module import Module, Stateful
from nnpipe.training.outputs.embedding import ContrastiveOutput, EmbeddingOutput
from nnpipe.training.outputs.output import Output
from nnpipe.training.outputs.segmentation import SegmentationOutput


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
        Features that are further arguments of the output, by the arguments' names: ``{classes:
        class}``.
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
        self.output: Callable[..., Output] = find_output_class(output)
        self.target = target
        self.own_layers = tuple(layers)
        self.options = {
            n: tuple(v) if isinstance(v, list) else v for n, v in (options or {}).items()
        }
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
        The ``torch.nn.Module``, whose ``forward(batch)`` returns outputs by name, as the trainer
        expects.

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
        Whether the input's channels are its last axis, and become the first one after that of
        samples.
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
                raise ConfigError(
                    f"Network: the output {name!r} is a {type(head).__name__}; it must be a Head"
                )
        if not outputs:
            raise ConfigError("Network: without an output there is nothing to learn")
        self.module = _build_module(layers, outputs, input, scale, channels_last)


class Adversaries(Module):
    """A generator and a critic, for the step :class:`~nnpipe.training.step.Adversarial`.

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

        parts = {
            "generator": torch.nn.Sequential(*generator),
            "critic": torch.nn.Sequential(*critic),
        }
        self.module = torch.nn.ModuleDict(parts)


class ViewNetwork(Module):
    """A network that learns without labels which views are of one sample (Chen et al., SimCLR,
    2020).

    Attributes
    ----------
    module
        The ``torch.nn.Module``: in training, a
        :class:`~nnpipe.training.outputs.embedding.ContrastiveOutput` called ``views`` of two random
        views of each sample; otherwise its features as ``features``.

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
        self.module = _build_view_module(views, layers, head, input, target, scale, temperature)


def find_output_class(path: str) -> type[Output]:
    """Return a class of outputs by its dotted path; raise :class:`ConfigError` if there is none."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{path} cannot be found: {error}") from None
    if not isinstance(found, type) or not issubclass(found, Output):
        raise ConfigError(f"{path} is no Output")
    return found


def _build_module(
    layers: Sequence[Any],
    outputs: Mapping[str, Head],
    input: str,
    scale: float,
    channels_last: bool,
) -> Any:
    import torch

    class Whole(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(*layers)
            self.heads = torch.nn.ModuleDict(
                {n: torch.nn.Sequential(*h.own_layers) for n, h in outputs.items()}
            )

        def forward(self, batch: Mapping[str, Any]) -> dict[str, Output]:
            if input not in batch:
                raise ConfigError(f"Network: a batch has no {input!r}; it has {', '.join(batch)}")
            given = batch[input]
            given = given.movedim(-1, 1) if channels_last else given
            values = (given if given.is_floating_point() else given.float()) * scale
            try:
                values = self.layers(values)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                raise _explain_layer_error(self.layers, values, error) from error
            found = {}
            for name, head in outputs.items():
                own = self.heads[name](values)
                wanted = [
                    feature
                    for feature in (head.target, *head.features.values())
                    if feature is not None
                ]
                missing = [feature for feature in wanted if feature not in batch]
                if missing:
                    raise ConfigError(
                        f"Network: a batch has no {missing[0]!r}; it has {', '.join(batch)}"
                    )
                target = None if head.target is None else batch[head.target]
                features = {argument: batch[feature] for argument, feature in head.features.items()}
                found[name] = head.output(own, target, **features, **head.options)
            return found

    return Whole()


def _explain_layer_error(layers: Any, values: Any, error: Exception) -> Exception:
    """Return an error that names the first layer that fails for a batch; the error itself if
    none fails alone.
    """
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
            return ConfigError(
                f"Network: layers.{number}, {layer}, does not fit values of shape {shape}: {why}"
            )
    return error


def _build_view_module(
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
            self.views, self.layers, self.head = (
                torch.nn.Sequential(*part) for part in (views, layers, head)
            )

        def forward(self, batch: Mapping[str, Any]) -> dict[str, Output]:
            given = batch[input].float() * scale
            if not self.training:
                return {
                    "features": EmbeddingOutput(
                        self.layers(given), None if target is None else batch[target]
                    )
                }
            one, other = (self.head(self.layers(self.views(given))) for _ in range(2))
            return {"views": ContrastiveOutput(one, other=other, temperature=temperature)}

    return Views()


class CharacterNetwork(Module):
    """A transformer that predicts the next letter at each place of a window (Vaswani et al., 2017).

    Attributes
    ----------
    module
        The ``torch.nn.Module``, whose output ``next`` is a
        :class:`~nnpipe.training.outputs.segmentation.SegmentationOutput`: its loss is the mean over
        places.

    Parameters
    ----------
    letters
        Number of different letters.
    length
        Number of letters from which the next ones are predicted.
    width, heads, hidden, layers
        Numbers for each place, attention heads, numbers within a layer, and layers.
    dropout
        Share of numbers that are zero in training.
    input
        The feature with ``length + 1`` letters for each sample.

    Raises
    ------
    ConfigError
        If a size is below 1, the dropout is no share, or the width is no multiple of the heads.
    """

    def __init__(
        self,
        letters: int,
        length: int = 32,
        *,
        width: int = 32,
        heads: int = 4,
        hidden: int = 64,
        layers: int = 1,
        dropout: float = 0.1,
        input: str = "text",
    ) -> None:
        check_call(CharacterNetwork, locals())
        sizes = {
            "letters": letters,
            "length": length,
            "width": width,
            "heads": heads,
            "hidden": hidden,
            "layers": layers,
        }
        for name, size in sizes.items():
            if size < 1:
                raise ConfigError(f"LetterNetwork: {name} is {size}; the least is 1")
        if not 0 <= dropout < 1:
            raise ConfigError(
                f"LetterNetwork: dropout is {dropout}; it must be at least 0 and below 1"
            )
        if width % heads:
            raise ConfigError(
                f"LetterNetwork: the width {width} is no multiple of the {heads} heads"
            )
        self.module = _build_character_module(
            letters, length, width, heads, hidden, layers, dropout, input
        )


def _build_character_module(
    letters: int,
    length: int,
    width: int,
    heads: int,
    hidden: int,
    layers: int,
    dropout: float,
    input: str,
) -> Any:
    import torch

    class Predicting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.letters = torch.nn.Embedding(letters, width)
            self.places = torch.nn.Embedding(length, width)
            self.layers = torch.nn.ModuleList(
                torch.nn.TransformerEncoderLayer(
                    width, heads, hidden, dropout=dropout, batch_first=True
                )
                for _ in range(layers)
            )
            self.head = torch.nn.Linear(width, letters)

        def forward(self, batch: Mapping[str, Any]) -> dict[str, Output]:
            if input not in batch:
                raise ConfigError(
                    f"LetterNetwork: a batch has no {input!r}; it has {', '.join(batch)}"
                )
            text = batch[input]
            if text.shape[1:] != (length + 1,):
                raise ConfigError(
                    f"LetterNetwork: {input!r} is {tuple(text.shape)}, not (n, {length + 1})"
                )
            mask = torch.nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
            values = self.letters(text[:, :-1]) + self.places(
                torch.arange(length, device=text.device)
            )
            for layer in self.layers:
                values = layer(values, src_mask=mask, is_causal=True)
            return {"next": SegmentationOutput(self.head(values).transpose(1, 2), text[:, 1:])}

    return Predicting()


class RoundedNetwork(Module):
    """The layers of a network with 8-bit rounding behind weights and activations (Jacob et al.,
    2018).

    The ranges of the numbers are learned, too.  Layers of heads stay as they are.  It has the
    weights of the network, so that what is loaded there before the training is where it starts.

    Parameters
    ----------
    network
        The network.
    shape
        The shape of the first layer's input without the axis of samples.
    """

    def __init__(self, network: Network, shape: Sequence[int]) -> None:
        check_call(RoundedNetwork, locals())
        self.network = network
        self.shape = tuple(shape)

    def children(self) -> Iterator[tuple[str, Stateful]]:
        """Yield the module alone: the network's weights are its weights."""
        yield "module", self.module

    @cached_property
    def module(self) -> Any:
        """The ``torch.nn.Module``, which returns what that of the network returns."""
        from torch import nn

        whole = self.network.module
        found = copy.copy(whole)
        found._modules = {
            **whole._modules,
            "layers": self._prepare_qat(nn.Sequential(*whole.layers)),
        }
        return found

    def to_integers(self) -> Any:
        """Return the module as it is used after the training: with weights in integers.

        Raises
        ------
        MissingDependency
            If torchao is not installed.
        """
        from torchao.quantization.pt2e import allow_exported_model_train_eval
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

        found = copy.copy(self.module)
        made = convert_pt2e(copy.deepcopy(self.module.layers))
        found._modules = {**found._modules, "layers": allow_exported_model_train_eval(made)}
        return found

    def _prepare_qat(self, layers: Any) -> Any:
        import torch

        try:
            from torchao.quantization.pt2e import allow_exported_model_train_eval
            from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
            from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
        except ImportError:
            raise MissingDependency(
                "RoundedNetwork needs torchao, which is not installed: pip install 'torchao'"
            ) from None
        example, batch = torch.zeros(2, *self.shape), torch.export.Dim("batch", min=2)
        program = torch.export.export(
            layers.eval(), (example,), dynamic_shapes=({0: batch},)
        ).module()
        config = x86.get_default_x86_inductor_quantization_config(is_qat=True)
        made = prepare_qat_pt2e(program, x86.X86InductorQuantizer().set_global(config))
        return _preserve_rng_on_train(allow_exported_model_train_eval(made))


def _preserve_rng_on_train(module: Any) -> Any:
    """Make a module change between training and evaluation without drawing random numbers.

    torchao looks for operations to exchange by examples that it draws each time.  A training that
    goes on within an epoch changes once more than one that was never interrupted: its later random
    numbers would be others.
    """
    from torch.random import fork_rng

    train = module.train

    def set_mode(mode: bool = True) -> Any:
        with fork_rng(devices=[]):
            return train(mode)

    module.train, module.eval = set_mode, lambda: set_mode(False)
    return module
