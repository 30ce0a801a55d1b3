"""Operators with weights: dense layers, embeddings, normalisations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.layers.imports.channels_first import Unsupported, View
from nnpipe.layers.imports.operators.shapes import SHAPES
from nnpipe.layers.imports.step import Handler, Step
from nnpipe.layers.vocabulary.dense import Dense, Embedding
from nnpipe.layers.vocabulary.normalisation import BatchNorm, GroupNorm, LayerNorm


def _gemm(step: Step) -> View:
    step.only("transA", 0)
    kernel = step.constant(1, "B").astype(np.float64) * float(step.attribute("alpha", 1.0))
    kernel = kernel.T if step.attribute("transB", 0) else kernel
    bias = None
    if step.has(2):
        bias = step.constant(2, "C").astype(np.float64) * float(step.attribute("beta", 1.0))
        bias = np.broadcast_to(bias.reshape(-1) if bias.size in (1, kernel.shape[1]) else bias, kernel.shape[1:])
    return dense(step, kernel, bias)


def _matmul(step: Step) -> View:
    kernel = step.constant(1, "B")
    if kernel.ndim != 2:
        raise Unsupported(f"multiplies by a constant of {kernel.ndim} axes")
    return dense(step, kernel, None)


def dense(step: Step, kernel: np.ndarray, bias: np.ndarray | None) -> View:
    """Multiply by a matrix ``(into, units)`` along the last axis, and add a bias."""
    view = step.lazy()
    if view.flat and view.pads is None and None not in view.axes[1:]:
        # A flattened image may keep the tensor's order if the rows of the matrix are reordered instead.
        axes = sorted(range(1, len(view.order)), key=lambda axis: view.order[axis])
        whole = kernel.reshape(*(int(extent or 0) for extent in view.axes[1:]), kernel.shape[1])
        kernel = whole.transpose([*(axis - 1 for axis in axes), len(axes)]).reshape(kernel.shape)
        view = step.builder.settled(replace(view, order=tuple(range(len(view.order)))))
    view = step.builder.settled(view)
    last = len(view.order) - 1
    if view.order[last] != last:
        order = sorted(range(last), key=lambda axis: view.order[axis])
        view = step.builder.arranged(view, (*order, last))
    units = kernel.shape[1]
    layer = Dense(view.tensor, units, use_bias=bias is not None, name=step.name(1))
    return step.builder.put(view, layer, {"kernel": kernel, **({} if bias is None else {"bias": bias})})


def _gather(step: Step) -> Any:
    if not step.is_constant(0):
        return SHAPES["Select"](step)
    table, view = step.constant(0), step.view(1)
    if int(step.attribute("axis", 0)) or table.ndim != 2:
        raise Unsupported("looks up in another axis than the first of a matrix", "axis")
    if not view.dtype.startswith(("int", "uint")):
        raise Unsupported("looks up what are no integers")
    layer = Embedding(view.tensor, *table.shape, name=step.name(0))
    found = step.builder.add(layer, step.builder.own(view), weights={"embeddings": table})
    return View(layer, found, (*view.order, len(view.order)))


def _batch_norm(step: Step) -> View:
    step.only("training_mode", 0)
    view = step.view()
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    weights = {name: step.constant(place, name) for place, name in enumerate(names, 1)}
    layer = BatchNorm(
        view.tensor, view.order[1], float(step.attribute("momentum", 0.9)), float(step.attribute("epsilon", 1e-5)),
        name=step.name(1),
    )  # fmt: skip
    return step.builder.put(view, layer, weights)


def _layer_norm(step: Step) -> View:
    view = step.view()
    count = len(view.order)
    first = int(step.attribute("axis", -1)) % count
    if first < count - 1:
        view = step.builder.plain(view)
    axes = tuple(view.order[axis] for axis in range(first, count))
    weights = {"gamma": step.constant(1, "Scale")}
    if step.has(2):
        weights["beta"] = step.constant(2, "B")
    layer = LayerNorm(
        view.tensor, axes[0] if len(axes) == 1 else axes, float(step.attribute("epsilon", 1e-5)), center=step.has(2),
        name=step.name(1),
    )  # fmt: skip
    return step.builder.put(view, layer, weights)


def _group_norm(step: Step) -> View:
    view = step.builder.channels_last(step.view())
    channels = view.shape[1]
    groups = -1 if step.node.kind == "InstanceNormalization" else int(step.attribute("num_groups"))
    weights = {"gamma": step.constant(1, "scale"), "beta": step.constant(2, "bias")}
    if groups > 0 and channels and weights["gamma"].size == groups != channels:
        # Until version 21, scale and bias were given per group.
        weights = {name: np.repeat(value, channels // groups) for name, value in weights.items()}
    layer = GroupNorm(view.tensor, groups, epsilon=float(step.attribute("epsilon", 1e-5)), name=step.name(1))
    return step.builder.put(view, layer, weights)


WEIGHTS: dict[str, Handler] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Gather": _gather,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _group_norm,
    "GroupNormalization": _group_norm,
}
