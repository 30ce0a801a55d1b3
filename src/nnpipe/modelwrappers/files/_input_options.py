"""The options and the description that say how samples are prepared and outputs decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument, list_arguments
from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.component import parse_arguments
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.input_transform import InputTransform, transform_of_words
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.output_decoder import OutputDecoder
from nnpipe.core.registry import find, find_installed
from nnpipe.core.tensors import DatasetSpec

ELSE = "; by default as in the model's description, or else"
"""How the help of an option begins to tell its default."""


class InputOptions(ModelWrapper):
    """Options for the inputs that a model from a file expects."""

    abstract: ClassVar[bool] = True

    transform: str | None = argument(
        None,
        help=(
            f"input transform that is applied to raw samples first, such as MFCC; none for no "
            f"transform{ELSE} none"
        ),
    )
    transform_options: tuple[str, ...] | None = argument(
        None, help="its arguments, each as NAME=VALUE; nnpipe info MFCC shows those of MFCC"
    )
    scale: float | None = argument(
        None, help=f"divide samples by this first; 255 makes pixels 0 to 1{ELSE} 1"
    )
    mean: tuple[float, ...] | None = argument(
        None,
        help=(
            f"subtract this after --scale: one number, or one per channel in the model's "
            f"order{ELSE} nothing"
        ),
    )
    deviation: tuple[float, ...] | None = argument(
        None, help=f"divide by this after --mean: one number, or one per channel{ELSE} 1"
    )
    channel_order: Literal["rgb", "bgr"] | None = argument(
        None, help=f"order of the colour channels in the model's input{ELSE} rgb"
    )
    colours: Literal["keep", "convert"] | None = argument(
        None,
        help="convert adapts the number of channels to the model: grey becomes three equal "
        "channels, and red, green "
        f"and blue become luma (ITU-R BT.601){ELSE} keep",
    )
    layout: Literal["auto", "nhwc", "nchw"] | None = argument(
        None,
        help=f"whether channels are the last axis of the model's input or before rows and "
        f"columns{ELSE} auto, "
        "which derives it from the input's shape",
    )
    resize: tuple[int, int] | None = argument(
        None,
        help="height and width to which images of another size are resized, bilinearly (for image "
        "files, prefer the "
        f"data set's --image-size){ELSE} they are rejected",
        minimum=1,
    )
    fit: Literal["squeeze", "letterbox", "letterbox-centre"] | None = argument(
        None,
        help="how images of another size are brought to the model's: squeeze changes their aspect "
        "ratio; letterbox keeps it, and places them in the top left corner, letterbox-centre in "
        "the centre"
        f"{ELSE} squeeze, and only with --resize",
    )
    fill: float | None = argument(
        None, help=f"value of the pixels that --fit letterbox leaves over, before --scale{ELSE} 114"
    )
    quantised_input: Literal["auto", "raw", "already"] | None = argument(
        None,
        help="how samples become the 8-bit input of a quantised model: auto quantises with the "
        "input's scale and zero point, raw takes pixels unchanged for uint8 and pixels - 128 for "
        "int8, already takes samples that are "
        f"quantised already{ELSE} auto",
    )

    def validate(self) -> None:
        """Check that divisors are not 0, numbers are finite, and options do not contradict each
        other.
        """
        _ = self._transform
        if self.scale is not None and not (np.isfinite(self.scale) and self.scale != 0):
            raise ConfigError(f"--scale divides: it cannot be {self.scale:g}")
        if any(not (np.isfinite(number) and number != 0) for number in self.deviation or ()):
            raise ConfigError("--deviation divides: none of its numbers can be 0 or infinite")
        if not all(map(np.isfinite, self.mean or ())):
            raise ConfigError("--mean takes finite numbers")
        if self.quantised_input in ("raw", "already") and (
            self.scale not in (None, 1) or self.mean or self.deviation
        ):
            what = "pixels" if self.quantised_input == "raw" else "samples"
            raise ConfigError(
                f"--quantised-input {self.quantised_input} takes {what} as they are: "
                "leave out --scale, --mean, --deviation"
            )

    @cached_property
    def _transform(self) -> InputTransform | None:
        """The transform that the options name."""
        if self.transform is None or self.transform == "none":
            if self.transform_options:
                raise ConfigError("--transform-options are for --transform; name it")
            return None
        return transform_of_words(self.transform, self.transform_options or ())

    @property
    def _given(self) -> dict[str, Any]:
        """The options about samples, by the field names of :class:`InputProcessing`."""
        names = ("scale", "mean", "deviation", "channel_order", "colours", "layout", "fit", "fill")
        said: dict[str, Any] = {name: getattr(self, name) for name in names}
        said["quantised"] = self.quantised_input
        if self.fit is not None:
            said |= {"resize": "bilinear", "shortest_edge": None}
        if self.resize is not None:
            said |= {"resize": "bilinear", "size": self.resize, "shortest_edge": None}
        found = {
            name: value
            for name, value in said.items()
            if value is not None or name == "shortest_edge"
        }
        if self.transform is not None:
            found["transform"] = (
                None if self._transform is None else self._transform.pack_files().describe()
            )
            found |= {"kind": "features"} if self._transform else {}
        return found


def select_decoder(
    known: OutputDecoder | None, name: str | None, options: Sequence[str]
) -> OutputDecoder | None:
    """Return the decoder with this name, or the known one, with the arguments that options state.

    Parameters
    ----------
    known
        The decoder in the model's description, whose arguments are kept unless options change them.
    name
        The name of a class; ``"none"`` for no decoder; ``None`` for the known one.
    options
        Words such as ``score_threshold=0.25``.

    Raises
    ------
    ComponentNotFound
        If there is no such class.
    ConfigError
        If an option is unknown or malformed, or there are options and no decoder.
    """
    cls = (
        find(name, OutputDecoder)
        if name not in (None, "none")
        else None
        if known is None
        else type(known)
    )
    if name == "none" or cls is None:
        if options:
            raise ConfigError("--decoder-options are for a decoder: name one with --decoder")
        return None
    kept = known.to_json() if known is not None and type(known) is cls else {}
    return cls.from_json({**kept, **parse_arguments(cls, options)})


def check_task(model: str, decoder: OutputDecoder, spec: DatasetSpec) -> None:
    """Raise :class:`ConfigError` if a decoder's predictions are for other tasks than that of a
    data set.
    """
    if decoder.tasks and spec.task not in decoder.tasks:
        raise ConfigError(
            f"{model} is decoded by {type(decoder).__name__} for {' or '.join(decoder.tasks)}, and "
            f"the data set is for {spec.task}"
        )


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a model from sources other than the user's options.

    Parameters
    ----------
    meaning
        The meaning of inputs and outputs, if it is known as data.
    maker
        The wrapper whose code prepares samples and reads outputs, if the meaning is not known as
        data.
    by
        The source of these facts, or the reason why they are not known.
    """

    meaning: ModelMetadata | None = None
    maker: ModelWrapper | None = None
    by: str = ""


def read_model_facts(artifact: Artifact | None) -> ModelFacts:
    """Return the facts about a model from its description.

    An older description without a meaning still names the wrapper that made the
    model.  The class is searched among those of nnpipe and its plugins only,
    because a description is not trusted.
    """
    if artifact is None:
        return ModelFacts()
    by = str(get_sidecar_path(artifact.path))
    said = artifact.meaning
    if said is not None and said.code is None:
        return ModelFacts(said, by=by)
    code = artifact.exported.producer if said is None else said.code
    maker = _create_wrapper(code or {})
    if maker is None:
        name = str((code or {}).get("class", ""))[:200]
        return ModelFacts(
            by=f"it was made by {name}, which is not installed here"
            if name and said is not None
            else ""
        )
    if maker.meaning is not None:
        return ModelFacts(maker.meaning, by=by)
    return ModelFacts(
        said and ModelMetadata(outputs=said.outputs, code=said.code),
        maker,
        f"{by}: {maker.get_dotted_path()}",
    )


def _create_wrapper(code: Any) -> ModelWrapper | None:
    try:
        cls = find_installed(str(code.get("class", "")), ModelWrapper)
        # A wrapper around a file would read whatever file the description names.
        if any(
            declared.name in ("model_path", "network", "model_folder", "architecture")
            for declared in list_arguments(cls)
        ):
            return None
        return cls.from_json(code.get("arguments", {}))
    except (NNPipeError, ImportError, TypeError, AttributeError):
        return None
