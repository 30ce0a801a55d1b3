"""Networks of many families with random weights, as ONNX files; how fast a network runs does not
depend on its weights.

None of them, and none of their blocks, is drawn by ``nnpipe predict --learn``.  Those of the
package ``transformers`` are as their authors define them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

Made = tuple[Any, tuple[int, ...]]
"""A module, and the shape of its input."""


def _block(
    given: int, width: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: Any = None
) -> Any:
    from torch import nn

    parts = [
        nn.Conv2d(given, width, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(width),
    ]
    return nn.Sequential(*parts, act()) if act is not None else nn.Sequential(*parts)


def _residual(given: int, width: int, stride: int) -> Any:
    from torch import nn

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Sequential(
                _block(given, width, 3, stride, act=nn.ReLU), _block(width, width)
            )
            self.around = (
                nn.Identity() if stride == 1 and given == width else _block(given, width, 1, stride)
            )

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.inside(x) + self.around(x))

    return Residual()


def _closing(width: int, classes: int = 1000) -> list[Any]:
    from torch import nn

    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]


def resnet18() -> Made:
    """Return He et al. 2016."""
    from torch import nn

    parts = [_block(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    given = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        parts += [_residual(given, width, stride), _residual(width, width, 1)]
        given = width
    return nn.Sequential(*parts, *_closing(512)), (1, 3, 224, 224)


def resnet20() -> Made:
    """Return He et al. 2016, for CIFAR-10."""
    from torch import nn

    parts, given = [_block(3, 16, act=nn.ReLU)], 16
    for width, stride in ((16, 1), (32, 2), (64, 2)):
        parts += [_residual(given, width, stride), *(_residual(width, width, 1) for _ in range(2))]
        given = width
    return nn.Sequential(*parts, *_closing(64, 10)), (1, 3, 32, 32)


def mobilenet_v1() -> Made:
    """Return Howard et al. 2017, at half width."""
    from torch import nn

    parts, given = [_block(3, 16, 3, 2, act=nn.ReLU6)], 16
    plan = (
        (32, 1),
        (64, 2),
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        *((256, 1),) * 5,
        (512, 2),
        (512, 1),
    )
    for width, stride in plan:
        parts += [
            _block(given, given, 3, stride, given, nn.ReLU6),
            _block(given, width, 1, act=nn.ReLU6),
        ]
        given = width
    return nn.Sequential(*parts, *_closing(512)), (1, 3, 160, 160)


def _inverted(
    given: int, inner: int, width: int, kernel: int, stride: int, act: Any, gate: int = 0
) -> Any:
    from torch import nn

    class Gate(nn.Module):
        def __init__(self, less: int) -> None:
            super().__init__()
            self.weigh = nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(inner, less, 1),
                nn.ReLU(),
                nn.Conv2d(less, inner, 1),
                nn.Hardsigmoid() if act is nn.Hardswish else nn.Sigmoid(),
            )

        def forward(self, x: Any) -> Any:
            return x * self.weigh(x)

    class Inverted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parts = [] if inner == given else [_block(given, inner, 1, act=act)]
            parts.append(_block(inner, inner, kernel, stride, inner, act))
            parts += [Gate(gate)] if gate else []
            self.inside = nn.Sequential(*parts, _block(inner, width, 1))

        def forward(self, x: Any) -> Any:
            return x + self.inside(x) if stride == 1 and given == width else self.inside(x)

    return Inverted()


def mobilenet_v2() -> Made:
    """Return Sandler et al. 2018."""
    from torch import nn

    parts, given = [_block(3, 32, 3, 2, act=nn.ReLU6)], 32
    for factor, width, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for number in range(count):
            parts.append(
                _inverted(given, given * factor, width, 3, stride if number == 0 else 1, nn.ReLU6)
            )
            given = width
    return nn.Sequential(*parts, _block(320, 1280, 1, act=nn.ReLU6), *_closing(1280)), (
        1,
        3,
        224,
        224,
    )


def mobilenet_v3_small() -> Made:
    """Return Howard et al. 2019."""
    from torch import nn

    plan = (
        (3, 16, 16, True, "r", 2),
        (3, 72, 24, False, "r", 2),
        (3, 88, 24, False, "r", 1),
        (5, 96, 40, True, "h", 2),
        (5, 240, 40, True, "h", 1),
        (5, 240, 40, True, "h", 1),
        (5, 120, 48, True, "h", 1),
        (5, 144, 48, True, "h", 1),
        (5, 288, 96, True, "h", 2),
        (5, 576, 96, True, "h", 1),
        (5, 576, 96, True, "h", 1),
    )
    parts, given = [_block(3, 16, 3, 2, act=nn.Hardswish)], 16
    for kernel, inner, width, gated, word, stride in plan:
        act = nn.Hardswish if word == "h" else nn.ReLU
        parts.append(
            _inverted(
                given,
                inner,
                width,
                kernel,
                stride,
                act,
                max(8, inner // 4 // 8 * 8) if gated else 0,
            )
        )
        given = width
    closing = [
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(576, 1024),
        nn.Hardswish(),
        nn.Linear(1024, 1000),
    ]
    return nn.Sequential(*parts, _block(96, 576, 1, act=nn.Hardswish), *closing), (1, 3, 224, 224)


def squeezenet() -> Made:
    """Return Iandola et al. 2016, version 1.1."""
    import torch
    from torch import nn

    class Fire(nn.Module):
        def __init__(self, given: int, less: int, more: int) -> None:
            super().__init__()
            self.less, self.one = nn.Conv2d(given, less, 1), nn.Conv2d(less, more, 1)
            self.three = nn.Conv2d(less, more, 3, padding=1)

        def forward(self, x: Any) -> Any:
            x = nn.functional.relu(self.less(x))
            return torch.cat(
                [nn.functional.relu(self.one(x)), nn.functional.relu(self.three(x))], 1
            )

    def pool() -> Any:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2),
        nn.ReLU(),
        pool(),
        Fire(64, 16, 64),
        Fire(128, 16, 64),
        pool(),
        Fire(128, 32, 128),
        Fire(256, 32, 128),
        pool(),
        Fire(256, 48, 192),
        Fire(384, 48, 192),
        Fire(384, 64, 256),
        Fire(512, 64, 256),
        nn.Conv2d(512, 1000, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ), (1, 3, 224, 224)


def densenet() -> Made:
    """Return Huang et al. 2017: growth 12, three stages of eight layers."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, given: int) -> None:
            super().__init__()
            self.norm, self.conv = (
                nn.BatchNorm2d(given),
                nn.Conv2d(given, 12, 3, padding=1, bias=False),
            )

        def forward(self, x: Any) -> Any:
            return torch.cat([x, self.conv(nn.functional.relu(self.norm(x)))], 1)

    parts, width = [nn.Conv2d(3, 24, 3, padding=1, bias=False)], 24
    for stage in range(3):
        for _ in range(8):
            parts.append(Layer(width))
            width += 12
        if stage < 2:
            half = width // 2
            parts += [
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, half, 1, bias=False),
                nn.AvgPool2d(2),
            ]
            width = half
    return nn.Sequential(*parts, nn.BatchNorm2d(width), nn.ReLU(), *_closing(width, 10)), (
        1,
        3,
        32,
        32,
    )


def vgg() -> Made:
    """Return Simonyan and Zisserman 2015, with half as many channels, for pictures of 64 x 64."""
    from torch import nn

    parts: list[Any] = []
    given = 3
    for width, count in ((32, 2), (64, 2), (128, 3), (256, 3), (256, 3)):
        for _ in range(count):
            parts += [nn.Conv2d(given, width, 3, padding=1), nn.ReLU()]
            given = width
        parts.append(nn.MaxPool2d(2))
    closing = [nn.Flatten(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 100)]
    return nn.Sequential(*parts, *closing), (1, 3, 64, 64)


def perceptron() -> Made:
    """Return dense layers, as the autoencoder of MLPerf Tiny, of larger widths."""
    from torch import nn

    widths = (640, 512, 512, 256, 16, 256, 512, 512, 640)
    parts = [each for a, b in pairwise(widths) for each in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts[:-1]), (1, 640)


def encoder() -> Made:
    """Return four layers of a transformer over 128 vectors, as PyTorch has it (Vaswani et al.

    2017).
    """
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(256, 256) for _ in range(4))
            self.norms = nn.ModuleList(nn.LayerNorm(256) for _ in range(2))
            self.inner = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))

        def forward(self, x: Any) -> Any:
            q, k, v = (part(x).view(1, 128, 4, 64).transpose(1, 2) for part in self.parts[:3])
            y = ((q @ k.transpose(2, 3)) / 8).softmax(-1) @ v
            x = self.norms[0](x + self.parts[3](y.transpose(1, 2).reshape(1, 128, 256)))
            return self.norms[1](x + self.inner(x))

    return nn.Sequential(*(Layer() for _ in range(4))), (1, 128, 256)


def keywords() -> Made:
    """Return the depthwise network of MLPerf Tiny for keywords (Zhang et al.

    2017), at twice the width.
    """
    from torch import nn

    parts = [nn.Conv2d(1, 128, (10, 4), 2, (5, 1)), nn.BatchNorm2d(128), nn.ReLU()]
    for _ in range(4):
        parts += [_block(128, 128, 3, 1, 128, nn.ReLU), _block(128, 128, 1, act=nn.ReLU)]
    return nn.Sequential(*parts, *_closing(128, 12)), (1, 1, 49, 10)


def temporal() -> Made:
    """Return dilated convolutions along time (Bai et al. 2018)."""
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, given: int, width: int, dilation: int) -> None:
            super().__init__()
            self.inside = nn.Sequential(
                nn.Conv1d(given, width, 3, padding=dilation, dilation=dilation),
                nn.ReLU(),
                nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation),
                nn.ReLU(),
            )
            self.around = nn.Identity() if given == width else nn.Conv1d(given, width, 1)

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.inside(x) + self.around(x))

    layers = [Layer(1 if n == 0 else 48, 48, 2**n) for n in range(6)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, 10)), (
        1,
        1,
        784,
    )


def unet() -> Made:
    """Return Ronneberger et al. 2015, with 16 channels, for pictures of 96 x 96."""
    import torch
    from torch import nn

    def twice(given: int, width: int) -> Any:
        return nn.Sequential(_block(given, width, act=nn.ReLU), _block(width, width, act=nn.ReLU))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (16, 32, 64, 128)
            self.down = nn.ModuleList(
                twice(a, b) for a, b in zip((3, 16, 32, 64), widths, strict=True)
            )
            self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * b, b, 2, 2) for b in (64, 32, 16))
            self.up = nn.ModuleList(twice(2 * b, b) for b in (64, 32, 16))
            self.last = nn.Conv2d(16, 2, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for number, each in enumerate(self.down):
                x = each(nn.functional.max_pool2d(x, 2) if number else x)
                kept.append(x)
            for grow, each, side in zip(self.grow, self.up, reversed(kept[:-1]), strict=True):
                x = each(torch.cat([side, grow(x)], 1))
            return self.last(x)

    return UNet(), (1, 3, 96, 96)


def shufflenet() -> Made:
    """Return units of ShuffleNetV2 (Ma et al. 2018) of three widths."""
    import torch
    from torch import nn

    class Unit(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            half = width // 2
            self.inside = nn.Sequential(
                _block(half, half, 1, act=nn.ReLU),
                _block(half, half, 3, 1, half),
                _block(half, half, 1, act=nn.ReLU),
            )

        def forward(self, x: Any) -> Any:
            a, b = x.chunk(2, 1)
            x = torch.cat([a, self.inside(b)], 1)
            n, c, h, w = x.shape
            return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)

    parts: list[Any] = [_block(3, 24, 3, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    given = 24
    for width, count in ((116, 3), (232, 7), (464, 3)):
        parts += [_block(given, given, 3, 2, given), _block(given, width, 1, act=nn.ReLU)]
        parts += [Unit(width) for _ in range(count)]
        given = width
    return nn.Sequential(*parts, _block(464, 1024, 1, act=nn.ReLU), *_closing(1024)), (
        1,
        3,
        224,
        224,
    )


def lstm() -> Made:
    """Return two recurrent layers over 64 vectors."""
    from torch import nn

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.last = nn.LSTM(40, 128, 2, batch_first=True), nn.Linear(128, 12)

        def forward(self, x: Any) -> Any:
            return self.last(self.cells(x)[0][:, -1])

    return Last(), (1, 64, 40)


def _of_transformers(name: str, shape: tuple[int, ...], **settings: Any) -> Callable[[], Made]:
    def made() -> Made:
        import transformers
        from torch import nn

        class Scores(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                config = getattr(transformers, f"{name}Config")(**settings)
                self.inside = getattr(transformers, f"{name}ForImageClassification")(config)

            def forward(self, x: Any) -> Any:
                return self.inside(pixel_values=x).logits

        return Scores(), shape

    return made


NETWORKS: dict[str, Callable[[], Made]] = {
    "ResNet18": resnet18,
    "MobileNetV2": mobilenet_v2,
    "MobileNetV3-small": mobilenet_v3_small,
    "DenseNet": densenet,
    "transformer": encoder,
    "perceptron": perceptron,
    "TCN": temporal,
    "ResNet20": resnet20,
    "MobileNetV1": mobilenet_v1,
    "SqueezeNet": squeezenet,
    "VGG": vgg,
    "DS-CNN": keywords,
    "U-Net": unet,
    "ShuffleNetV2": shufflenet,
    "LSTM": lstm,
    "ViT": _of_transformers(
        "ViT",
        (1, 3, 224, 224),
        hidden_size=192,
        num_hidden_layers=6,
        num_attention_heads=3,
        intermediate_size=768,
    ),
    "ConvNeXt": _of_transformers(
        "ConvNext", (1, 3, 128, 128), hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 4, 2]
    ),
    "RegNet": _of_transformers(
        "RegNet",
        (1, 3, 160, 160),
        embedding_size=32,
        hidden_sizes=[24, 56, 152, 368],
        depths=[1, 1, 4, 7],
        groups_width=8,
        layer_type="x",
    ),
}
"""What builds each network; the first six or seven are of different families."""
QUICK = ("MobileNetV3-small", "DenseNet", "transformer", "perceptron", "TCN", "ResNet20")


def written(folder: Path, names: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Yield the name and the file of each network, which is written unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / f"{name}.onnx"
        if not path.exists():
            _write(NETWORKS[name], path)
        yield name, path


def _write(build: Callable[[], Made], path: Path) -> None:
    import torch

    from nnpipe.core.native_output import capture_native_output

    torch.manual_seed(0)
    module, shape = build()
    with capture_native_output():
        program = torch.onnx.export(
            module.eval(), (torch.randn(shape),), dynamo=True, verbose=False
        )
    assert program is not None
    program.save(str(path), external_data=False)
