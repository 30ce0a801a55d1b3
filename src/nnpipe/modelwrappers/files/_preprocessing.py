"""Preprocessing and postprocessing of a model from a file, from options or from its description."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.core.layout import has_channels_first
from nnpipe.core.messages import list_names
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import JUDGED, ModelMetadata, Preparation, find_differences
from nnpipe.core.output_decoder import INPUT, OutputDecoder, get_decoder
from nnpipe.core.preprocessing import (
    check_samples,
    find_input_layout,
    match_inputs,
    preprocess,
    preprocess_real,
)
from nnpipe.core.quantization import adapt
from nnpipe.core.task import has_class_scores
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec, show_shape
from nnpipe.modelwrappers.files._class_scores import (
    check_classes,
    compute_scores,
    count_scores,
    find_output,
    is_label,
    match_classes,
    select_output,
    to_real,
)
from nnpipe.modelwrappers.files._input_options import (
    ELSE,
    InputOptions,
    ModelFacts,
    check_task,
    select_decoder,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class Preprocessing(InputOptions):
    """Options for the inputs that a model from a file expects, and for the meaning of its outputs.

    Options that are left out follow the description beside the model file
    (:mod:`nnpipe.core.model_metadata`).  Without one, samples are passed to the model
    unchanged, and the result records that nothing is known.
    """

    result_output: str | None = argument(
        None,
        help=(
            "name of the output to evaluate, if there are several and the model's description does "
            "not state it"
        ),
    )
    result_kind: Literal["probabilities", "logits", "scores", "label"] | None = argument(
        None, help=f"content of that output{ELSE} scores, where greater means more likely"
    )
    class_offset: int | None = argument(
        None,
        help=(
            f"number of the model's classes before the data set's first, 1 for a background "
            f"class{ELSE} 0"
        ),
        minimum=0,
    )
    class_count: int | None = argument(
        None, help="number of classes to evaluate; by default that of the data set", minimum=1
    )

    decoder: str | None = argument(
        None,
        help="class that turns the outputs into predictions, such as the boxes of a detector; "
        "nnpipe list decoders "
        f"shows them; none for no decoder{ELSE} none",
        metavar="CLASS",
    )
    decoder_options: tuple[str, ...] | None = argument(
        None,
        help=(
            "arguments of the decoder, such as score_threshold=0.25; several values of one are "
            "separated by commas"
        ),
        metavar="NAME=VALUE",
    )

    def validate(self) -> None:
        """Check the options of the inputs, and that there is such a decoder with these
        arguments.
        """
        super().validate()
        if self.decoder not in (None, "none"):
            select_decoder(None, self.decoder, self.decoder_options or ())

    def with_io(self, io: IOSpec) -> Self:
        """Return this wrapper with a known ``io``, so that no file has to be opened for it."""
        return self._with(io=io)

    def _with(
        self, *, io: IOSpec | None = None, known: ModelFacts | None = None, **changes: Any
    ) -> Self:
        """Return a changed copy of this wrapper that keeps the known facts about its file."""
        copied = replace(self, **changes)
        kept = ("io", "_facts", "_looked_at", "_order", "_class_names")
        own: dict[str, Any] = {name: vars(self)[name] for name in kept if name in vars(self)}
        vars(copied).update(
            own | ({} if io is None else {"io": io}) | ({} if known is None else {"_facts": known})
        )
        return copied

    # -- what is known ----------------------------------------------------------------------------

    def read_facts(self) -> ModelFacts:
        """Return the facts about the model from sources other than options; none by default."""
        return ModelFacts()

    def read_class_names(self, output: TensorSpec) -> tuple[str, ...]:
        """Return the names of an output's classes that the file itself holds; none by default."""
        return ()

    @cached_property
    def _facts(self) -> ModelFacts:
        return self.read_facts()

    @cached_property
    def _input_processing(self) -> Mapping[str, InputProcessing]:
        """The preprocessing that is carried out, by the names of the inputs."""
        said = self._facts.meaning or ModelMetadata()
        return {
            spec.name: replace(said.input(spec.name) or _describe_input(spec), **self._given)
            for spec in self.io.inputs
        }

    @property
    def _maker(self) -> ModelWrapper | None:
        """The wrapper whose code prepares samples; ``None`` if options or the description define
        it.
        """
        return None if self._given else self._facts.maker

    @property
    def meaning(self) -> ModelMetadata | None:
        """The meaning in the description, overridden by the options; ``None`` without either.

        If nothing is known but the names of classes, it consists of these outputs.
        """
        outputs = self._facts.meaning.outputs if self._facts.meaning else ()
        with suppress(ConfigError):  # reported when the output is evaluated
            result = self._select_result()
            told = self._describe_result(result)
            if not self._reads_by_itself or told.class_names:
                outputs = (*(each for each in outputs if each.name != result.name), told)
        if not self.preparation().known:
            named = tuple(each for each in outputs if each.class_names)
            return ModelMetadata(outputs=named) if named else None
        if self._maker is not None:
            return ModelMetadata(outputs=outputs, code=self._maker.describe())
        decoder = self.output_decoder
        return ModelMetadata(
            tuple(self._input_processing.values()),
            outputs,
            decoder=None if decoder is None else decoder.describe(),
        )

    @cached_property
    def output_decoder(self) -> OutputDecoder | None:
        """The decoder that the options or the description state; ``None`` without one, or if
        code reads outputs.
        """
        if self.decoder is None and self._maker is not None:
            return None
        return select_decoder(self._stated_decoder, self.decoder, self.decoder_options or ())

    @cached_property
    def _stated_decoder(self) -> OutputDecoder | None:
        """The decoder that the description states; ``None`` too if it is unknown, and the
        options name another.
        """
        try:
            return get_decoder(self._facts.meaning)
        except NNPipeError as error:
            if self.decoder is not None:
                return None
            raise ConfigError(
                f"{self._facts.by}: {error}; name another decoder with --decoder, or none"
            ) from None

    def meaning_of_files(self) -> ModelMetadata | None:
        """The known meaning; wrappers of files add nothing of their own."""
        return self.meaning

    def preparation(self) -> Preparation:
        """Return how samples are prepared, and the source of this: the model's description, or
        the options.
        """
        known, given = self._facts, self._given
        inputs = (
            None
            if self._maker is not None
            else ModelMetadata(tuple(self._input_processing.values()))
        )
        if known.maker is not None:
            overridden = {"preprocess": (known.maker.get_dotted_path(), "options")} if given else {}
            return Preparation("description", known.by, inputs, overridden)
        if known.meaning is not None and (known.meaning.inputs or known.meaning.decoder):
            return Preparation(
                "description",
                known.by,
                inputs,
                self._find_overrides(known.meaning, inputs or ModelMetadata()),
            )
        if given.keys() & {"scale", "mean", "deviation", "quantised", "transform"}:
            return Preparation("options", self._name, inputs)
        return Preparation("unknown", known.by or self._name, inputs)

    def _find_overrides(
        self, said: ModelMetadata, used: ModelMetadata
    ) -> dict[str, tuple[Any, Any]]:
        found = find_differences(said, used)
        own, now = self._stated_decoder, self.output_decoder
        if own is not None and now is not None and own != now:
            found["decoder"] = (own.format_description(), now.format_description())
        for each in said.outputs:
            if self.class_offset is not None and self.class_offset != each.class_offset:
                found["class_offset"] = (each.class_offset, self.class_offset)
            if self.result_kind not in (None, each.kind) and self.result_output in (
                None,
                each.name,
            ):
                found["result_kind"] = (each.kind, self.result_kind)
        return found

    # -- fitting a data set -----------------------------------------------------------------------

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper for a data set, after a check that samples and classes fit, or can be
        made to fit.

        Raises
        ------
        ConfigError
            If they do not fit; the message names the shapes, the classes, or the outputs to choose
            from.
        """
        if self._maker is not None and self._reads_by_itself:
            made = self._with(known=replace(self._facts, maker=self._maker.for_dataset(spec)))
            return made._match_class_order(spec) if has_class_scores(spec.task) else made
        fitted = self.for_samples(spec)
        if self.output_decoder is not None:
            check_task(self._name, self.output_decoder, spec)
            self.output_decoder.check(self.io, tuple(self._input_processing.values()), spec)
            return fitted
        if not has_class_scores(spec.task):
            if self.result_output is not None:
                find_output(self._name, self.io.outputs, self.result_output)
            return fitted
        classes = self.class_count or len(spec.class_names)
        if len(spec.class_names) != classes:
            raise ConfigError(
                f"--class-count is {classes}, the data set has {len(spec.class_names)}"
            )
        result = self._select_result()
        known = self._describe_result(result)
        ordered = fitted._with(class_count=classes)._match_class_order(spec)
        check_classes(self._name, result, known, classes)
        return ordered

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """Which of the model's classes each class of the data set is; empty if these are the
        same numbers.
        """
        return ()

    def _match_class_order(self, spec: DatasetSpec) -> Self:
        """Return this wrapper with its classes brought to the order of a data set's, if both
        have names.
        """
        if self.class_offset is None:  # otherwise the user says which number is which class
            outputs = self._facts.meaning.outputs if self._facts.meaning else ()
            own = next(
                (each.class_names for each in outputs if each.kind in JUDGED and each.class_names),
                (),
            )
            if self._maker is None:
                own = self._describe_result(self._select_result()).class_names
            vars(self)["_order"] = match_classes(self._name, own, spec.class_names)
        return self

    def fitting_notes(self, spec: DatasetSpec) -> tuple[str, ...]:
        """How samples with their channels first and classes with other numbers are taken."""
        notes = []
        for given, taken in match_inputs(
            self._name, self.io.inputs, tuple(t.name for t in spec.inputs)
        ).items():
            sample = next(tensor for tensor in spec.inputs if tensor.name == given)
            if self._maker is None and has_channels_first(sample.shape[1:]):
                way = find_input_layout(
                    self._name, sample.shape[1:], taken, self._input_processing[taken.name]
                )
                what = (
                    "channels, rows, columns" if way.channels_first else "rows, columns, channels"
                )
                notes.append(f"samples of {show_shape(sample.shape[1:])} are taken for {what}")
        if self._order:
            pairs = (
                f"{name} is {number}"
                for name, number in zip(spec.class_names, self._order, strict=True)
            )
            notes.append(f"classes are matched by name; in the model, {list_names(list(pairs))}")
        return tuple(notes)

    def for_samples(self, spec: DatasetSpec) -> Self:
        """Return this wrapper for a data set, after a check that samples fit, or can be made to
        fit.
        """
        if self._maker is not None:
            return self._with(known=replace(self._facts, maker=self._maker.for_samples(spec)))
        for given, taken in match_inputs(
            self._name, self.io.inputs, tuple(t.name for t in spec.inputs)
        ).items():
            sample = next(tensor for tensor in spec.inputs if tensor.name == given)
            self._check_whether_quantised(sample, taken)
            check_samples(
                self._name,
                sample,
                taken,
                self._input_processing[taken.name],
                spec.sample_rates.get(given),
            )
        return self

    def _check_whether_quantised(self, sample: TensorSpec, taken: TensorSpec) -> None:
        """Raise ``ConfigError`` if samples have the type of a quantised input, but may be
        quantised already or not.
        """
        pixels = sample.dtype == "uint8" and len(sample.shape) == 4
        if (
            taken.scale is not None
            and sample.dtype == taken.dtype
            and not pixels
            and not self.preparation().known
        ):
            raise ConfigError(
                f"{self._name} takes quantised {taken.dtype}, and the data set gives "
                f"{sample.dtype}: say with "
                "--quantised-input already that its samples are quantised, or with "
                "--quantised-input auto that they are not"
            )

    @property
    def _name(self) -> str:
        """Name of the model in messages; subclasses add the file."""
        return type(self).__name__

    # -- before the model
    # ---------------------------------------------------------------------------

    def preprocess(self, inputs: Batch) -> Batch:
        """Return samples as the model's input stores them, quantised if it is quantised."""
        if any(spec.dtype == "bfloat16" for spec in self.io.inputs):
            importlib.import_module("ml_dtypes")  # registers bfloat16 in numpy
        maker = self._maker
        if maker is not None:
            return adapt(maker.preprocess(inputs), maker.io.inputs, self.io.inputs)
        return preprocess(self._name, inputs, self.io.inputs, self._input_processing)

    def preprocess_real(self, inputs: Batch) -> Batch:
        """Return samples as the real numbers that the model's input represents."""
        if self._maker is not None:
            return self._maker.preprocess_real(inputs)
        return preprocess_real(self._name, inputs, self.io.inputs, self._input_processing)

    # -- after the model
    # ----------------------------------------------------------------------------

    @property
    def _reads_by_itself(self) -> bool:
        """Whether no option states which output to evaluate and what it means."""
        return self.result_output is None and self.result_kind is None and self.class_offset is None

    def postprocess(self, outputs: Batch) -> Batch:
        """Return the decoder's predictions, or else real numbers, and for a classification
        ``"scores"``.
        """
        if (decoder := self.output_decoder) is not None:
            decoded = {spec.name: to_real(outputs[spec.name], spec) for spec in self.io.outputs}
            if decoder.takes_inputs:
                given = {INPUT + spec.name: spec for spec in self.io.inputs}
                decoded |= {name: to_real(outputs[name], spec) for name, spec in given.items()}
            return decoder.decode(decoded, self.io, tuple(self._input_processing.values()))
        if self._maker is not None and self._reads_by_itself:
            return self._sort_scores(
                self._maker.postprocess(adapt(outputs, self.io.outputs, self._maker.io.outputs))
            )
        if self.class_count is None:
            specs = {spec.name: spec for spec in self.io.outputs}
            wanted = [self.result_output] if self.result_output else list(outputs)
            return {name: to_real(outputs[name], specs[name]) for name in wanted}
        result = self._select_result()
        known = self._describe_result(result)
        return self._sort_scores(
            {
                "scores": compute_scores(
                    self._name, outputs[result.name], result, known, self.class_count
                )
            }
        )

    def _sort_scores(self, found: Batch) -> Batch:
        """Return predictions with the scores of classes in the order of the data set's."""
        return {**found, "scores": found["scores"][:, list(self._order)]} if self._order else found

    def _select_result(self) -> TensorSpec:
        return select_output(self._name, self.io.outputs, self.result_output, self._facts.meaning)

    def _describe_result(self, result: TensorSpec) -> OutputMetadata:
        known = (self._facts.meaning and self._facts.meaning.output(result.name)) or OutputMetadata(
            result.name, "scores"
        )
        offset = known.class_offset if self.class_offset is None else self.class_offset
        names = known.class_names
        if not names and known.kind in JUDGED and self.output_decoder is None:
            names = self._read_fitting_class_names(result, known)[offset:]
        kind = self.result_kind or known.kind
        return replace(known, kind=kind, class_offset=offset, class_names=names)

    def _read_fitting_class_names(
        self, result: TensorSpec, known: OutputMetadata
    ) -> tuple[str, ...]:
        """Return the names of an output's classes in the file, if these are as many as its
        scores.
        """
        try:
            names = self.read_class_names(result)
        except ArtifactError:  # reported when the file is loaded
            return ()
        counts = (None, len(names))
        fitting = is_label(result, known) or count_scores(result.shape) in counts
        return names if len(names) > 1 and fitting else ()


def _describe_input(spec: TensorSpec) -> InputProcessing:
    return InputProcessing(spec.name, "image" if len(spec.shape) == 4 else "features")
