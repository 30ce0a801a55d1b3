"""What stands before and after a model that somebody else trained, said in options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset import DatasetSpec
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.quantization import quantize_linear
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, show_shape
from nnpipe.modelwrappers.files._layout import Fit, Shape, fit
from nnpipe.modelwrappers.files._outputs import check_classes, chosen, real, scores_of
from nnpipe.modelwrappers.files._pixels import recoloured, resized

if TYPE_CHECKING:
    from typing_extensions import Self

_SHIFT = {"uint8": 0, "int8": 128}


class Preprocessing(ModelWrapper):
    """The options that say what a foreign model wants of samples, and what its outputs mean.

    A sample goes through these steps, each left out where nothing asks for it:
    channels are converted and put into order, the image is resized, every number is divided
    by ``scale``, ``mean`` is subtracted and the rest divided by ``deviation``,
    axes are put into order, and the result is stored as the model's input is.
    """

    scale: float = argument(1.0, help="divide samples by this first; 255 makes pixels 0 to 1")
    mean: tuple[float, ...] = argument(
        (), help="subtract this after --scale: one number, or one for each channel in the order that the model has"
    )
    deviation: tuple[float, ...] = argument((), help="divide by this after --mean: one number, or one for each channel")
    channel_order: Literal["rgb", "bgr"] = argument("rgb", help="order of colours that the model takes")
    colours: Literal["keep", "convert"] = argument(
        "keep",
        help="convert: where the model takes other channels than the samples have, grey becomes three like channels, "
        "and red, green and blue become luma (ITU-R BT.601)",
    )
    layout: Literal["auto", "nhwc", "nchw"] = argument(
        "auto", help="whether channels are the last axis of the model's input or come before rows and columns"
    )
    resize: tuple[int, int] | None = argument(
        None,
        help="height and width to bring images to, bilinearly; those that the model takes if left out (files of images "
        "are better brought there at once, by the data set's --image-size)",
        minimum=1,
    )
    quantised_input: Literal["auto", "raw"] = argument(
        "auto",
        help="how samples become the 8-bit input of a quantised model: auto goes by the input's scale and zero point, "
        "raw takes pixels as they are for uint8 and pixels - 128 for int8",
    )
    result_output: str | None = argument(
        None, help="name of the output to judge; the only one, or the one that fits the data set, if left out"
    )
    class_offset: int = argument(
        0, help="classes that the model has before the first of the data set; 1 for a background class", minimum=0
    )
    class_count: int | None = argument(
        None, help="how many classes to judge; those of the data set if left out", minimum=1
    )

    def validate(self) -> None:
        """Refuse to divide by nothing."""
        if not (np.isfinite(self.scale) and self.scale != 0):
            raise ConfigError(f"--scale divides: it cannot be {self.scale:g}")
        if any(not (np.isfinite(number) and number != 0) for number in self.deviation):
            raise ConfigError("--deviation divides: none of its numbers can be 0 or infinite")
        if not all(map(np.isfinite, self.mean)):
            raise ConfigError("--mean takes finite numbers")
        if self.quantised_input == "raw" and (self.scale != 1 or self.mean or self.deviation):
            raise ConfigError("--quantised-input raw takes pixels as they are: leave out --scale, --mean, --deviation")

    def knowing(self, io: IOSpec) -> Self:
        """Give this wrapper with ``io`` known, so that no file has to be opened to ask for it."""
        copied = replace(self)
        vars(copied)["io"] = io
        return copied

    # -- fitting a data set -----------------------------------------------------------------------

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Check that samples and classes of the data set are, or can be made, those of the model.

        Raises
        ------
        ConfigError
            Naming both shapes, names or numbers of classes.
        """
        for given, taken in self._bound(tuple(t.name for t in spec.inputs)).items():
            sample = next(t for t in spec.inputs if t.name == given)
            self._check_kind(sample, taken)
            have = sample.shape[1:]
            way = self._way(have, taken)
            channels = way.channels or (have[-1] if have else None)
            for flag, numbers in (("--mean", self.mean), ("--deviation", self.deviation)):
                if len(numbers) > 1 and len(numbers) != channels:
                    raise ConfigError(
                        f"{flag} has {len(numbers)} numbers, samples of {show_shape(have)} have "
                        f"{channels if channels is not None else 'any number of'} channels"
                    )
        if spec.task != "classification":
            _ = self._result(None)
            return self
        classes = self.class_count or len(spec.class_names)
        if len(spec.class_names) != classes:
            raise ConfigError(f"--class-count is {classes}, the data set has {len(spec.class_names)}")
        check_classes(self._name, self._result(classes), classes, self.class_offset)
        return replace(self, class_count=classes).knowing(self.io)

    def _way(self, have: Shape, taken: TensorSpec) -> Fit:
        return fit(self._name, have, taken.shape[1:], self.layout, self.resize, self.colours == "convert")

    def _check_kind(self, sample: TensorSpec, taken: TensorSpec) -> None:
        if (sample.dtype == "string") != (taken.dtype == "string"):
            raise ConfigError(f"{self._name} takes {taken.dtype} in {taken.name!r}, the data set gives {sample.dtype}")
        if self.quantised_input == "raw" and (taken.dtype not in _SHIFT or sample.dtype != "uint8"):
            raise ConfigError(
                f"--quantised-input raw is for pixels (uint8) and models that take uint8 or int8; "
                f"{self._name} takes {taken.dtype}, the data set gives {sample.dtype}"
            )

    @property
    def _name(self) -> str:
        """What to call the model in messages; subclasses add the file."""
        return type(self).__name__

    def _bound(self, names: tuple[str, ...]) -> dict[str, TensorSpec]:
        """Say which input of the model each tensor of the data set goes to."""
        inputs = self.io.inputs
        if len(inputs) == len(names) == 1:
            return {names[0]: inputs[0]}
        by_name = {spec.name: spec for spec in inputs}
        if by_name.keys() != set(names):
            raise ConfigError(
                f"{self._name} takes {', '.join(by_name) or 'nothing'}, the data set gives {', '.join(names)}"
            )
        return {name: by_name[name] for name in names}

    # -- before the model ---------------------------------------------------------------------------

    def preprocess(self, inputs: Batch) -> Batch:
        """Turn samples into what the model's input stores."""
        bound = self._bound(tuple(inputs))
        return {taken.name: self._prepared(inputs[name], taken) for name, taken in bound.items()}

    def _prepared(self, samples: npt.NDArray[Any], taken: TensorSpec) -> npt.NDArray[Any]:
        if taken.dtype == "string":
            return samples
        want: Shape = taken.shape[1:]
        way = self._way(samples.shape[1:], taken)
        if way.channels is not None:
            samples = recoloured(samples, way.channels)
        if self.channel_order == "bgr" and samples.ndim == 4 and samples.shape[-1] == 3:
            samples = samples[..., ::-1]
        if way.size is not None:
            samples = resized(samples, *way.size)
        raw = self.quantised_input == "raw" and taken.dtype in _SHIFT
        if not raw and taken.dtype not in ("string", "bool"):
            samples = self._normalised(samples)
        if way.order == "nchw":
            samples = samples.transpose(0, 3, 1, 2)
        elif way.order == "hw":
            samples = samples[..., 0]
        elif way.order == "flat" and self.layout == "nchw" and samples.ndim == 4:
            samples = samples.transpose(0, 3, 1, 2)
        if way.order == "flat" and None not in want:
            samples = samples.reshape(len(samples), *(int(n or 0) for n in want))
        elif way.order == "flat" and len(want) == 1:
            samples = samples.reshape(len(samples), -1)
        if raw:
            shifted = np.rint(samples) - _SHIFT[taken.dtype]
            return np.ascontiguousarray(np.clip(shifted, *_limits(taken.dtype)).astype(taken.dtype))
        return self._stored(samples, taken)

    def _normalised(self, samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give ``(samples / scale - mean) / deviation``, in float32 unless nothing is asked for."""
        if self.scale == 1 and not self.mean and not self.deviation:
            return samples
        kind = np.float64 if samples.dtype == np.float64 else np.float32
        numbers = samples.astype(kind)
        if self.scale != 1:
            numbers /= kind(self.scale)
        if self.mean:
            numbers -= np.asarray(self.mean, kind)
        if self.deviation:
            numbers /= np.asarray(self.deviation, kind)
        return numbers

    def _stored(self, samples: npt.NDArray[Any], taken: TensorSpec) -> npt.NDArray[Any]:
        if taken.scale is not None:
            self._check_range(samples, taken)
            return quantize_linear(samples, taken.scale, taken.zero_point, taken.dtype, taken.axis)
        if taken.dtype == "bool":
            return np.ascontiguousarray(samples != 0)
        kind = _numpy_type(taken.dtype)
        if kind.kind in "iu" and samples.dtype.kind == "f":
            samples = np.clip(np.rint(samples), *_limits(taken.dtype))
        elif kind.kind in "iu" and samples.dtype != kind and not np.can_cast(samples.dtype, kind):
            samples = np.clip(samples, *_limits(taken.dtype))
        return np.ascontiguousarray(samples, kind)

    def _check_range(self, samples: npt.NDArray[Any], taken: TensorSpec) -> None:
        """Refuse samples most of which the input could not hold: they want another preprocessing."""
        if isinstance(taken.scale, tuple) or isinstance(taken.zero_point, tuple) or not samples.size:
            return
        low, high = ((limit - int(taken.zero_point or 0)) * float(taken.scale or 1) for limit in _limits(taken.dtype))
        least, most = float(samples.min()), float(samples.max())
        if least < low - (high - low) or most > high + (high - low):
            raw = " or --quantised-input raw" if self.scale == 1 and taken.dtype in _SHIFT else ""
            raise ConfigError(
                f"{self._name} takes numbers from {low:g} to {high:g} in {taken.name!r}, the samples go from {least:g} "
                f"to {most:g}: give --scale, --mean, --deviation{raw}"
            )

    # -- after the model ----------------------------------------------------------------------------

    def postprocess(self, outputs: Batch) -> Batch:
        """Give real numbers, and for a classification ``"scores"``, ``(n, classes)``."""
        if self.class_count is None:
            specs = {spec.name: spec for spec in self.io.outputs}
            wanted = [self.result_output] if self.result_output else list(outputs)
            return {name: real(outputs[name], specs[name]) for name in wanted}
        result = self._result(self.class_count)
        return {"scores": scores_of(outputs[result.name], result, self.class_count, self.class_offset)}

    def _result(self, classes: int | None) -> TensorSpec:
        scores = None if classes is None else classes + self.class_offset
        return chosen(self._name, self.io.outputs, self.result_output, scores)


def _limits(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _numpy_type(dtype: str) -> np.dtype[Any]:
    if dtype == "bfloat16":
        from ml_dtypes import bfloat16

        kind: np.dtype[Any] = np.dtype(bfloat16)
        return kind
    return np.dtype(dtype)
