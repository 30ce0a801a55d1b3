"""Models of Hugging Face transformers from the folders that ``save_pretrained`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ArtifactError, ConfigError, NotSupported
from nnpipe.core.input_transform import InputTransform
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import format_one_line
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.registry import find
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.model_folder import TransformersFolder, read_folder
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.modelwrappers.files._input_options import ModelFacts
from nnpipe.modelwrappers.files._preprocessing import Preprocessing
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

_SLACK = 64 << 20  # bytes of tied weights and buffers that are in no file


def resolve_model_class(folder: TransformersFolder) -> tuple[Any, Any]:
    """Return the class of the network and its configuration; raise :class:`ArtifactError` if it
    is unknown.
    """
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    where, kind = folder.path / "config.json", folder.config.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING_NAMES:
        raise ArtifactError(
            f"{where}: transformers {transformers.__version__} knows no model_type "
            f"{str(kind)[:60]!r}"
        )
    names = folder.config.get("architectures") or []
    try:
        kept = {
            name: value
            for name, value in folder.config.items()
            if "attn_implementation" not in name
        }
        with suppress_output():
            config = CONFIG_MAPPING[kind].from_dict(kept)
            # others may read the mask's values, which no export follows
            config._attn_implementation = "eager"
            cls = (
                getattr(transformers, str(names[0]), None)
                if names
                else transformers.AutoModel._model_mapping[type(config)]
            )
    except Exception as error:  # configurations fail in every way there is
        raise ArtifactError(
            f"{where}: transformers cannot read it: {format_one_line(error)}"
        ) from None
    if not isinstance(cls, type) or not issubclass(cls, transformers.PreTrainedModel):
        raise ArtifactError(f"{where}: transformers has no model {str(names[0])[:60]!r}")
    wanted = getattr(cls, "config_class", None)
    if wanted is not None and not isinstance(config, wanted):
        raise ArtifactError(f"{where}: {cls.__name__} is no model of the type {kind!r}")
    return cls, config


def read_padding_token(folder: TransformersFolder) -> int:
    """Return the token that fills up texts that are shorter than others."""
    known = (folder.config.get(name) for name in ("pad_token_id", "eos_token_id"))
    return next((each for each in known if isinstance(each, int) and each >= 0), 0)


def wrap_network(network: Any, inputs: Sequence[TensorSpec], padding: int | None = None) -> Any:
    """Return a module that takes the inputs in order and returns the network's main output.

    With a ``padding``, the module makes the mask of attention from the tokens: all others count.
    """
    import torch

    names = [spec.name for spec in inputs]
    cache = (
        {"use_cache": False}
        if hasattr(network.config, "use_cache") and "input_ids" in names
        else {}
    )

    class MainOutput(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *given: Any) -> Any:
            taken = dict(zip(names, given, strict=True))
            if padding is not None:
                taken["attention_mask"] = (taken["input_ids"] != padding).long()
            found = self.network(**taken, **cache, return_dict=True)
            return found.logits if "logits" in found else found.last_hidden_state

    return MainOutput().eval()


def infer_output_spec(folder: TransformersFolder, inputs: Sequence[TensorSpec]) -> TensorSpec:
    """Return the main output, found without memory for weights."""
    import torch

    cls, config = resolve_model_class(folder)
    # A mask's values would be read, which are not there; without one, shapes are the same.
    known = [spec for spec in inputs if spec.name != "attention_mask"]
    try:
        with suppress_output(), torch.device("meta"):
            network = cls(config)
    except Exception as error:  # networks fail in every way there is
        raise _make_run_error(folder, cls, error) from None
    needed = sum(weight.numel() for weight in network.parameters())
    if needed > folder.size + _SLACK:  # even with one byte for each
        raise ArtifactError(
            f"{folder.path}: config.json asks for {needed:,} weights, more than the files can hold"
        )
    try:
        shape = _compute_shape("meta", wrap_network(network, known), known)
    except Exception:  # some networks read values on the way
        try:
            with suppress_output():
                shape = _compute_shape("cpu", wrap_network(cls(config), known), known)
        except Exception as error:
            raise _make_run_error(folder, cls, error) from None
    logits = any(part in cls.__name__ for part in ("For", "Head"))
    return TensorSpec("logits" if logits else "last_hidden_state", (None, *shape[1:]), "float32")


def _compute_shape(device: str, module: Any, inputs: Sequence[TensorSpec]) -> tuple[int, ...]:
    import torch

    with suppress_output(), torch.device(device), torch.no_grad():
        given = [
            torch.zeros([2, *spec.shape[1:]], dtype=getattr(torch, spec.dtype)) for spec in inputs
        ]
        return tuple(module(*given).shape)


def _make_run_error(folder: TransformersFolder, cls: type, error: Exception) -> ArtifactError:
    return ArtifactError(f"{folder.path}: {cls.__name__} cannot be run: {format_one_line(error)}")


def load_module(
    folder: TransformersFolder, inputs: Sequence[TensorSpec], padding: int | None = None
) -> Any:
    """Return the module with the weights in the folder; raise :class:`ArtifactError` if any are
    missing.
    """
    return wrap_network(load_network(folder, inputs), inputs, padding)


def load_network(folder: TransformersFolder, inputs: Sequence[TensorSpec]) -> Any:
    """Return the network with the weights in the folder; raise :class:`ArtifactError` if any are
    missing.
    """
    import torch
    from safetensors.torch import load_file

    infer_output_spec(folder, inputs)  # refuses what is too large before memory is taken
    cls, config = resolve_model_class(folder)
    state: dict[str, Any] = {}
    for path in folder.weights:
        try:
            state |= load_file(str(path))
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(f"{path}: no whole safetensors: {format_one_line(error)}") from None
    try:
        with suppress_output():
            network, said = cls.from_pretrained(
                None,
                config=config,
                state_dict=state,
                output_loading_info=True,
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=True,
                attn_implementation="eager",
            )
    except Exception as error:
        raise ArtifactError(
            f"{folder.path}: transformers cannot load the weights: {format_one_line(error)}"
        ) from None
    wrong = sorted(map(str, [*said["missing_keys"], *said["mismatched_keys"]]))
    if wrong:
        raise ArtifactError(
            f"{folder.path}: the files lack {len(wrong)} weights of the model, {wrong[0][:100]} "
            f"for one"
        )
    return network


class TransformersModel(Preprocessing, PyTorchWrapper):
    """A model from a folder that ``save_pretrained`` of Hugging Face transformers wrote.

    The folder holds ``config.json`` and ``*.safetensors``.  Nothing is downloaded,
    nothing pickled is read, and no code but that of the installed transformers
    runs.  The output is the logits, or else the last hidden state.
    """

    requires: ClassVar[tuple[str, ...]] = ("transformers", "torch", "safetensors")
    install: ClassVar[str] = "nnpipe[transformers]"

    model_folder: Path = argument(
        help="the folder with config.json and *.safetensors", metavar="FOLDER"
    )
    tokenise: bool = argument(
        False,
        help="take texts, which the tokenizer.json in the folder turns into --sequence-length "
        "tokens, instead of tokens with their mask; the tokenizer travels with every file made of "
        "the model",
    )
    input_size: tuple[int, int] | None = argument(
        None, help="height and width of images (default: those that the folder states)", minimum=1
    )
    sequence_length: int = argument(
        128, help="tokens of each text that a language model takes", minimum=1
    )
    audio_samples: int = argument(
        16000, help="samples of each recording that a model of raw sound takes", minimum=400
    )

    @property
    def _name(self) -> str:
        return f"{type(self).__name__} ({self.model_folder})"

    def _read(self) -> TransformersFolder:
        return read_folder(self.model_folder)

    @cached_property
    def io(self) -> IOSpec:
        """Inputs by the configuration, and the main output."""
        folder = self._read()
        self.check_installed()
        inputs = self._describe_inputs(folder)
        return IOSpec(inputs, (infer_output_spec(folder, inputs),))

    def _describe_inputs(self, folder: TransformersFolder) -> tuple[TensorSpec, ...]:
        config = folder.config
        size, channels = self.input_size or folder.image_size, config.get("num_channels", 3)
        if "conv_stride" in config and "feat_extract_norm" in config:
            return (TensorSpec("input_values", (None, self.audio_samples), "float32"),)
        if config.get("is_encoder_decoder"):
            raise ArtifactError(
                f"{self.model_folder}: an encoder with a decoder, which is not read; export its "
                f"parts"
            )
        pictures = (
            "num_channels" in config
            or "image_size" in config
            or folder.preprocessor.get("image_mean")
        )
        if pictures and "vocab_size" not in config:
            if size is None and "image_size" not in config:
                raise ConfigError(
                    f"{self._name} takes images, of which the folder does not say the size: "
                    f"--input-size"
                )
            if size is not None and isinstance(channels, int) and 0 < channels < 1 << 14:
                return (TensorSpec("pixel_values", (None, channels, *size), "float32"),)
        elif "vocab_size" in config:
            most = config.get("max_position_embeddings") or config.get("n_positions")
            if isinstance(most, int) and self.sequence_length > most:
                raise ConfigError(
                    f"{self._name} takes at most {most} tokens; give --sequence-length {most}"
                )
            shape = (None, self.sequence_length)
            if self.tokenise:
                return (TensorSpec("input_ids", shape, "int64"),)
            return (
                TensorSpec("input_ids", shape, "int64"),
                TensorSpec("attention_mask", shape, "int64"),
            )
        kind = str(config.get("model_type"))[:60]
        raise ArtifactError(
            f"{self.model_folder}: config.json does not tell which inputs a {kind!r} model takes"
        )

    def read_facts(self) -> ModelFacts:
        """Return the preprocessing of images and the names of classes that the folder states."""
        folder, output = self._read(), self.io.outputs[0]
        labels = folder.config.get("id2label") or {}
        names = (
            tuple(str(labels.get(str(number))) for number in range(len(labels)))
            if isinstance(labels, dict)
            else ()
        )
        complete = len(output.shape) == 2 and output.shape[-1] == len(names)
        judged = (
            (OutputMetadata("logits", "logits", names if complete else ()),)
            if output.name == "logits"
            else ()
        )
        said, first = folder.preprocessor, self.io.inputs[0]
        if self.tokenise:
            if first.name != "input_ids":
                raise ConfigError(
                    f"{self._name} takes {first.name}: --tokenise is for models of texts"
                )
            path = self.model_folder / "tokenizer.json"
            chosen = {
                "tokenizer": str(path),
                "length": self.sequence_length,
                "padding": read_padding_token(folder),
            }
            tokens = find("TextTokens", InputTransform).from_json(chosen).pack_files().describe()
            return ModelFacts(
                ModelMetadata((InputProcessing("input_ids", "other", transform=tokens),), judged),
                by=str(path),
            )
        if first.name != "pixel_values" or "image_mean" not in said:
            kept = () if first.name == "pixel_values" else self.io.inputs
            inputs = tuple(InputProcessing(spec.name, "other") for spec in kept)
            return ModelFacts(ModelMetadata(inputs, judged)) if judged else ModelFacts()
        factor = said.get("rescale_factor", 1 / 255) if said.get("do_rescale", True) else 1
        mean, deviation = (
            [*each] if isinstance(each, list) else []
            for each in map(said.get, ("image_mean", "image_std"))
        )
        numbers = [factor, *mean, *deviation]
        if (
            not mean
            or not deviation
            or not all(type(each) in (int, float) for each in numbers)
            or factor <= 0
        ):
            where = folder.path / "preprocessor_config.json"
            raise ArtifactError(
                f"{where}: rescale_factor, image_mean and image_std are no numbers to normalise "
                f"with"
            )
        normal = said.get("do_normalize", True)
        pixels = InputProcessing(
            "pixel_values",
            "image",
            (0, 255),
            scale=1 / factor,
            layout="nchw",
            mean=tuple(mean) if normal else (),
            deviation=tuple(deviation) if normal else (),
            resize="bilinear" if said.get("do_resize", True) else "none",
            shortest_edge=None if self.input_size else folder.shortest_edge,
        )
        return ModelFacts(
            ModelMetadata((pixels,), judged), by=str(self.model_folder / "preprocessor_config.json")
        )

    def build(self) -> Any:
        """Return the network with the weights in the folder."""
        folder = self._read()
        return load_module(
            folder, self.io.inputs, read_padding_token(folder) if self.tokenise else None
        )

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read the folder's own weights again, or those that :meth:`save` wrote.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or belongs to another model.
        """
        path = Path(path)
        if path == self.model_folder or (path.parent == self.model_folder and path.is_file()):
            live.native = self.fresh()
        else:
            super().load(live, path)

    def classifies(self) -> bool:
        """Return whether the output is one score for each class."""
        return self.io.outputs[0].name == "logits" and len(self.io.outputs[0].shape) == 2

    def loss(self, outputs: tuple[Any, ...], truth: Any) -> Any:
        """Return the mean cross entropy of a classifier; raise :class:`NotSupported` for other
        models.
        """
        if not self.classifies():
            raise NotSupported(f"{self._name} is no classifier, and only classifiers are trained")
        return super().loss(outputs, truth)

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the outputs as they are."""
        return outputs
