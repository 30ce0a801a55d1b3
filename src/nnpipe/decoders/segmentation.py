"""The decoder of models that tell the class of each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.image_conversion import resized
from nnpipe.core.output_decoder import OutputDecoder
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, show_shape
from nnpipe.decoders._input_frames import frames, input_size
from nnpipe.tasks.segmentation.task import Segmentation


class SegmentationDecoder(OutputDecoder):
    """Segmenters: class numbers or scores of each pixel, at the size of the model's input or a smaller one.

    The output is class numbers ``(n, height, width)``, perhaps with an axis of length 1, or scores ``(n, height,
    width, classes)`` or ``(n, classes, height, width)``.  Scores of less than the input's size are enlarged (bilinear)
    before the greatest is chosen.  Each pixel of a picture then gets the class of the nearest pixel of the input.
    """

    tasks: ClassVar[tuple[str, ...]] = (Segmentation.name,)

    output: str | None = argument(None, help="name of the output, if there are several")
    scores: Literal["auto", "last", "first", "none"] = argument(
        "auto",
        help="whether the axis of classes is the last, or the first behind that of samples; or none: class numbers. "
        "auto: floats are scores, and the other two axes have the aspect ratio of the input",
    )
    threshold: float = argument(
        0.5, help="score above which a pixel is of class 1, where there is one score; 0 for scores before the sigmoid"
    )
    class_numbers: tuple[int, ...] | None = argument(
        None, help="the data set's number of each class of the model, in its order, if they differ", minimum=0
    )
    enlarge: Literal["scores", "classes"] = argument(
        "scores", help="whether scores are enlarged to the input's size before the greatest is chosen, or its class"
    )

    def check(self, io: IOSpec, inputs: Sequence[InputMeaning], spec: DatasetSpec) -> None:
        """Check that there is such an output, and that its classes are those of the data set."""
        output = self._chosen(io)
        shape = output.shape
        if len(shape) not in (3, 4):
            raise ConfigError(f"{type(self).__name__} reads masks (n, height, width), not {show_shape(shape)}")
        known = len(spec.class_names)
        if self.class_numbers is not None and known and max(self.class_numbers, default=0) >= known:
            raise ConfigError(
                f"class_numbers names class {max(self.class_numbers)}, and the data set has {known} classes, from 0"
            )
        scored = output.scale is not None or _is_score(output.dtype) if self.scores == "auto" else self.scores != "none"
        if scored and known and len(shape) == 4:
            try:
                count = shape[self._axis(shape, input_size(io, inputs))]
            except SpecMismatch as error:
                raise ConfigError(str(error)) from None
            wanted = known if self.class_numbers is None else len(self.class_numbers)
            if count not in (None, 1, wanted):
                raise ConfigError(
                    f"the model scores {count} classes, and {'class_numbers' if self.class_numbers else 'the data set'}"
                    f" has {wanted}: give --decoder-options class_numbers=..., the data set's number of each of them"
                )

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning] = ()) -> Batch:
        """Return ``"mask"``, class numbers ``(n, height, width)`` of the input's size, and ``"frame"``."""
        output = outputs[self._chosen(io).name]
        if output.ndim not in (3, 4):
            raise SpecMismatch(f"expected masks (n, height, width) or scores; the model gives {output.shape}")
        scored = _is_score(output.dtype.name) if self.scores == "auto" else self.scores != "none"
        mask = self._of_scores(output, input_size(io, inputs)) if scored else _without_axis(output)
        if mask.dtype.kind not in "iu":
            mask = np.rint(mask).astype(np.int64)
        if self.class_numbers is not None:
            if mask.size and not 0 <= int(mask.min()) <= int(mask.max()) < len(self.class_numbers):
                raise SpecMismatch(
                    f"the model gives classes from {int(mask.min())} to {int(mask.max())}, and class_numbers has "
                    f"{len(self.class_numbers)} numbers, for classes from 0"
                )
            mask = np.array(self.class_numbers, np.int64)[mask]
        return {"mask": mask, "frame": frames(len(mask), io, inputs)}

    def _of_scores(self, output: npt.NDArray[Any], size: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return the class with the greatest score of each pixel; a picture at a time, since scores may be large."""
        if output.ndim == 3:
            output = output[..., None]
        if self._axis(output.shape, size) == 1:
            output = output.transpose(0, 2, 3, 1)
        masks = []
        for scores in output:
            if self.enlarge == "scores" and scores.shape[:2] != size:
                scores = resized(scores[None], *size)[0]
            masks.append(scores[..., 0] > self.threshold if scores.shape[2] == 1 else scores.argmax(axis=2))
        return np.array(masks, np.int64).reshape(len(masks), *masks[0].shape) if masks else np.zeros((0, *size), int)

    def _axis(self, shape: Sequence[int | None], size: tuple[int, int]) -> int:
        """Return the axis of classes, 1 or 3: with it, the other two have the aspect ratio of the input."""
        if self.scores in ("first", "last"):
            return 1 if self.scores == "first" else 3
        first, rows, last = (int(length or 0) for length in shape[1:])
        misfits = {1: abs(rows * size[1] - last * size[0]), 3: abs(first * size[1] - rows * size[0])}
        if misfits[1] != misfits[3]:
            return min(misfits, key=misfits.__getitem__)
        return 1 if first < last else 3

    def _chosen(self, io: IOSpec) -> TensorSpec:
        names = [spec.name for spec in io.outputs]
        if self.output is None and len(names) == 1:
            return io.outputs[0]
        for spec in io.outputs:
            if spec.name == self.output:
                return spec
        raise ConfigError(
            f"the model has the outputs {', '.join(names)}: say which is the mask with --decoder-options output=NAME"
        )


def _is_score(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _without_axis(output: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return class numbers ``(n, height, width)``, without an axis of length 1."""
    if output.ndim == 3:
        return output
    if 1 not in (output.shape[1], output.shape[3]):
        raise SpecMismatch(
            f"class numbers are (n, height, width), and the model gives {output.shape}; if these are scores, give "
            "--decoder-options scores=last or scores=first"
        )
    found: npt.NDArray[Any] = output[:, 0] if output.shape[1] == 1 else output[..., 0]
    return found
