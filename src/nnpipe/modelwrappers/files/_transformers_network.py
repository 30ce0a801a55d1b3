"""Networks of Hugging Face transformers, from a configuration and weights that were read elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnpipe.core.errors import ArtifactError
from nnpipe.core.messages import one_line
from nnpipe.core.tensors import TensorSpec
from nnpipe.formats.transformers_folder import TransformersFolder
from nnpipe.frameworks.framework_output import hushed

_SLACK = 64 << 20  # bytes of tied weights and buffers that are in no file


def class_of(folder: TransformersFolder) -> tuple[Any, Any]:
    """Return the class of the network and its configuration; raise :class:`ArtifactError` if it is unknown."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    where, kind = folder.path / "config.json", folder.config.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING_NAMES:
        raise ArtifactError(f"{where}: transformers {transformers.__version__} knows no model_type {str(kind)[:60]!r}")
    names = folder.config.get("architectures") or []
    try:
        kept = {name: value for name, value in folder.config.items() if "attn_implementation" not in name}
        with hushed():
            config = CONFIG_MAPPING[kind].from_dict(kept)
            config._attn_implementation = "eager"  # others may read the mask's values, which no export follows
            cls = (
                getattr(transformers, str(names[0]), None)
                if names
                else transformers.AutoModel._model_mapping[type(config)]
            )
    except Exception as error:  # configurations fail in every way there is
        raise ArtifactError(f"{where}: transformers cannot read it: {one_line(error)}") from None
    if not isinstance(cls, type) or not issubclass(cls, transformers.PreTrainedModel):
        raise ArtifactError(f"{where}: transformers has no model {str(names[0])[:60]!r}")
    wanted = getattr(cls, "config_class", None)
    if wanted is not None and not isinstance(config, wanted):
        raise ArtifactError(f"{where}: {cls.__name__} is no model of the type {kind!r}")
    return cls, config


def padding_of(folder: TransformersFolder) -> int:
    """Return the token that fills up texts that are shorter than others."""
    known = (folder.config.get(name) for name in ("pad_token_id", "eos_token_id"))
    return next((each for each in known if isinstance(each, int) and each >= 0), 0)


def wrapped(network: Any, inputs: Sequence[TensorSpec], padding: int | None = None) -> Any:
    """Return a module that takes the inputs in order and returns the network's main output.

    With a ``padding``, the module makes the mask of attention from the tokens: all others count.
    """
    import torch

    names = [spec.name for spec in inputs]
    cache = {"use_cache": False} if hasattr(network.config, "use_cache") and "input_ids" in names else {}

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


def output_of(folder: TransformersFolder, inputs: Sequence[TensorSpec]) -> TensorSpec:
    """Return the main output, found without memory for weights."""
    import torch

    cls, config = class_of(folder)
    # A mask's values would be read, which are not there; without one, shapes are the same.
    known = [spec for spec in inputs if spec.name != "attention_mask"]
    try:
        with hushed(), torch.device("meta"):
            network = cls(config)
    except Exception as error:  # networks fail in every way there is
        raise _cannot_run(folder, cls, error) from None
    needed = sum(weight.numel() for weight in network.parameters())
    if needed > folder.size + _SLACK:  # even with one byte for each
        raise ArtifactError(f"{folder.path}: config.json asks for {needed:,} weights, more than the files can hold")
    try:
        shape = _shape_on("meta", wrapped(network, known), known)
    except Exception:  # some networks read values on the way
        try:
            with hushed():
                shape = _shape_on("cpu", wrapped(cls(config), known), known)
        except Exception as error:
            raise _cannot_run(folder, cls, error) from None
    logits = any(part in cls.__name__ for part in ("For", "Head"))
    return TensorSpec("logits" if logits else "last_hidden_state", (None, *shape[1:]), "float32")


def _shape_on(device: str, module: Any, inputs: Sequence[TensorSpec]) -> tuple[int, ...]:
    import torch

    with hushed(), torch.device(device), torch.no_grad():
        given = [torch.zeros([2, *spec.shape[1:]], dtype=getattr(torch, spec.dtype)) for spec in inputs]
        return tuple(module(*given).shape)


def _cannot_run(folder: TransformersFolder, cls: type, error: Exception) -> ArtifactError:
    return ArtifactError(f"{folder.path}: {cls.__name__} cannot be run: {one_line(error)}")


def loaded(folder: TransformersFolder, inputs: Sequence[TensorSpec], padding: int | None = None) -> Any:
    """Return the module with the weights in the folder; raise :class:`ArtifactError` if any are missing."""
    return wrapped(network_of(folder, inputs), inputs, padding)


def network_of(folder: TransformersFolder, inputs: Sequence[TensorSpec]) -> Any:
    """Return the network with the weights in the folder; raise :class:`ArtifactError` if any are missing."""
    import torch
    from safetensors.torch import load_file

    output_of(folder, inputs)  # refuses what is too large before memory is taken
    cls, config = class_of(folder)
    state: dict[str, Any] = {}
    for path in folder.weights:
        try:
            state |= load_file(str(path))
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(f"{path}: no whole safetensors: {one_line(error)}") from None
    try:
        with hushed():
            network, said = cls.from_pretrained(
                None, config=config, state_dict=state, output_loading_info=True, dtype=torch.float32,
                local_files_only=True, use_safetensors=True, attn_implementation="eager",
            )  # fmt: skip
    except Exception as error:
        raise ArtifactError(f"{folder.path}: transformers cannot load the weights: {one_line(error)}") from None
    wrong = sorted(map(str, [*said["missing_keys"], *said["mismatched_keys"]]))
    if wrong:
        raise ArtifactError(
            f"{folder.path}: the files lack {len(wrong)} weights of the model, {wrong[0][:100]} for one"
        )
    return network
