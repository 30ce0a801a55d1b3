"""Every class of layer."""

from __future__ import annotations

# Classes are known once their modules are imported.
from nnpipe.layers.graph import submodel  # noqa: F401
from nnpipe.layers.vocabulary import (  # noqa: F401
    activation_layers,
    attention,
    convolutions,
    dense,
    depthwise,
    dropout,
    input,
    merging,
    normalisation,
    outputs,
    pooling,
    recurrent,
    reshaping,
    resizing,
    unknown,
    wrappers,
)
from nnpipe.layers.vocabulary.layer import Layer


def layer_classes() -> tuple[type[Layer], ...]:
    """Return the class of every layer, in the order of their declaration."""

    def below(cls: type[Layer]) -> list[type[Layer]]:
        return [found for child in cls.__subclasses__() for found in (child, *below(child))]

    return tuple(cls for cls in below(Layer) if "keras" in vars(cls) and cls.__module__.startswith("nnpipe."))
