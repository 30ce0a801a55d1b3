"""Recording attention weights while a model runs, and computing the attention rollout from them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def watched(model: Any) -> Iterator[list[tuple[str, Any]]]:
    """Yield a list that receives the name and the attention weights of each layer while the model runs.

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

    def keep(weights: Any) -> None:
        if weights.dim() == 3:  # of a single sample
            weights = weights[None]
        if weights.dim() == 4:
            found.append((running[-1] if running else type(model).__name__, weights.detach()))

    class Watch(TorchFunctionMode):  # type: ignore[misc]
        """Sees the functions that modules call, but not the functions that those call."""

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is multi_head:
                given = signature.bind(*args, **(kwargs or {}))
                given.apply_defaults()
                asked = dict(given.arguments)
                wanted, averaged = asked["need_weights"], asked["average_attn_weights"]
                output, weights = function(**{**asked, "need_weights": True, "average_attn_weights": False})
                keep(weights)
                if not wanted:
                    return output, None
                return output, weights.mean(-3) if averaged else weights
            output = function(*args, **(kwargs or {}))
            if function is functional.scaled_dot_product_attention:
                keep(weights_of(*args, **(kwargs or {})))
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


def weights_of(
    query: Any,
    key: Any,
    value: Any = None,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Return the weights by which ``scaled_dot_product_attention`` multiplies values; it takes the same arguments.

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


def rollout(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Return how much of each input token is in each output token, ``(tokens, tokens)``; rows add up to 1.

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
