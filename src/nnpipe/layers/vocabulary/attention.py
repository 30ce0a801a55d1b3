"""Attention layers.  Inputs are query and value, and a key where it is not the value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.initialisers import GlorotUniform, Ones
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape, TorchParts, require_static
from nnpipe.layers.vocabulary.normalisation import parameters
from nnpipe.layers.vocabulary.value_kinds import (
    ChoiceKind,
    FlagKind,
    IntegerKind,
    IntegersKind,
    NumberKind,
)
from nnpipe.layers.vocabulary.weighted_layer import Kernelled, get_weight_settings


class MultiHeadAttention(Kernelled):
    """Scaled dot-product attention with several heads, Vaswani et al. 2017
    (https://arxiv.org/abs/1706.03762).

    Parameters
    ----------
    num_heads
        Number of attention heads.
    key_dim
        Features of query and key in each head.
    value_dim
        Features of the value in each head; ``None`` for ``key_dim``.
    dropout
        Fraction of the attention weights set to zero in training.
    output_shape
        Number of output features; ``None`` for that of the query.
    attention_axes
        Axis of the steps; only 1 and ``None``, its default, are supported.
    seed
        Seed of the dropout, used by Keras alone; ``None`` draws one.
    """

    keras: ClassVar[str] = "MultiHeadAttention"
    called: ClassVar[tuple[str, ...]] = ("query", "value", "key")
    takes: ClassVar[tuple[int, int | None]] = (2, 3)
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"query_shape", "key_shape", "value_shape", "flash_attention"}
    )
    num_heads: int = row(IntegerKind())
    key_dim: int = row(IntegerKind())
    value_dim: int | None = row(IntegerKind(optional=True), default=None)
    dropout: float = row(NumberKind(0, 1), default=0.0)
    output_shape: int | tuple[int, ...] | None = row(
        IntegersKind(1, single=True, optional=True), default=None
    )
    attention_axes: int | tuple[int, ...] | None = row(
        IntegersKind(single=True, optional=True), default=None
    )
    seed: int | None = row(IntegerKind(0, 2**63 - 1, optional=True), default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.key_dim)
        if self.attention_axes == 1:  # which is how Keras writes None for three axes
            object.__setattr__(self, "attention_axes", None)

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        if isinstance(self.output_shape, tuple):
            yield "output_shape", f"must be one integer, not {self.output_shape}"
        if self.attention_axes is not None:
            yield "attention_axes", f"must be 1, the axis of the steps, not {self.attention_axes}"

    def _compute_widths(self, *shapes: Shape) -> tuple[int, int, int, int]:
        query, value, key = (*shapes, shapes[1])[:3]
        if not all(len(shape) == 3 for shape in shapes):
            raise Misfit(f"takes samples, steps and features, not {shapes}")
        if None not in (value[1], key[1]) and value[1] != key[1]:
            raise Misfit(f"needs as many keys as values, not {key[1]} and {value[1]}")
        q, v, k = (
            require_static(shape[2], "the number of features") for shape in (query, value, key)
        )
        out = self.output_shape
        return q, v, k, out if isinstance(out, int) else q

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        *_, out = self._compute_widths(*shapes)
        return ((*shapes[0][:2], out),)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        q, v, k, out = self._compute_widths(*shapes)
        heads, inner, value = self.num_heads, self.key_dim, self.value_dim or self.key_dim
        found = []
        for name, place, kernel, bias in (
            ("query", "query_dense", (q, heads, inner), (heads, inner)),
            ("key", "key_dense", (k, heads, inner), (heads, inner)),
            ("value", "value_dense", (v, heads, value), (heads, value)),
            ("attention_output", "output_dense", (heads, value, out), (out,)),
        ):
            made = [
                LayerVariable(
                    f"{name}/kernel",
                    kernel,
                    *get_weight_settings(self, "kernel"),
                    torch=f"{name}_kernel",
                )
            ]
            if self.use_bias:
                made.append(
                    LayerVariable(
                        f"{name}/bias",
                        bias,
                        *get_weight_settings(self, "bias"),
                        torch=f"{name}_bias",
                    )
                )
            found += [_with_place(variable, f"{place}/vars/{i}") for i, variable in enumerate(made)]
        return tuple(found)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        import torch
        import torch.nn.functional as F

        rate, biased = self.dropout, self.use_bias

        def compute_projection(weights: Any, name: str, x: Any) -> Any:
            y = torch.einsum("btd,dhk->bhtk", x, weights[f"{name}_kernel"])
            return y + weights[f"{name}_bias"].unsqueeze(1) if biased else y

        def call(module: Any, query: Any, value: Any, key: Any = None) -> Any:
            weights = module.core
            q, k, v = (
                compute_projection(weights, name, x)
                for name, x in (
                    ("query", query),
                    ("key", value if key is None else key),
                    ("value", value),
                )
            )
            found = F.scaled_dot_product_attention(
                q, k, v, dropout_p=rate if module.training else 0.0
            )
            y = torch.einsum("bhtv,hvo->bto", found, weights["attention_output_kernel"])
            return y + weights["attention_output_bias"] if biased else y

        return TorchParts(call, parameters(self.variables(*shapes)))


class _Scores(Layer):
    resting: ClassVar[bool] = True
    takes: ClassVar[tuple[int, int | None]] = (2, 3)
    grouped: ClassVar[bool] = True

    def _check(self, *shapes: Shape) -> tuple[Shape, Shape, Shape]:
        query, value, key = (*shapes, shapes[1])[:3]
        if not all(len(shape) == 3 for shape in shapes):
            raise Misfit(f"takes samples, steps and features, not {shapes}")
        if query[2] != key[2]:
            raise Misfit(f"needs queries and keys of one length, not {query[2]} and {key[2]}")
        return query, value, key

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        query, value, _ = self._check(*shapes)
        return ((*query[:2], value[2]),)

    def _apply_scores(self, module: Any, scores: Any, value: Any, rate: float) -> Any:
        import torch.nn.functional as F

        return F.dropout(scores.softmax(-1), rate, module.training) @ value


class Attention(_Scores):
    """Dot-product attention, Luong et al. 2015 (https://arxiv.org/abs/1508.04025).

    Parameters
    ----------
    use_scale
        Whether a trained factor multiplies the scores.
    score_mode
        How a score is computed: ``"dot"`` (dot product) or ``"concat"`` (tanh of the sum of query
        and key).
    dropout
        Fraction of the attention weights set to zero in training.
    seed
        Seed of the dropout, used by Keras alone; ``None`` draws one.
    """

    keras: ClassVar[str] = "Attention"
    use_scale: bool = row(FlagKind(), default=False)
    score_mode: str = row(ChoiceKind(("dot", "concat")), default="dot")
    dropout: float = row(NumberKind(0, 1), default=0.0)
    seed: int | None = row(IntegerKind(0, 2**63 - 1, optional=True), default=None)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        found = [LayerVariable("scale", (), Ones(), torch="gain")] if self.use_scale else []
        return (
            *found,
            *(
                [LayerVariable("concat_score_weight", (), Ones())]
                if self.score_mode == "concat"
                else []
            ),
        )

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        rate, scaled, dot = self.dropout, self.use_scale, self.score_mode == "dot"

        def call(module: Any, query: Any, value: Any, key: Any = None) -> Any:
            weights, key = module.core, value if key is None else key
            if dot:
                scores = query @ key.transpose(1, 2)
                scores = scores * weights["gain"] if scaled else scores
            else:
                both = query.unsqueeze(2) + key.unsqueeze(1)
                both = both * weights["gain"] if scaled else both
                scores = weights["concat_score_weight"] * both.tanh().sum(-1)
            return self._apply_scores(module, scores, value, rate)

        return TorchParts(call, parameters(self.variables(*shapes)))


class AdditiveAttention(_Scores):
    """Additive attention, Bahdanau et al. 2014 (https://arxiv.org/abs/1409.0473).

    Parameters
    ----------
    use_scale
        Whether a trained factor multiplies each feature of the scores.
    dropout
        Fraction of the attention weights set to zero in training.
    """

    keras: ClassVar[str] = "AdditiveAttention"
    ignored: ClassVar[frozenset[str]] = frozenset({"seed"})
    use_scale: bool = row(FlagKind(), default=True)
    dropout: float = row(NumberKind(0, 1), default=0.0)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        if not self.use_scale:
            return ()
        query, _, _ = self._check(*shapes)
        return (
            LayerVariable(
                "scale",
                (require_static(query[2], "the length of queries"),),
                GlorotUniform(),
                torch="gain",
            ),
        )

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        rate, scaled = self.dropout, self.use_scale

        def call(module: Any, query: Any, value: Any, key: Any = None) -> Any:
            both = (query.unsqueeze(2) + (value if key is None else key).unsqueeze(1)).tanh()
            both = both * module.core["gain"] if scaled else both
            return self._apply_scores(module, both.sum(-1), value, rate)

        return TorchParts(call, parameters(self.variables(*shapes)))


def _with_place(variable: LayerVariable, place: str) -> LayerVariable:
    import dataclasses

    return dataclasses.replace(variable, place=place)
