"""Attention maps against attention by hand."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
needs("sklearn")
import digit_toys as digits
from attention_toys import PatchEncoder, RowsAsTokens, made

from nnpipe.core.errors import TrainingError
from nnpipe.training.callbacks.attention import (
    AttentionMaps,
    compute_attention_weights,
    compute_rollout,
    record_attention,
)
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer


def batch(count: int = 3) -> dict[str, Any]:
    return {name: torch.from_numpy(value) for name, value in digits.arrays(0, count).items()}


def fit(folder: Path, model: Any, *callbacks: Any) -> list[str]:
    Trainer(TrainerOptions(num_epochs=1), callbacks).fit(
        model, digits.sequences(64, 20), folder=folder
    )
    pictures = folder / "pictures"
    return sorted(path.name for path in pictures.iterdir()) if pictures.is_dir() else []


def by_hand(layer: Any, tokens: Any) -> Any:
    """Weights ``(n, heads, tokens, tokens)`` of a ``MultiheadAttention``, from its projections."""
    heads, size = layer.num_heads, layer.embed_dim // layer.num_heads
    projected = tokens @ layer.in_proj_weight.T + layer.in_proj_bias
    query, key, _ = (
        part.unflatten(-1, (heads, size)).transpose(1, 2) for part in projected.chunk(3, -1)
    )
    return (query @ key.transpose(2, 3) / math.sqrt(size)).softmax(-1)


def test_the_weights_of_an_encoder_are_those_by_hand_and_the_model_gives_the_same() -> None:
    model = made(PatchEncoder).eval()
    with torch.no_grad():
        expected = model(batch())["digit"].output
        tokens = model.embedded(batch()["image"])
        first = by_hand(model.encoder.layers[0].self_attn, tokens)
        second = by_hand(model.encoder.layers[1].self_attn, model.encoder.layers[0](tokens))
    with record_attention(model) as found:
        given = model(batch())["digit"].output
    torch.testing.assert_close(given, expected)
    assert [name for name, _ in found] == [
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
    ]
    torch.testing.assert_close(found[0][1], first)
    torch.testing.assert_close(found[1][1], second)
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_whoever_asks_for_weights_gets_what_was_asked_for(need: bool, average: bool) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layer, tokens = (
            torch.nn.MultiheadAttention(8, 2, batch_first=True).eval(),
            torch.randn(2, 5, 8),
        )
    asked = {"need_weights": need, "average_attn_weights": average}
    expected = layer(tokens, tokens, tokens, **asked)
    with record_attention(layer) as found:
        given = layer(tokens, tokens, tokens, **asked)
    torch.testing.assert_close(given, expected)
    assert found[0][1].shape == (2, 2, 5, 5)


@pytest.mark.parametrize("arguments", ["", "causal", "mask", "bias", "scale", "shared heads"])
def test_weights_of_the_attention_function_are_what_it_multiplies_values_by(arguments: str) -> None:
    """Values that are the unit matrix come out as the weights."""
    rng = torch.Generator().manual_seed(2)
    query, key = torch.randn(2, 4, 5, 8, generator=rng), torch.randn(2, 4, 6, 8, generator=rng)
    given: dict[str, Any] = {}
    if arguments == "causal":
        given["is_causal"] = True
    elif arguments == "mask":
        given["attn_mask"] = torch.rand(5, 6, generator=rng) < 0.7
        given["attn_mask"][:, 0] = True
    elif arguments == "bias":
        given["attn_mask"] = torch.randn(5, 6, generator=rng)
    elif arguments == "scale":
        given["scale"] = 0.9
    elif arguments == "shared heads":
        key, given["enable_gqa"] = key[:, :2], True
    value = torch.eye(6).expand(2, key.shape[1], 6, 6)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, **given)
    torch.testing.assert_close(compute_attention_weights(query, key, value, **given), expected)


def test_attention_of_a_model_that_calls_the_function_is_seen_under_its_layers_name() -> None:
    model = made(RowsAsTokens).eval()
    with record_attention(model) as found:
        model(batch())
    ((name, weights),) = found
    assert (name, tuple(weights.shape)) == ("RowsAsTokens", (3, 2, 8, 8))
    assert torch.equal(weights.triu(1), torch.zeros_like(weights))
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 8))


def test_rollout_follows_attention_through_the_layers() -> None:
    """Two layers, one head: token 0 takes all of token 1, and then token 2 all of token 0."""
    first, second = np.eye(3), np.eye(3)
    first[0], second[2] = [0, 1, 0], [1, 0, 0]
    flow = compute_rollout([first[None], second[None]])
    # By hand: half is the token itself, half comes from where the layer looks.
    np.testing.assert_allclose(flow, [[0.5, 0.5, 0], [0, 1, 0], [0.25, 0.25, 0.5]])
    rng = np.random.default_rng(1)
    many = [rng.dirichlet(np.ones(4), (3, 4)) for _ in range(5)]
    np.testing.assert_allclose(compute_rollout(many).sum(1), 1)


def test_maps_are_drawn_over_the_picture_for_the_samples_asked_for(tmp_path: Path) -> None:
    names = fit(tmp_path, made(PatchEncoder), AttentionMaps(ids=(7, 2), grid=(4, 4)))
    assert names == [f"attention-digits-test-{what}.png" for what in ("2", "7", "rollout")]


def test_what_is_laid_over_the_picture_is_the_class_tokens_attention_to_its_patches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    drawn: list[Any] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k))[1]
    )
    model = made(PatchEncoder)
    fit(tmp_path, model, AttentionMaps(count=1, grid=(4, 4)))
    one = {name: torch.from_numpy(value) for name, value in digits.arrays(1200, 1201).items()}
    with record_attention(model.eval()) as found:
        model(one)
    heads, flow = drawn
    shown = [axes for axes in heads.axes if len(axes.images) == 2]
    assert len(shown) == 4
    for axes, (layer, head) in zip(shown, [(0, 0), (0, 1), (1, 0), (1, 1)], strict=True):
        picture, over = (image.get_array() for image in axes.images)
        np.testing.assert_allclose(picture, one["image"][0, 0] / one["image"].max(), rtol=1e-6)
        np.testing.assert_allclose(over, found[layer][1][0, head, 0, 1:].reshape(4, 4), rtol=1e-4)
    expected = compute_rollout([weights[0].numpy() for _, weights in found])[0, 1:].reshape(4, 4)
    np.testing.assert_allclose(flow.axes[1].images[1].get_array(), expected, rtol=1e-4)


def test_tokens_that_are_no_patches_are_drawn_as_matrices(tmp_path: Path) -> None:
    names = fit(tmp_path, made(RowsAsTokens), AttentionMaps(count=2))
    assert names == [f"attention-digits-test-{what}.png" for what in ("0", "1", "rollout")]


def test_a_model_without_attention_is_told_in_a_line_and_nothing_is_written(
    tmp_path: Path, caplog: Any
) -> None:
    assert fit(tmp_path, digits.model(), AttentionMaps()) == []
    (line,) = [record.message for record in caplog.records]
    assert (
        line
        == "AttentionMaps: DigitNet has no attention that can be seen on digits/test; nothing is drawn"
    )


def test_a_grid_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"AttentionMaps: grid is 5 x 5, but there are only 17 tokens"
    ):
        fit(tmp_path / "a", made(PatchEncoder), AttentionMaps(grid=(5, 5)))
    with pytest.raises(TrainingError, match=r"grid is \(0, 4\); give rows and columns"):
        fit(tmp_path / "b", made(PatchEncoder), AttentionMaps(grid=(0, 4)))
