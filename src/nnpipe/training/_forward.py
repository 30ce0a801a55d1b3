"""From a batch to outputs and the loss: as the model is, compiled, or distributed over
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fnmatch import fnmatchcase
from functools import partial
from types import MethodType
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.training.averages import find_batch_normalisations
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.output import Output

Forward = Callable[[dict[str, Any]], tuple[Any, dict[str, Output]]]


def normalize_outputs(found: Any, batch: dict[str, Any], source: Any) -> dict[str, Output]:
    """Check what a model or a step returned, name a single output ``"output"``, and set the
    sample ids of each.
    """
    if isinstance(found, Output):
        if found.sample_id is None:
            found.sample_id = batch.get("sample_id")
        return {"output": found}
    if type(found) is not dict or not found:
        raise ConfigError(
            f"{_describe_source(source)} gave {type(found).__name__}; it must give outputs by "
            f"name, "
            'such as {"label": ClassificationOutput(logits, batch["label"])}'
        )
    for name, output in found.items():
        if not isinstance(output, Output):
            raise ConfigError(
                f"{_describe_source(source)}: {name!r} is a {type(output).__name__}, no Output"
            )
        if output.sample_id is None:
            output.sample_id = batch.get("sample_id")
    return found


def _describe_source(source: Any) -> str:
    """Name a model's ``forward``, or a step."""
    if hasattr(source, "forward"):
        return f"{type(source).__name__}.forward(batch)"
    return f"the step {getattr(source, '__qualname__', type(source).__name__)}"


def run_forward(model: Any, batch: dict[str, Any]) -> tuple[Any, dict[str, Output]]:
    """Run the model; return the sum of the outputs' losses, and the outputs."""
    try:
        found = model(batch)
    except (TypeError, AttributeError) as error:
        if "dict" not in str(error):
            raise
        raise ConfigError(
            f"{type(model).__name__}.forward takes no batch: {error}; a model that is trained "
            f"takes a dictionary of "
            "tensors, and returns outputs with their loss, such as "
            '{"label": ClassificationOutput(self.layers(batch["x"]), batch["label"])}'
        ) from error
    outputs = normalize_outputs(found, batch, model)
    total: Any = None
    for output in outputs.values():
        loss = output.loss()
        total = loss if total is None else total + loss
    return total, outputs


def build_training_forward(model: Any, options: TrainerOptions, distributed: bool) -> Forward:
    """Return the function that runs the model on a training batch.

    ``distributed`` says whether gradients are exchanged while they are computed.
    """
    if not (distributed or options.compile):
        return partial(run_forward, model)
    import torch

    whole: Any = _wrap_with_loss(model, _Outputs if distributed else dict)
    if distributed:
        # A batch of one data set may leave the layers of another's task unused, and some layers may
        # never be used.
        whole = torch.nn.parallel.DistributedDataParallel(whole, find_unused_parameters=True)
    if options.compile:
        whole = torch.compile(whole)
    if not distributed:
        return whole  # type: ignore[no-any-return]

    def run_distributed(batch: dict[str, Any]) -> tuple[Any, dict[str, Output]]:
        loss, outputs = whole(batch)
        return loss, outputs.found

    return run_distributed


class _Outputs:
    """Outputs by name, hidden from ``DistributedDataParallel``, which waits for a gradient of each
    tensor that it sees.

    It sees the loss only: for an output without a loss it would wait for ever.
    """

    def __init__(self, found: dict[str, Output]) -> None:
        self.found = found


def _wrap_with_loss(model: Any, holding: Callable[[dict[str, Output]], Any]) -> Any:
    """Return a module of the model and its loss, so that PyTorch's wrappers see both as one."""
    import torch

    class Whole(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: dict[str, Any]) -> tuple[Any, Any]:
            loss, outputs = run_forward(self.model, batch)
            return loss, holding(outputs)

    return Whole()


def make_precision_factory(options: TrainerOptions) -> Callable[[], AbstractContextManager[Any]]:
    """Return a function that makes the context (precision) in which the model runs."""
    if options.precision == "float32":
        return nullcontext
    import torch

    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[options.precision]
    return lambda: torch.autocast(options.device_kind, dtype)


def move_to_device(model: Any, options: TrainerOptions) -> None:
    """Move a model to its device and bring its kernels into the order of the options."""
    import torch

    model.to(options.device)
    if options.channels_last:
        model.to(memory_format=torch.channels_last)


# Layers that compute their outputs again for gradients, rather than keep them: less memory, more
# time.
#
# Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; PyTorch calls it activation
# checkpointing.


@contextmanager
def recompute_activations(model: Any, names: Sequence[str]) -> Iterator[None]:
    """Let the layers of these names compute their outputs again in each backward pass, until the
    block ends.

    Gradients, random numbers and the statistics of batch normalisations are the same as without.

    Raises
    ------
    ConfigError
        If no layer has one of the names.
    """
    layers = dict(model.named_modules())
    chosen = {}
    for pattern in names:
        found = {
            name: layer for name, layer in layers.items() if name and fnmatchcase(name, pattern)
        }
        if not found:
            raise ConfigError(
                f"recompute: {type(model).__name__} has no layer "
                f"{pattern!r}{suggest_name(pattern, layers)}"
            )
        chosen.update(found)
    for layer in chosen.values():
        # Bound to the layer, so that a copy of the layer has a forward of its own.
        layer.forward = MethodType(_run_checkpointed, layer)
    try:
        yield
    finally:
        for layer in chosen.values():
            del layer.forward


def _run_checkpointed(self: Any, *arguments: Any, **named: Any) -> Any:
    import torch
    from torch.utils.checkpoint import checkpoint

    own = type(self).forward
    if not (self.training and torch.is_grad_enabled()):
        return own(self, *arguments, **named)

    def make_contexts() -> tuple[Any, Any]:
        return nullcontext(), _preserve_statistics(self)

    return checkpoint(own, self, *arguments, use_reentrant=False, context_fn=make_contexts, **named)


@contextmanager
def _preserve_statistics(layer: Any) -> Iterator[None]:
    """Keep batch normalisations from counting a batch twice."""
    found = find_batch_normalisations(layer)
    before = [(part.running_mean, part.running_var, part.num_batches_tracked) for part in found]
    for part, (mean, variance, count) in zip(found, before, strict=True):
        part.running_mean, part.running_var, part.num_batches_tracked = (
            mean.clone(),
            variance.clone(),
            count.clone(),
        )
    try:
        yield
    finally:
        for part, kept in zip(found, before, strict=True):
            part.running_mean, part.running_var, part.num_batches_tracked = kept
