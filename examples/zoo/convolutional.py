"""Convolutional networks for pictures, written out as their papers and torchvision or timm have
them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from zoo.data import digits, outlines, scenes
from zoo.training import Trained, trained


def conv(
    given: int,
    made: int,
    size: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: nn.Module | None = None,
) -> nn.Sequential:
    """Return a convolution with batch normalisation and an activation."""
    layers = [
        nn.Conv2d(given, made, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(made),
    ]
    return nn.Sequential(*layers, *([act] if act is not None else []))


# -- MobileNetV3 -----------------------------------------------------------------------------------


class SqueezeExcite(nn.Module):
    """Weighs channels by what the whole picture holds."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighed channels."""
        weights = nn.functional.relu(self.down(x.mean((2, 3), keepdim=True)))
        return x * nn.functional.hardsigmoid(self.up(weights))


class Inverted(nn.Module):
    """An inverted residual of MobileNetV3."""

    def __init__(
        self, given: int, size: int, wide: int, made: int, squeeze: bool, hard: bool, stride: int
    ) -> None:
        super().__init__()
        act: type[nn.Module] = nn.Hardswish if hard else nn.ReLU
        layers = [conv(given, wide, 1, act=act()), conv(wide, wide, size, stride, wide, act())]
        if squeeze:
            layers.append(SqueezeExcite(wide, max(8, wide // 4)))  # type: ignore[arg-type]
        self.layers = nn.Sequential(*layers, conv(wide, made, 1))
        self.direct = stride == 1 and given == made

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's features."""
        return x + self.layers(x) if self.direct else self.layers(x)


# Kernel, wide, made, squeeze, hard, stride: table 2 of Howard et al. 2019, with half the channels.
_V3_SMALL = (
    (3, 8, 8, True, False, 2),
    (3, 36, 12, False, False, 2),
    (3, 44, 12, False, False, 1),
    (5, 48, 24, True, True, 2),
    (5, 120, 24, True, True, 1),
    (5, 60, 24, True, True, 1),
    (5, 144, 48, True, True, 2),
    (5, 288, 48, True, True, 1),
)


def _v3_features(largest: int = 32) -> nn.Sequential:
    """Return the blocks; they stop making pictures smaller at the largest stride of all."""
    given, total, layers = 8, 2, [conv(3, 8, 3, 2, act=nn.Hardswish())]
    for size, wide, made, squeeze, hard, stride in _V3_SMALL:
        taken = stride if total * stride <= largest else 1
        layers.append(Inverted(given, size, wide, made, squeeze, hard, taken))  # type: ignore[arg-type]
        given, total = made, total * taken
    return nn.Sequential(*layers)


def mobilenet_v3() -> Trained:
    """MobileNetV3-Small with half its channels."""

    def build() -> nn.Module:
        return nn.Sequential(
            _v3_features(),
            conv(48, 288, 1, act=nn.Hardswish()),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(288, 128),
            nn.Hardswish(),
            nn.Linear(128, 10),
        )

    return trained(build, digits(), epochs=5, rate=3e-3)


# -- SqueezeNet and ShuffleNet ---------------------------------------------------------------------


class Fire(nn.Module):
    """Squeezes channels, then expands them by small and by larger kernels."""

    def __init__(self, given: int, squeezed: int, each: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(given, squeezed, 1)
        self.small, self.large = (
            nn.Conv2d(squeezed, each, 1),
            nn.Conv2d(squeezed, each, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return twice ``each`` channels."""
        x = nn.functional.relu(self.squeeze(x))
        return torch.cat([nn.functional.relu(self.small(x)), nn.functional.relu(self.large(x))], 1)


def squeezenet() -> Trained:
    """SqueezeNet 1.1 with half its channels."""

    def build() -> nn.Module:
        pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        model = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2),
            nn.ReLU(),
            pool,
            Fire(32, 8, 32),
            Fire(64, 8, 32),
            pool,
            Fire(64, 16, 64),
            Fire(128, 16, 64),
            pool,
            Fire(128, 24, 96),
            Fire(192, 24, 96),
            Fire(192, 32, 128),
            Fire(256, 32, 128),
            nn.Dropout(0.1),
            nn.Conv2d(256, 10, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        for layer in model.modules():
            # without batch normalisation, the usual weights let the signal die away
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)
        return model

    return trained(build, digits(), epochs=8)


class Shuffle(nn.Module):
    """A unit of ShuffleNetV2: half of the channels go through, then both halves are interleaved."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        half = made // 2
        taken = given if stride > 1 else half
        self.stride = stride
        self.direct = nn.Sequential(
            conv(given, given, 3, stride, given), conv(given, half, 1, act=nn.ReLU())
        )
        if stride == 1:
            self.direct = nn.Sequential()
        self.through = nn.Sequential(
            conv(taken, half, 1, act=nn.ReLU()),
            conv(half, half, 3, stride, half),
            conv(half, half, 1, act=nn.ReLU()),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the interleaved channels."""
        one, two = x.chunk(2, dim=1) if self.stride == 1 else (x, x)
        joined = torch.cat([self.direct(one), self.through(two)], 1)
        n, channels, height, width = joined.shape
        return (
            joined.view(n, 2, channels // 2, height, width)
            .transpose(1, 2)
            .reshape(n, channels, height, width)
        )


def shufflenet_v2() -> Trained:
    """ShuffleNetV2 x0.5."""

    def build() -> nn.Module:
        layers: list[nn.Module] = [conv(3, 24, 3, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
        given = 24
        for made, repeats in ((48, 4), (96, 8), (192, 4)):
            layers += [
                Shuffle(given if not i else made, made, 1 if i else 2) for i in range(repeats)
            ]
            given = made
        return nn.Sequential(
            *layers,
            conv(192, 512, 1, act=nn.ReLU()),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(512, 10),
        )

    return trained(build, digits(), epochs=5, rate=3e-3)


# -- FastViT ---------------------------------------------------------------------------------------


class Mixer(nn.Module):
    """A mixer of FastViT: a depthwise convolution, then a wide one over channels, each beside a
    direct path.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = conv(channels, channels, 3, groups=channels)
        self.local = conv(channels, channels, 7, groups=channels)
        self.wide = nn.Sequential(
            nn.Conv2d(channels, 3 * channels, 1), nn.GELU(), nn.Conv2d(3 * channels, channels, 1)
        )
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the same shape."""
        x = x + self.mix(x)
        return x + self.scale * self.wide(self.local(x))


class Attention(nn.Module):
    """Attention over all places of a picture, as in the last stage of FastViT."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.norm, self.heads = nn.BatchNorm2d(channels), heads
        self.three, self.out = (
            nn.Linear(channels, 3 * channels, bias=False),
            nn.Linear(channels, channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the same shape."""
        n, channels, height, width = x.shape
        rows = self.norm(x).flatten(2).transpose(1, 2)
        parts = self.three(rows).reshape(n, height * width, 3, self.heads, channels // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        weights = (query @ key.transpose(-2, -1) * (channels // self.heads) ** -0.5).softmax(dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(n, height * width, channels)
        return x + self.out(mixed).transpose(1, 2).reshape(n, channels, height, width)


def fastvit() -> Trained:
    """FastViT with convolutions first and attention in the last stage."""

    def build() -> nn.Module:
        gelu = nn.GELU()
        return nn.Sequential(
            conv(3, 24, 3, 2, act=gelu),
            conv(24, 24, 3, 2, 24, gelu),
            Mixer(24),
            Mixer(24),
            conv(24, 48, 7, 2, 24, gelu),
            Mixer(48),
            Mixer(48),
            conv(48, 96, 7, 2, 48, gelu),
            Attention(96),
            Mixer(96),
            conv(96, 192, 3, groups=96, act=gelu),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(192, 10),
        )

    return trained(build, digits(), epochs=4, rate=2e-3)


# -- Detection and segmentation --------------------------------------------------------------------


class SSDLite(nn.Module):
    """MobileNetV3 with heads for boxes and for classes on two grids."""

    def __init__(self) -> None:
        super().__init__()
        features = list(_v3_features())
        self.first, self.second = nn.Sequential(*features[:7]), nn.Sequential(*features[7:])
        self.heads = nn.ModuleList(
            nn.Sequential(
                conv(channels, channels, 3, groups=channels, act=nn.ReLU6()),
                nn.Conv2d(channels, 6, 1),
            )
            for channels in (24, 48)
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes ``(n, cells, 4)`` and the scores of two classes, ``(n, cells, 2)``."""
        first = self.first(image)
        found = [head(x) for head, x in zip(self.heads, (first, self.second(first)), strict=True)]
        cells = torch.cat([x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 6) for x in found], 1)
        return cells[..., :4], cells[..., 4:].softmax(dim=-1)


def _box_loss(found: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
    boxes, scores = found
    there = targets[..., 0]
    wrong = nn.functional.nll_loss(
        scores.clamp_min(1e-6).log().flatten(0, 1),
        there.long().flatten(),
        weight=torch.tensor([1.0, 10.0]),
    )
    away = nn.functional.smooth_l1_loss(boxes, targets[..., 1:], reduction="none").mean(-1)
    return wrong + (away * there).sum() / there.sum().clamp_min(1)


def _found(outputs: tuple[Tensor, Tensor], targets: np.ndarray) -> dict[str, float]:
    """Return the share of pictures whose cell with the highest score is right, and its box
    overlaps by half.
    """
    boxes, scores = (output.numpy() for output in outputs)
    rows, best = np.arange(len(boxes)), scores[..., 1].argmax(axis=1)
    box, (there, wanted) = boxes[rows, best], np.split(targets[rows, best], [1], axis=1)
    shared = np.prod(
        (np.minimum(box, wanted)[:, 2:] - np.maximum(box, wanted)[:, :2]).clip(0), axis=1
    )
    areas = [np.prod(each[:, 2:] - each[:, :2], axis=1) for each in (box, wanted)]
    return {"found": float(((shared >= 0.5 * (sum(areas) - shared)) & (there[:, 0] > 0)).mean())}


def ssdlite() -> Trained:
    """SSDLite on MobileNetV3, with two outputs."""
    return trained(SSDLite, scenes(16, 32), epochs=5, rate=3e-3, loss=_box_loss, measure=_found)


class Pyramid(nn.Module):
    """The pooling pyramid of DeepLabV3 and its head, for pictures of 64 x 64 pixels."""

    def __init__(self, channels: int, made: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(*list(_v3_features(4))[:4])
        rates = (1, 2, 4)
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, made, 3, padding=rate, dilation=rate, bias=False),
                nn.BatchNorm2d(made),
                nn.ReLU(),
            )
            for rate in rates
        )
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, made, 1), nn.ReLU())
        self.head = nn.Sequential(
            conv(made * (len(rates) + 1), made, 1, act=nn.ReLU()), nn.Conv2d(made, 2, 1)
        )

    def forward(self, image: Tensor) -> Tensor:
        """Return the scores of two classes for each pixel, ``(n, 2, 64, 64)``."""
        x = self.body(image)
        resized = nn.functional.interpolate
        whole = resized(self.whole(x), size=x.shape[2:], mode="bilinear", align_corners=False)
        found = self.head(torch.cat([*(branch(x) for branch in self.branches), whole], 1))
        return resized(found, size=image.shape[2:], mode="bilinear", align_corners=False)


def _overlap(scores: Tensor, targets: np.ndarray) -> dict[str, float]:
    """Return the intersection over union of the pixels of digits."""
    found = scores.numpy().argmax(axis=1) == 1
    return {"overlap": float((found & (targets == 1)).sum() / (found | (targets == 1)).sum())}


def deeplab() -> Trained:
    """DeepLabV3 on MobileNetV3."""
    return trained(lambda: Pyramid(12), outlines(), epochs=4, rate=3e-3, measure=_overlap)
