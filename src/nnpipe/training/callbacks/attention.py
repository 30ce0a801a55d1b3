"""Maps of a model's attention."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training._batches import to_tensors
from nnpipe.training.callbacks.callback import WritingCallback, create_figure, save_figure
from nnpipe.training.callbacks.samples import find_image, get_sample_features, select_batches
from nnpipe.training.run_folder import make_file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


@contextmanager
def record_attention(model: Any) -> Iterator[list[tuple[str, Any]]]:
    """Yield a list that receives the name and the attention weights of each layer while the model
    runs.

    Weights are tensors ``(n, heads, queries, keys)`` whose rows add up to 1,
    without dropout, in the order in which they were used.  The model's results
    change by rounding only.

    This records ``torch.nn.MultiheadAttention`` (also within ``TransformerEncoder``)
    and everything else that calls ``torch.nn.functional.scaled_dot_product_attention``.
    It does not record a softmax that a model computes itself, or attention within a compiled model.
    """
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    multi_head: Any = functional.multi_head_attention_forward
    signature = inspect.signature(multi_head)
    found: list[tuple[str, Any]] = []
    running: list[str] = []

    def append_weights(weights: Any) -> None:
        if weights.dim() == 3:  # of a single sample
            weights = weights[None]
        if weights.dim() == 4:
            found.append((running[-1] if running else type(model).__name__, weights.detach()))

    class Watch(TorchFunctionMode):  # type: ignore[misc]
        """Sees the functions that modules call, but not the functions that those call."""

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function is multi_head:
                given = signature.bind(*args, **(kwargs or {}))
                given.apply_defaults()
                asked = dict(given.arguments)
                wanted, averaged = asked["need_weights"], asked["average_attn_weights"]
                output, weights = function(
                    **{**asked, "need_weights": True, "average_attn_weights": False}
                )
                append_weights(weights)
                if not wanted:
                    return output, None
                return output, weights.mean(-3) if averaged else weights
            output = function(*args, **(kwargs or {}))
            if function is functional.scaled_dot_product_attention:
                append_weights(compute_attention_weights(*args, **(kwargs or {})))
            return output

    handles = []
    for name, layer in model.named_modules():
        told = name or type(layer).__name__
        handles.append(layer.register_forward_pre_hook(lambda *_, told=told: running.append(told)))
        handles.append(layer.register_forward_hook(lambda *_: running.pop() and None))
    try:
        with torch.no_grad(), Watch():
            yield found
    finally:
        for handle in handles:
            handle.remove()


def compute_attention_weights(
    query: Any,
    key: Any,
    value: Any = None,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Return the weights by which ``scaled_dot_product_attention`` multiplies values; it takes the
    same arguments.

    ``softmax(query key^T / sqrt(features) + mask)`` (Vaswani et al., 2017,
    section 3.2.1).  A query whose keys are all masked has weights of 0.
    """
    import torch

    if enable_gqa and key.dim() >= 4:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = query.float() @ key.float().transpose(-2, -1)
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        else:
            scores = scores + attn_mask.float()
    return scores.softmax(-1).nan_to_num(0.0)


def compute_rollout(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Return how much of each input token is in each output token, ``(tokens, tokens)``; rows add
    up to 1.

    Abnar and Zuidema, "Quantifying Attention Flow in Transformers", 2020,
    section 3: the product of ``A = (W + I) / 2`` of all layers, the last on the
    left, where ``W`` is the mean over a layer's heads and ``I`` stands for its residual connection.

    Parameters
    ----------
    layers
        Weights of each layer ``(heads, tokens, tokens)``, from the first layer on.
    """
    flow = np.eye(layers[0].shape[-1])
    for weights in layers:
        mixed = (weights.astype(np.float64).mean(0) + np.eye(len(flow))) / 2
        flow = mixed / mixed.sum(-1, keepdims=True) @ flow
    return flow


_LAYERS, _HEADS = 12, 16
"""The greatest number of layers or samples that are drawn."""

_LARGEST = 2**28
"""The greatest number of attention weights that are kept of a sample: a gibibyte."""


class AttentionMaps(WritingCallback):
    """Draw, at the end, the attention of each head for some samples of each evaluated split.

    This sees the attention of ``torch.nn.MultiheadAttention``, by itself or within
    ``TransformerEncoder`` and similar modules, and of all models that call
    ``torch.nn.functional.scaled_dot_product_attention`` (those of timm and most
    of Hugging Face).  It does not see a softmax that a model computes itself.
    If no attention is seen, this is logged and nothing is written.

    Writes a picture for each sample, ``pictures/attention-DATASET-SPLIT-ID.png``,
    with a row for each layer and a column for each head, and
    ``pictures/attention-DATASET-SPLIT-rollout.png`` with the attention rollout of all
    samples (Abnar and Zuidema, 2020): how much of each input token is in the
    output, through all layers.  The rollout is left out where layers have
    different tokens.  Samples go through the model one at a time.

    Parameters
    ----------
    count
        How many samples to draw of each split: the first ones.
    ids
        Ids of the samples to draw instead.
    grid
        Rows and columns of patches, if tokens are patches of a picture, row by row.
        Attention is then drawn over the picture: that of the class token, or the mean
        over all tokens if there are only patches.  Other tokens (a class token,
        registers) must come before the patches.  Without a grid, a head is drawn as
        its matrix, with a row for each query and a column for each key.
    input
        The feature that holds the picture; by default the first that looks like one.
    """

    draws = True

    def __init__(
        self,
        count: int = 4,
        ids: Sequence[int] = (),
        grid: tuple[int, int] | None = None,
        input: str | None = None,
    ) -> None:
        check_call(AttentionMaps, locals())
        self.count = count
        self.ids = tuple(ids)
        self.grid = grid
        self.input = input

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Check the options; raise :class:`ConfigError` if they cannot work."""
        super().on_fit_begin(fit)
        if self.grid is not None and (len(self.grid) != 2 or min(self.grid) < 1):
            raise ConfigError(
                f"AttentionMaps: grid is {self.grid}; give rows and columns of patches, such as "
                f"(7, 7)"
            )

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Run the model on the samples and draw their attention."""
        fit.model.eval()
        for dataset, parts in fit.datasets.items():
            for split, sequence in parts.items():
                if split in fit.options.train_splits:
                    continue
                seen = [
                    self._record_sample(fit, dataset, one)
                    for one in select_batches(sequence, 0, self.ids or self.count)
                ]
                if not any(sample.layers for sample in seen):
                    fit.log.warning(
                        "AttentionMaps: %s has no attention that can be seen on %s/%s; nothing is "
                        "drawn",
                        type(fit.model).__name__,
                        dataset,
                        split,
                    )
                    continue
                for sample in seen:
                    if sample.layers:
                        save_figure(
                            fit,
                            make_file_name("attention", dataset, split, str(sample.id)),
                            sample.draw_heads(),
                        )
                flows = [sample for sample in seen if sample.flows]
                if flows:
                    save_figure(
                        fit,
                        make_file_name("attention", dataset, split, "rollout"),
                        _draw_rollouts(flows),
                    )

    def _record_sample(self, fit: TrainingRun, dataset: str, batch: dict[str, Any]) -> _Sample:
        fit.dataset = dataset
        with record_attention(fit.model) as found:
            fit.model(to_tensors(batch, fit.device))
        layers: list[tuple[str, np.ndarray]] = []
        size = 0
        for name, weights in found:
            size += weights.numel()
            # Attention within windows makes several entries of one sample: its tokens are not
            # places in the picture.
            if len(weights) == 1 and size <= _LARGEST:
                layers.append((name, weights[0].float().cpu().numpy()))
        if size > _LARGEST:
            fit.log.warning(
                "AttentionMaps: only the first %d of %d layers are drawn: too large",
                len(layers),
                len(found),
            )
        sample = get_sample_features(batch)
        image = (
            find_image(sample if self.input is None else {self.input: sample[self.input]})
            if self.grid
            else None
        )
        return _Sample(int(batch["sample_id"][0]), image, tuple(layers), self.grid)


@dataclass(frozen=True)
class _Sample:
    """A sample's attention: its picture, and of each layer the name and the weights ``(heads,
    queries, keys)``.
    """

    id: int
    image: np.ndarray | None
    layers: tuple[tuple[str, np.ndarray], ...]
    grid: tuple[int, int] | None

    def draw_heads(self) -> Any:
        """Return a figure with a row for each layer and a column for each head."""
        layers = _select_layers(self.layers, _LAYERS)
        columns = min(_HEADS, max(len(weights) for _, weights in layers))
        picture = create_figure(1.5 + 1.5 * columns, 0.5 + 1.65 * len(layers))
        most = max(
            float(self._select_patches(weights[head]).max())
            for _, weights in layers
            for head in range(len(weights))
        )
        grid = picture.subplots(len(layers), columns, squeeze=False)
        for row, (name, weights) in zip(grid, layers, strict=True):
            for axes in row:
                axes.set(xticks=[], yticks=[])
                axes.set_frame_on(False)
            row[0].set_ylabel(_shorten_name(name), fontsize=7)
            for head, axes in enumerate(row[: len(weights)]):
                drawn = self._draw(axes, weights[head], most)
                axes.set_title(f"head {head}", fontsize=8)
        picture.colorbar(drawn, ax=grid, label="weight", shrink=0.9)
        told = (
            "attention"
            if self.grid is not None
            else "attention, a row for each query, a column for each key"
        )
        picture.suptitle(f"{told}; sample {self.id}", fontsize=9)
        return picture

    @property
    def flows(self) -> bool:
        """Whether all layers have the same tokens, so that there is a rollout."""
        shapes = {weights.shape[1:] for _, weights in self.layers}
        return len(shapes) == 1 and len(set(*shapes)) == 1

    def compute_flow(self) -> np.ndarray:
        """Return the rollout."""
        return compute_rollout([weights for _, weights in self.layers])

    def _select_patches(self, weights: np.ndarray) -> np.ndarray:
        """Return the part of weights ``(queries, keys)`` that is drawn: those of the patches, as
        ``grid``, or all.
        """
        if self.grid is None:
            return weights
        rows, columns = self.grid
        extra = weights.shape[1] - rows * columns
        if extra < 0:
            raise ConfigError(
                f"AttentionMaps: grid is {rows} x {columns}, but there are only {weights.shape[1]} "
                f"tokens"
            )
        looked: np.ndarray = weights[0] if extra else weights.mean(0)
        return looked[extra:].reshape(rows, columns)

    def _draw(self, axes: Any, weights: np.ndarray, most: float) -> Any:
        """Draw weights as a map over the picture, or as a matrix; colours end at ``most``."""
        own = self._select_patches(weights)
        if self.grid is None:
            return axes.imshow(
                own, cmap="viridis", vmin=0, vmax=most, interpolation="nearest", aspect="auto"
            )
        height, width = self.grid if self.image is None else self.image.shape[:2]
        if self.image is not None:
            axes.imshow(self.image, cmap="gray" if self.image.ndim == 2 else None, vmin=0, vmax=1)
        return axes.imshow(
            own,
            cmap="inferno",
            vmin=0,
            vmax=most,
            alpha=1.0 if self.image is None else 0.6,
            interpolation="nearest",
            extent=(-0.5, width - 0.5, height - 0.5, -0.5),
        )


def _draw_rollouts(samples: Sequence[_Sample]) -> Any:
    """Return a figure with a column for each sample: its picture and its rollout."""
    rows = 2 if any(sample.image is not None for sample in samples) else 1
    picture = create_figure(1.0 + max(3.5, 1.9 * len(samples)), 0.5 + 1.9 * rows)
    grid = picture.subplots(rows, len(samples), squeeze=False)
    for axes in grid.ravel():
        axes.set(xticks=[], yticks=[])
        axes.set_frame_on(False)
    flows = [sample.compute_flow() for sample in samples]
    most = max(
        float(sample._select_patches(flow).max())
        for sample, flow in zip(samples, flows, strict=True)
    )
    for column, sample, flow in zip(grid.T, samples, flows, strict=True):
        if sample.image is not None:
            column[0].imshow(
                sample.image, cmap="gray" if sample.image.ndim == 2 else None, vmin=0, vmax=1
            )
        column[0].set_title(f"id {sample.id}", fontsize=8)
        drawn = sample._draw(column[-1], flow, most)
    picture.colorbar(drawn, ax=grid[-1], label="share of the output", shrink=0.9)
    picture.suptitle("attention rollout", fontsize=9)
    return picture


def _select_layers(layers: Sequence[Any], most: int) -> list[Any]:
    """Return at most ``most`` layers, evenly spaced, including the first and the last."""
    if len(layers) <= most:
        return list(layers)
    return [layers[round(n * (len(layers) - 1) / (most - 1))] for n in range(most)]


def _shorten_name(name: str) -> str:
    return name if len(name) <= 24 else f"...{name[-22:]}"
