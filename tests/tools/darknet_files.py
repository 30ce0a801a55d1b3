"""Writes networks of Darknet, and computes them, by other code than nnpipe's: with the
normalisation on its own.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Section = tuple[str, dict[str, Any]]

TINY: list[Section] = [
    ("net", {"batch": 1, "width": 64, "height": 32, "channels": 3}),
    (
        "convolutional",
        {
            "batch_normalize": 1,
            "filters": 4,
            "size": 3,
            "stride": 1,
            "pad": 1,
            "activation": "leaky",
        },
    ),
    ("maxpool", {"size": 2, "stride": 2}),
    (
        "convolutional",
        {
            "batch_normalize": 1,
            "filters": 8,
            "size": 3,
            "stride": 2,
            "pad": 1,
            "activation": "leaky",
        },
    ),
    (
        "convolutional",
        {
            "batch_normalize": 1,
            "filters": 8,
            "size": 1,
            "stride": 1,
            "pad": 1,
            "activation": "leaky",
        },
    ),
    ("shortcut", {"from": -2, "activation": "linear"}),
    ("maxpool", {"size": 2, "stride": 1}),
    ("convolutional", {"filters": 14, "size": 1, "stride": 1, "pad": 1, "activation": "linear"}),
    ("yolo", {"mask": "2,3", "anchors": "4,5, 8,9, 12,20, 30,25", "classes": 2, "num": 4}),
    ("route", {"layers": -4}),
    ("upsample", {"stride": 2}),
    ("route", {"layers": "-1, 1"}),
    ("convolutional", {"filters": 14, "size": 1, "stride": 1, "pad": 1, "activation": "linear"}),
    ("yolo", {"mask": "0,1", "anchors": "4,5, 8,9, 12,20, 30,25", "classes": 2, "num": 4}),
]
"""A network with every kind of layer that YOLOv3 and tiny YOLOv3 have, and two heads."""

_FUNCTIONS = ("leaky", "linear", "relu", "logistic")


def write_cfg(path: Path, sections: Sequence[Section]) -> Path:
    """Write the sections of a network."""
    lines = ["# made for a test"]
    for kind, options in sections:
        lines += [f"[{kind}]", *(f"{name} = {value}" for name, value in options.items()), ""]
    path.write_text("\n".join(lines))
    return path


def write_weights(
    path: Path, parameters: Sequence[dict[str, np.ndarray]], version: tuple[int, int] = (0, 2)
) -> Path:
    """Write the parameters of the convolutions in order."""
    head = struct.pack("<iii", *version, 0) + struct.pack(
        "<q" if version[0] * 10 + version[1] >= 2 else "<i", 32
    )
    arrays = [
        own[name].astype("<f4").tobytes()
        for own in parameters
        for name in ("bias", "scale", "mean", "variance", "kernel")
        if name in own
    ]
    path.write_bytes(head + b"".join(arrays))
    return path


def drawn_parameters(sections: Sequence[Section], seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Return random parameters of the convolutions."""
    rng, found = np.random.default_rng(seed), []
    channels: list[int] = []
    before = int(sections[0][1].get("channels", 3))
    for kind, options in sections[1:]:
        if kind == "convolutional":
            filters, size = options["filters"], options["size"]
            fan = before * size * size
            own = {
                "kernel": rng.normal(
                    0, fan**-0.5, (filters, before // options.get("groups", 1), size, size)
                )
            }
            own["bias"] = rng.normal(0, 0.3, filters)
            if options.get("batch_normalize"):
                own |= {
                    "scale": rng.uniform(0.5, 1.5, filters),
                    "mean": rng.normal(0, 0.3, filters),
                }
                own["variance"] = rng.uniform(0.01, 2, filters)
            found.append({name: array.astype(np.float32) for name, array in own.items()})
            before = filters
        elif kind == "route":
            layers = [int(n) for n in str(options["layers"]).split(",")]
            before = sum(channels[n] for n in layers)
        channels.append(before)
    return found


def computed(
    sections: Sequence[Section], parameters: Sequence[dict[str, np.ndarray]], picture: Any
) -> list[Any]:
    """Return the numbers of the heads, given pictures ``(n, channels, height, width)`` as a
    tensor.
    """
    import torch
    from torch.nn import functional

    def function(x: Any, name: str) -> Any:
        if name == "leaky":
            return torch.where(x > 0, x, 0.1 * x)
        return {
            "linear": lambda: x,
            "relu": lambda: x.clamp_min(0),
            "logistic": lambda: 1 / (1 + torch.exp(-x)),
        }[name]()

    outputs: list[Any] = []
    heads, own, x = [], iter(parameters), picture
    for kind, options in sections[1:]:
        if kind == "convolutional":
            found = {name: torch.from_numpy(array) for name, array in next(own).items()}
            columns = {name: found[name].reshape(1, -1, 1, 1) for name in found if name != "kernel"}
            pad = options["size"] // 2 if options.get("pad") else 0
            x = functional.conv2d(x, found["kernel"], stride=options["stride"], padding=pad)
            if options.get("batch_normalize"):
                x = (x - columns["mean"]) / (columns["variance"].sqrt() + 1e-6) * columns["scale"]
            x = function(x + columns["bias"], options.get("activation", "logistic"))
        elif kind == "maxpool":
            size, stride = options["size"], options["stride"]
            left, extra = (size - 1) // 2, size - 1
            height, width = x.shape[2:]
            wide = functional.pad(x, (left, extra + size, left, extra + size), value=float("-inf"))
            rows, columns = ((side + extra - size) // stride + 1 for side in (height, width))
            x = (
                wide.unfold(2, size, stride)
                .unfold(3, size, stride)
                .amax((-1, -2))[:, :, :rows, :columns]
            )
        elif kind == "shortcut":
            x = function(x + outputs[options["from"]], options.get("activation", "linear"))
        elif kind == "route":
            x = torch.cat([outputs[int(n)] for n in str(options["layers"]).split(",")], 1)
        elif kind == "upsample":
            x = x.repeat_interleave(options["stride"], 2).repeat_interleave(options["stride"], 3)
        elif kind == "yolo":
            heads.append(x)
        outputs.append(x)
    return heads


def drawn_sections(seed: int) -> list[Section]:
    """Return a random small network."""
    draw = random.Random(seed)
    height, width, channels = (
        draw.choice((16, 24, 31)),
        draw.choice((16, 20, 33)),
        draw.choice((1, 3)),
    )
    found: list[Section] = [("net", {"width": width, "height": height, "channels": channels})]
    shapes: list[tuple[int, int, int]] = []
    shape = (channels, height, width)
    for _ in range(draw.randint(2, 9)):
        kinds = ["convolutional", "convolutional", "maxpool", "upsample"] + (
            ["shortcut", "route"] if shapes else []
        )
        kind, options = draw.choice(kinds), {}
        if kind == "convolutional":
            size, stride = draw.choice((1, 2, 3, 5)), draw.choice((1, 1, 2))
            options = {
                "filters": draw.randint(1, 6),
                "size": size,
                "stride": stride,
                "pad": draw.randint(0, 1),
                "batch_normalize": draw.randint(0, 1),
                "activation": draw.choice(_FUNCTIONS),
            }
            pad = size // 2 if options["pad"] else 0
            sides = [(side + 2 * pad - size) // stride + 1 for side in shape[1:]]
            after = (options["filters"], *sides)
        elif kind == "maxpool":
            options = {"size": draw.choice((2, 3, 5)), "stride": draw.choice((1, 2, 3))}
            after = (shape[0], *((side - 1) // options["stride"] + 1 for side in shape[1:]))
        elif kind == "upsample":
            options = {"stride": 2}
            after = (shape[0], 2 * shape[1], 2 * shape[2])
        else:
            same = [n - len(shapes) for n, other in enumerate(shapes) if other[1:] == shape[1:]]
            if kind == "shortcut":
                same = [n for n in same if shapes[n] == shape]
                options = (
                    {"from": draw.choice(same), "activation": draw.choice(("linear", "leaky"))}
                    if same
                    else {}
                )
                after = shape
            else:
                taken = [draw.choice(same) for _ in range(draw.randint(1, 3))] if same else []
                options = {"layers": ", ".join(map(str, taken))} if taken else {}
                after = (sum(shapes[n][0] for n in taken), *shape[1:])
        if not options or min(after) < 1 or max(after) > 80:
            continue
        found.append((kind, options))
        shapes.append(after)
        shape = after
    classes = draw.randint(1, 3)
    head = {"filters": 2 * (5 + classes), "size": 1, "stride": 1, "pad": 1, "activation": "linear"}
    return [
        *found,
        ("convolutional", head),
        ("yolo", {"mask": "0,1", "anchors": "3,4, 8,6", "classes": classes}),
    ]
