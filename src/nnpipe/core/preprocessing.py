"""Apply the preprocessing that a model's inputs expect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.core.image_conversion import (
    Interpolation,
    convert_channels,
    resize_and_crop,
    resize_byte_images,
    resize_images,
    resize_to_letterbox,
)
from nnpipe.core.input_transform import InputTransform, transform_from
from nnpipe.core.layout import LayoutFit, Shape, fit
from nnpipe.core.quantization import quantize_linear
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import Batch, TensorSpec, show_shape

SHIFT: Mapping[str, int] = {"uint8": 0, "int8": 128}
"""The offset of pixels (uint8) that are stored without quantisation, by element type of the
input.
"""

IMAGE_SIZE = "image_size"
"""The tensor of a data set with the height and width of each image, ``(n, 2)``, if these have
different sizes.
"""

Array = npt.NDArray[Any]


def match_inputs(
    model: str, inputs: Sequence[TensorSpec], names: Sequence[str]
) -> dict[str, TensorSpec]:
    """Return the model's input for each tensor of the data set: by name, or the only input for the
    only tensor.

    Sizes of images are left out unless the model has an input of that name.

    Raises
    ------
    ConfigError
        If the names do not match; the message lists both.
    """
    by_name = {spec.name: spec for spec in inputs}
    names = [name for name in names if name != IMAGE_SIZE or name in by_name]
    if len(inputs) == len(names) == 1:
        return {names[0]: inputs[0]}
    if by_name.keys() != set(names):
        raise ConfigError(
            f"{model} takes {', '.join(by_name) or 'nothing'}, the data set gives "
            f"{', '.join(names)}"
        )
    return {name: by_name[name] for name in names}


def find_input_layout(
    model: str, have: Shape, taken: TensorSpec, meaning: InputProcessing
) -> LayoutFit:
    """Find how to convert a sample to the input's shape; raises the errors of
    :func:`~nnpipe.core.layout.fit`.
    """
    return fit(
        model,
        have,
        taken.shape[1:],
        meaning.layout,
        meaning.size,
        convert=meaning.colours == "convert",
        resize=meaning.resize != "none",
    )


def check_samples(
    model: str,
    sample: TensorSpec,
    taken: TensorSpec,
    meaning: InputProcessing,
    sample_rate: int | None = None,
) -> None:
    """Raise :class:`ConfigError` if samples of a data set, perhaps sounds, cannot be converted
    to this input.
    """
    transform = None if meaning.transform is None else transform_from(meaning.transform)
    wanted = None if transform is None else transform.raw_sample_rate()
    if transform is not None and None not in (wanted, sample_rate) and wanted != sample_rate:
        raise ConfigError(
            f"{model} takes sounds of {wanted:,} samples a second, for "
            f"{transform.format_description()}, and the data set gives {sample_rate:,}: give "
            f"--sample-rate {wanted}, or sample_rate={sample_rate} to the transform"
        )
    tokenised = transform is not None and transform.takes_text
    if tokenised and sample.dtype != "string":
        raise ConfigError(
            f"{model} takes texts, the data set gives {sample.dtype} in {sample.name!r}"
        )
    if (sample.dtype == "string") != (taken.dtype == "string" or tokenised):
        raise ConfigError(
            f"{model} takes {taken.dtype} in {taken.name!r}, the data set gives {sample.dtype}"
        )
    if meaning.quantised == "raw" and (taken.dtype not in SHIFT or sample.dtype != "uint8"):
        raise ConfigError(
            f"--quantised-input raw is for pixels (uint8) and models that take uint8 or int8; "
            f"{model} takes {taken.dtype}, the data set gives {sample.dtype}"
        )
    if meaning.quantised == "already" and (taken.scale is None or sample.dtype != taken.dtype):
        raise ConfigError(
            f"--quantised-input already is for samples that are stored as a quantised input stores "
            f"them; {model} takes {taken.dtype}{'' if taken.scale is None else ', quantised,'} in "
            f"{taken.name!r}, the data set gives {sample.dtype}"
        )
    have = sample.shape[1:]
    if transform is not None:
        have = _check_transformed(model, transform, have, taken)
    way = find_input_layout(model, have, taken, meaning)
    channels = way.channels or (have[0 if way.channels_first else -1] if have else None)
    for flag, numbers in (("--mean", meaning.mean), ("--deviation", meaning.deviation)):
        if len(numbers) > 1 and len(numbers) != channels:
            raise ConfigError(
                f"{flag} has {len(numbers)} numbers, samples of {show_shape(have)} have "
                f"{channels if channels is not None else 'any number of'} channels"
            )


def preprocess(
    model: str, inputs: Batch, taken: Sequence[TensorSpec], meanings: Mapping[str, InputProcessing]
) -> dict[str, Array]:
    """Convert samples to a model's inputs.

    Parameters
    ----------
    model
        The model's name in messages.
    inputs
        The samples of the data set, by tensor name.
    taken
        The specifications of the model's inputs.
    meanings
        The meaning of each input, by its name.

    Raises
    ------
    ConfigError
        If the samples do not fit the model's inputs.
    """
    return {
        spec.name: quantize_inputs(model, real, spec, meanings[spec.name])
        for spec, real in _iter_inputs(model, inputs, taken, meanings)
    }


def preprocess_real(
    model: str, inputs: Batch, taken: Sequence[TensorSpec], meanings: Mapping[str, InputProcessing]
) -> dict[str, Array]:
    """Do the same as :func:`preprocess` but for the last step, which converts to the inputs'
    element types.
    """
    return {spec.name: real for spec, real in _iter_inputs(model, inputs, taken, meanings)}


def _iter_inputs(
    model: str, inputs: Batch, taken: Sequence[TensorSpec], meanings: Mapping[str, InputProcessing]
) -> Iterator[tuple[TensorSpec, Array]]:
    sizes = inputs.get(IMAGE_SIZE)
    for name, spec in match_inputs(model, taken, tuple(inputs)).items():
        samples, meaning = inputs[name], meanings[spec.name]
        if sizes is None or samples.ndim != 4 or not len(samples):
            yield spec, apply_real_steps(model, samples, spec, meaning)
            continue
        images = [
            apply_real_steps(model, image[None, : size[0], : size[1]], spec, meaning, own_size=True)
            for image, size in zip(samples, sizes, strict=True)
        ]
        if len({image.shape for image in images}) > 1:
            raise ConfigError(
                f"{model} takes images of any size, but a batch needs images of one: give "
                f"--resize, or "
                "--inference-batch-size 1"
            )
        yield spec, np.concatenate(images)


def apply_real_steps(
    model: str,
    samples: Array,
    taken: TensorSpec,
    meaning: InputProcessing,
    *,
    own_size: bool = False,
) -> Array:
    """Apply all preprocessing steps but the last to samples of one size.

    Images that the data set gives in their own size are resized as an image library does it.
    """
    if taken.dtype == "string":
        return samples
    if meaning.transform is not None:
        samples = transform_from(meaning.transform).apply(samples)
    way = find_input_layout(model, samples.shape[1:], taken, meaning)
    if way.channels_first:
        samples = samples.transpose(0, 2, 3, 1)
    if way.channels == 1:
        samples = convert_channels(samples, 1)
    if meaning.channel_order == "bgr" and samples.ndim == 4 and samples.shape[-1] == 3:
        samples = samples[..., ::-1]
    if way.size is not None:
        how: Interpolation = "bicubic" if meaning.resize == "bicubic" else "bilinear"
        if meaning.fit != "squeeze":
            centred = meaning.fit == "letterbox-centre"
            samples = resize_to_letterbox(
                samples, *way.size, how, centred=centred, fill=meaning.fill
            )
        elif meaning.shortest_edge is None:
            resize = resize_byte_images if own_size and samples.dtype == np.uint8 else resize_images
            samples = resize(samples, *way.size, how)
        else:
            samples = resize_and_crop(samples, *way.size, meaning.shortest_edge, how)
    if way.channels not in (None, 1):  # the three channels are equal, so resizing one is enough
        samples = convert_channels(samples, way.channels or 0)
    channels = samples.ndim - 1
    if way.order == "nchw" or (
        way.order == "flat" and meaning.layout == "nchw" and samples.ndim == 4
    ):
        samples, channels = samples.transpose(0, 3, 1, 2), 1
    if meaning.quantised == "auto" and taken.dtype != "bool":
        samples = _normalize(samples, meaning, channels)
    want = taken.shape[1:]
    if way.order == "hw":
        samples = samples[..., 0]
    elif way.order == "flat" and None not in want:
        samples = samples.reshape(len(samples), *(int(length or 0) for length in want))
    elif way.order == "flat" and len(want) == 1:
        samples = samples.reshape(len(samples), -1)
    return samples


def _check_transformed(
    model: str, transform: InputTransform, have: Shape, taken: TensorSpec
) -> Shape:
    """Return the shape of transformed samples; raise :class:`ConfigError` if they do not fit the
    model's input.
    """
    found, want = transform.shape(have), taken.shape[1:]
    if None not in found and None not in want:
        axes, wanted = ([length or 0 for length in shape if length != 1] for shape in (found, want))
        # Axes in another order would have the same number of elements, too.
        if axes != wanted and (len(wanted) > 1 or prod(wanted) != prod(axes)):
            raise ConfigError(
                f"{model} takes samples of {show_shape(want)}; {transform.format_description()} "
                f"makes {show_shape(found)} of the data set's {show_shape(have)}"
            )
    return found


def quantize_inputs(
    model: str, samples: Array, taken: TensorSpec, meaning: InputProcessing
) -> Array:
    """Convert numbers to the input's element type: quantise by its scale and zero point, or
    round and clip.
    """
    if taken.dtype == "string" or meaning.quantised == "already":
        return np.ascontiguousarray(samples)
    if meaning.quantised == "raw" and taken.dtype in SHIFT:
        shifted = np.rint(samples) - SHIFT[taken.dtype]
        return np.ascontiguousarray(np.clip(shifted, *_get_limits(taken.dtype)).astype(taken.dtype))
    if taken.scale is not None:
        _check_range(model, samples, taken, meaning)
        return quantize_linear(samples, taken.scale, taken.zero_point, taken.dtype, taken.axis)
    if taken.dtype == "bool":
        return np.ascontiguousarray(samples != 0)
    kind = np.dtype(taken.dtype)  # numpy knows bfloat16 only once ml_dtypes is imported
    if kind.kind in "iu" and samples.dtype.kind == "f":
        samples = np.clip(np.rint(samples), *_get_limits(taken.dtype))
    elif kind.kind in "iu" and samples.dtype != kind and not np.can_cast(samples.dtype, kind):
        samples = np.clip(samples, *_get_limits(taken.dtype))
    return np.ascontiguousarray(samples, kind)


def get_representable_range(taken: TensorSpec) -> tuple[float, float] | None:
    """Return the least and greatest real number that a quantised input can represent; ``None``
    if channels differ.
    """
    if taken.scale is None or isinstance(taken.scale, tuple) or isinstance(taken.zero_point, tuple):
        return None
    low, high = (
        (limit - int(taken.zero_point or 0)) * float(taken.scale)
        for limit in _get_limits(taken.dtype)
    )
    return low, high


def _normalize(samples: Array, meaning: InputProcessing, channels: int) -> Array:
    """Return ``(samples / scale - mean) / deviation`` in float32, or the samples unchanged if
    all are neutral.
    """
    if meaning.scale == 1 and not meaning.mean and not meaning.deviation:
        return samples
    kind = np.float64 if samples.dtype == np.float64 else np.float32
    found: Array = samples.astype(kind, order="C")
    behind = (1,) * (samples.ndim - 1 - channels)
    if meaning.scale != 1:
        found /= kind(meaning.scale)
    if meaning.mean:
        found -= np.asarray(meaning.mean, kind).reshape(-1, *behind)
    if meaning.deviation:
        found /= np.asarray(meaning.deviation, kind).reshape(-1, *behind)
    return found


def _check_range(model: str, samples: Array, taken: TensorSpec, meaning: InputProcessing) -> None:
    """Raise an error if the input cannot represent most of the samples: then the preprocessing
    must be wrong.
    """
    held = get_representable_range(taken)
    if held is None or not samples.size:
        return
    low, high = held
    least, most = float(samples.min()), float(samples.max())
    if least < low - (high - low) or most > high + (high - low):
        raw = " or --quantised-input raw" if meaning.scale == 1 and taken.dtype in SHIFT else ""
        raise ConfigError(
            f"{model} takes numbers from {low:g} to {high:g} in {taken.name!r}, the samples go "
            f"from {least:g} to {most:g}: give --scale, --mean, --deviation{raw}"
        )


def _get_limits(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
