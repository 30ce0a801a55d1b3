"""The decoder of autoencoders, whose error of reconstruction tells anomalies."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.output_decoder import INPUT, OutputDecoder
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec, show_shape
from nnpipe.decoders._input_frames import channels_first
from nnpipe.tasks.frames import frame


class ReconstructionErrorDecoder(OutputDecoder):
    """Autoencoders: the score of a sample is the difference between the model's input and its output.

    The model has one input and one output of as many numbers.  The input is taken as the model was given it, after
    scaling and quantisation.  Of images, the difference at each pixel is told, too.
    """

    tasks: ClassVar[tuple[str, ...]] = ("anomaly", "anomaly_map", "series_anomaly")
    takes_inputs: ClassVar[bool] = True

    difference: Literal["squared", "absolute"] = argument("squared", help="how each number's difference counts")
    reduction: Literal["mean", "max"] = argument("mean", help="how the differences of a sample's numbers become one")

    def check(self, io: IOSpec, inputs: Sequence[InputMeaning], spec: DatasetSpec) -> None:
        """Check that the model has one input and one output of the same number of elements."""
        if len(io.inputs) != 1 or len(io.outputs) != 1:
            given, found = (", ".join(tensor.name for tensor in side) for side in (io.inputs, io.outputs))
            raise ConfigError(
                f"{type(self).__name__} compares one input with one output; the model has {given} and {found}"
            )
        one, other = io.inputs[0].shape[1:], io.outputs[0].shape[1:]
        lengths, found_lengths = ([length or 0 for length in shape] for shape in (one, other))
        if None not in (*one, *other) and prod(lengths) != prod(found_lengths):
            raise ConfigError(
                f"the model reconstructs {show_shape(other)} from {show_shape(one)}, which differ in size"
            )

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning] = ()) -> Batch:
        """Return ``"score"``, ``(n,)`` float64.

        Of images that are reconstructed in their own shape also ``"map"``, ``(n, height, width)`` float32: the mean
        difference of each pixel's channels; and ``"frame"`` (:mod:`nnpipe.tasks.frames`).
        """
        given = outputs[INPUT + io.inputs[0].name]
        found = outputs[io.outputs[0].name]
        if given.size != found.size or len(given) != len(found):
            raise SpecMismatch(
                f"the model reconstructs {show_shape(found.shape)} from {show_shape(given.shape)}, which differ in size"
            )
        count = len(given)
        flat = count, prod(found.shape[1:])
        difference = found.reshape(flat).astype(np.float64) - given.reshape(flat)
        parts = difference**2 if self.difference == "squared" else np.abs(difference)
        decoded = {"score": parts.mean(axis=1) if self.reduction == "mean" else parts.max(axis=1)}
        meaning = next((each for each in inputs if each.name == io.inputs[0].name and each.kind == "image"), None)
        if meaning is not None and given.ndim == 4 and given.shape == found.shape:
            axis = 1 if channels_first(io.inputs[0], meaning) else 3
            pixels = parts.reshape(found.shape).mean(axis=axis).astype(np.float32)
            decoded |= {"map": pixels, "frame": frame(count, pixels.shape[1], pixels.shape[2], meaning.fit)}
        return decoded
