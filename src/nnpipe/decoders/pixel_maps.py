"""Decoders of models that tell of each pixel its class, or how unusual it is."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.image_conversion import resize_images
from nnpipe.core.output_decoder import INPUT, OutputDecoder
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec, show_shape
from nnpipe.decoders._input_frames import compute_frames, get_input_size, is_channels_first
from nnpipe.tasks.anomaly_map.task import AnomalyMaps
from nnpipe.tasks.frames import create_frames
from nnpipe.tasks.segmentation.task import Segmentation


class SegmentationDecoder(OutputDecoder):
    """Segmenters: class numbers or scores of each pixel, at the size of the model's input or a
    smaller one.

    The output is class numbers ``(n, height, width)``, perhaps with an axis of length 1, or scores
    ``(n, height, width, classes)`` or ``(n, classes, height, width)``.  Scores of less than the
    input's size are enlarged (bilinear) before the greatest is chosen.  Each pixel of a picture
    then gets the class of the nearest pixel of the input.
    """

    tasks: ClassVar[tuple[str, ...]] = (Segmentation.name,)

    output: str | None = argument(None, help="name of the output, if there are several")
    scores: Literal["auto", "last", "first", "none"] = argument(
        "auto",
        help="whether the axis of classes is the last, or the first behind that of samples; or "
        "none: class numbers. auto: floats are scores, and the other two axes have the aspect "
        "ratio of the input",
    )
    threshold: float = argument(
        0.5,
        help=(
            "score above which a pixel is of class 1, where there is one score; 0 for scores "
            "before the sigmoid"
        ),
    )
    class_numbers: tuple[int, ...] | None = argument(
        None,
        help="the data set's number of each class of the model, in its order, if they differ",
        minimum=0,
    )
    enlarge: Literal["scores", "classes"] = argument(
        "scores",
        help=(
            "whether scores are enlarged to the input's size before the greatest is chosen, or its "
            "class"
        ),
    )

    def check(self, io: IOSpec, inputs: Sequence[InputProcessing], spec: DatasetSpec) -> None:
        """Check that there is such an output, and that its classes are those of the data set."""
        output = self._find_output(io)
        shape = output.shape
        if len(shape) not in (3, 4):
            raise ConfigError(
                f"{type(self).__name__} reads masks (n, height, width), not {show_shape(shape)}"
            )
        known = len(spec.class_names)
        if self.class_numbers is not None and known and max(self.class_numbers, default=0) >= known:
            raise ConfigError(
                f"class_numbers names class {max(self.class_numbers)}, and the data set has "
                f"{known} classes, from 0"
            )
        scored = (
            output.scale is not None or _is_score(output.dtype)
            if self.scores == "auto"
            else self.scores != "none"
        )
        if scored and known and len(shape) == 4:
            try:
                count = shape[self._find_class_axis(shape, get_input_size(io, inputs))]
            except SpecMismatch as error:
                raise ConfigError(str(error)) from None
            wanted = known if self.class_numbers is None else len(self.class_numbers)
            if count not in (None, 1, wanted):
                raise ConfigError(
                    f"the model scores {count} classes, and "
                    f"{'class_numbers' if self.class_numbers else 'the data set'}"
                    f" has {wanted}: give --decoder-options class_numbers=..., the data set's "
                    f"number of each of them"
                )

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing] = ()) -> Batch:
        """Return ``"mask"``, class numbers ``(n, height, width)`` of the input's size, and
        ``"frame"``.
        """
        output = outputs[self._find_output(io).name]
        if output.ndim not in (3, 4):
            raise SpecMismatch(
                f"expected masks (n, height, width) or scores; the model gives {output.shape}"
            )
        scored = _is_score(output.dtype.name) if self.scores == "auto" else self.scores != "none"
        mask = (
            self._classify_pixels(output, get_input_size(io, inputs))
            if scored
            else _remove_unit_axis(output)
        )
        if mask.dtype.kind not in "iu":
            mask = np.rint(mask).astype(np.int64)
        if self.class_numbers is not None:
            if mask.size and not 0 <= int(mask.min()) <= int(mask.max()) < len(self.class_numbers):
                raise SpecMismatch(
                    f"the model gives classes from {int(mask.min())} to {int(mask.max())}, and "
                    f"class_numbers has {len(self.class_numbers)} numbers, for classes from 0"
                )
            mask = np.array(self.class_numbers, np.int64)[mask]
        return {"mask": mask, "frame": compute_frames(len(mask), io, inputs)}

    def _classify_pixels(
        self, output: npt.NDArray[Any], size: tuple[int, int]
    ) -> npt.NDArray[np.int64]:
        """Return the class with the greatest score of each pixel; a picture at a time, since
        scores may be large.
        """
        if output.ndim == 3:
            output = output[..., None]
        if self._find_class_axis(output.shape, size) == 1:
            output = output.transpose(0, 2, 3, 1)
        masks = []
        for scores in output:
            if self.enlarge == "scores" and scores.shape[:2] != size:
                scores = resize_images(scores[None], *size)[0]
            masks.append(
                scores[..., 0] > self.threshold if scores.shape[2] == 1 else scores.argmax(axis=2)
            )
        return (
            np.array(masks, np.int64).reshape(len(masks), *masks[0].shape)
            if masks
            else np.zeros((0, *size), int)
        )

    def _find_class_axis(self, shape: Sequence[int | None], size: tuple[int, int]) -> int:
        """Return the axis of classes, 1 or 3: with it, the other two have the aspect ratio of
        the input.
        """
        if self.scores in ("first", "last"):
            return 1 if self.scores == "first" else 3
        first, rows, last = (int(length or 0) for length in shape[1:])
        misfits = {
            1: abs(rows * size[1] - last * size[0]),
            3: abs(first * size[1] - rows * size[0]),
        }
        if misfits[1] != misfits[3]:
            return min(misfits, key=misfits.__getitem__)
        return 1 if first < last else 3

    def _find_output(self, io: IOSpec) -> TensorSpec:
        names = [spec.name for spec in io.outputs]
        if self.output is None and len(names) == 1:
            return io.outputs[0]
        for spec in io.outputs:
            if spec.name == self.output:
                return spec
        raise ConfigError(
            f"the model has the outputs {', '.join(names)}: say which is the mask with "
            f"--decoder-options output=NAME"
        )


def _is_score(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _remove_unit_axis(output: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return class numbers ``(n, height, width)``, without an axis of length 1."""
    if output.ndim == 3:
        return output
    if 1 not in (output.shape[1], output.shape[3]):
        raise SpecMismatch(
            f"class numbers are (n, height, width), and the model gives {output.shape}; if these "
            f"are scores, give "
            "--decoder-options scores=last or scores=first"
        )
    found: npt.NDArray[Any] = output[:, 0] if output.shape[1] == 1 else output[..., 0]
    return found


class AnomalyMapDecoder(OutputDecoder):
    """Models that give an anomaly map, and perhaps a score of the whole picture, as anomalib
    exports them.

    The map is ``(n, rows, columns)``, perhaps with an axis of length 1, and of any size; the score
    is ``(n,)`` or ``(n, 1)``.  Without a score, a picture's is the greatest of its pixels.
    """

    tasks: ClassVar[tuple[str, ...]] = (AnomalyMaps.name,)

    map_output: str | None = argument(
        None,
        help=(
            "name of the output with the map, if there are several such; by default the one named "
            "...map"
        ),
    )
    score_output: str | None = argument(
        None,
        help="name of the output with the score of a picture; by default the one named ...score",
    )

    def check(self, io: IOSpec, inputs: Sequence[InputProcessing], spec: DatasetSpec) -> None:
        """Check that there is an output with the map."""
        try:
            self._find_outputs({each.name: each.shape for each in io.outputs})
        except SpecMismatch as error:
            raise ConfigError(str(error)) from None

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing] = ()) -> Batch:
        """Return ``"map"``, ``(n, rows, columns)``, perhaps ``"score"``, ``(n,)``, and
        ``"frame"``.
        """
        named, scored = self._find_outputs({name: each.shape for name, each in outputs.items()})
        found = outputs[named]
        if found.ndim == 4:
            found = found[:, 0] if found.shape[1] == 1 else found[..., 0]
        score = {} if scored is None else {"score": outputs[scored].reshape(len(found))}
        return {
            "map": found.astype(np.float32),
            **score,
            "frame": compute_frames(len(found), io, inputs),
        }

    def _find_outputs(self, shapes: dict[str, tuple[int | None, ...]]) -> tuple[str, str | None]:
        """Return the names of the outputs with the map and, if there is one, with the score."""
        maps = {
            name: shape
            for name, shape in shapes.items()
            if len(shape) == 3
            or (len(shape) == 4 and (shape[1] in (1, None) or shape[3] in (1, None)))
        }
        flat = {
            name
            for name, shape in shapes.items()
            if len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
        }
        named = (
            [name for name in maps if name.lower().endswith("map")] if len(maps) > 1 else list(maps)
        )
        if self.map_output is not None:
            named = [name for name in maps if name == self.map_output]
        scored = [name for name in flat if name.lower().endswith("score")]
        if self.score_output is not None:
            scored = [name for name in flat if name == self.score_output]
        if len(named) != 1 or (self.score_output is not None and not scored):
            given = ", ".join(f"{name} {show_shape(shape)}" for name, shape in shapes.items())
            raise SpecMismatch(
                f"expected a map (n, rows, columns) and perhaps a score (n,); the model gives "
                f"{given}: name them with "
                "--decoder-options map_output=NAME score_output=NAME"
            )
        return named[0], scored[0] if len(scored) == 1 else None


class ReconstructionErrorDecoder(OutputDecoder):
    """Autoencoders: the score of a sample is the difference between the model's input and its
    output.

    The model has one input and one output of as many numbers.  The input is taken as the model was
    given it, after scaling and quantisation.  Of images, the difference at each pixel is told, too.
    """

    tasks: ClassVar[tuple[str, ...]] = ("anomaly", "anomaly_map", "series_anomaly")
    takes_inputs: ClassVar[bool] = True

    difference: Literal["squared", "absolute"] = argument(
        "squared", help="how each number's difference counts"
    )
    reduction: Literal["mean", "max"] = argument(
        "mean", help="how the differences of a sample's numbers become one"
    )

    def check(self, io: IOSpec, inputs: Sequence[InputProcessing], spec: DatasetSpec) -> None:
        """Check that the model has one input and one output of the same number of elements."""
        if len(io.inputs) != 1 or len(io.outputs) != 1:
            given, found = (
                ", ".join(tensor.name for tensor in side) for side in (io.inputs, io.outputs)
            )
            raise ConfigError(
                f"{type(self).__name__} compares one input with one output; the model has {given} "
                f"and {found}"
            )
        one, other = io.inputs[0].shape[1:], io.outputs[0].shape[1:]
        lengths, found_lengths = ([length or 0 for length in shape] for shape in (one, other))
        if None not in (*one, *other) and prod(lengths) != prod(found_lengths):
            raise ConfigError(
                f"the model reconstructs {show_shape(other)} from {show_shape(one)}, which differ "
                f"in size"
            )

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing] = ()) -> Batch:
        """Return ``"score"``, ``(n,)`` float64.

        Of images that are reconstructed in their own shape also ``"map"``, ``(n, height, width)``
        float32: the mean difference of each pixel's channels; and ``"frame"``
        (:mod:`nnpipe.tasks.frames`).
        """
        given = outputs[INPUT + io.inputs[0].name]
        found = outputs[io.outputs[0].name]
        if given.size != found.size or len(given) != len(found):
            raise SpecMismatch(
                f"the model reconstructs {show_shape(found.shape)} from {show_shape(given.shape)}, "
                f"which differ in size"
            )
        count = len(given)
        flat = count, prod(found.shape[1:])
        difference = found.reshape(flat).astype(np.float64) - given.reshape(flat)
        parts = difference**2 if self.difference == "squared" else np.abs(difference)
        decoded = {"score": parts.mean(axis=1) if self.reduction == "mean" else parts.max(axis=1)}
        meaning = next(
            (each for each in inputs if each.name == io.inputs[0].name and each.kind == "image"),
            None,
        )
        if meaning is not None and given.ndim == 4 and given.shape == found.shape:
            axis = 1 if is_channels_first(io.inputs[0], meaning) else 3
            pixels = parts.reshape(found.shape).mean(axis=axis).astype(np.float32)
            decoded |= {
                "map": pixels,
                "frame": create_frames(count, pixels.shape[1], pixels.shape[2], meaning.fit),
            }
        return decoded
