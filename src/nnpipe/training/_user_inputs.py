"""Converting and checking the arguments that callers pass to a trainer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.training.optimization import AdamW, Schedule, TorchSchedule

_HINT = "give sequences by data set and split, such as {'digits': {'train': ArraySequence(...), 'test': ...}}"
ONLY = "data"
"""The name of a data set that was given without one."""


def model_of(given: Any) -> Any:
    """Return the ``torch.nn.Module``; raise :class:`ConfigError` if it is anything else."""
    import torch

    found = getattr(given, "module", given) if not isinstance(given, torch.nn.Module) else given
    if isinstance(found, torch.nn.Module):
        return found
    if isinstance(given, type):
        raise ConfigError(f"model is the class {given.__name__}; give an instance: trainer.build({given.__name__})")
    raise ConfigError(f"model is a {_kind(given)}, no torch.nn.Module")


def datasets_of(given: Any, seed: int) -> dict[str, dict[str, Any]]:
    """Return sequences by data set and split.

    A ``torch.utils.data.DataLoader`` becomes a sequence.  A single sequence or
    loader becomes the training split; splits without a data set's name get one.

    Raises
    ------
    ConfigError
        If a value is not a sequence; the message says how to make one of it.
    """
    if _goes(given):
        given = {ONLY: {"train": given}}
    if not isinstance(given, Mapping):
        raise ConfigError(f"datasets is a {_kind(given)}; {_hint(given)}")
    if given and all(_goes(part) for part in given.values()):
        given = {ONLY: given}
    found: dict[str, dict[str, Any]] = {}
    for name, parts in given.items():
        if not isinstance(parts, Mapping):
            raise ConfigError(f"datasets[{name!r}] is a {_kind(parts)}; {_hint(parts)}")
        for word in (name, *parts):
            if not isinstance(word, str) or "/" in word:
                raise ConfigError(f"{word!r}: the name of a data set or split is a text, and cannot hold a slash")
        found[name] = {split: _sequence(part, f"datasets[{name!r}][{split!r}]", seed) for split, part in parts.items()}
    return found


def _goes(value: Any) -> bool:
    return _is_loader(value) or (hasattr(value, "set_epoch") and hasattr(value, "__iter__"))


def _is_loader(value: Any) -> bool:
    import sys

    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.utils.data.DataLoader)


def _sequence(value: Any, where: str, seed: int) -> Any:
    if _is_loader(value):
        from nnpipe.training.sequences.torch_loader import TorchSequence

        return TorchSequence(value, seed=seed)
    if not _goes(value) or isinstance(value, type):
        raise ConfigError(f"{where} is a {_kind(value)}, no sequence of batches; {_hint(value)}")
    return value


def _hint(value: Any) -> str:
    module = type(value).__module__
    if module.startswith("torch.utils.data"):
        return "make a torch.utils.data.DataLoader of it"
    if module.startswith("tensorflow"):
        return "make a nnpipe.training.sequences.tensorflow_dataset.TensorFlowSequence of it"
    return _HINT


def optimiser_of(given: Any, model: Any, parameters: Iterable[Any] | None) -> Any:
    """Return the ``torch.optim.Optimizer`` that was given, or the one that the given factory makes."""
    import torch

    if isinstance(given, torch.optim.Optimizer):
        if parameters is not None:
            raise ConfigError("parameters: the optimiser has its own already; give one of the two")
        own = {id(p) for p in model.parameters()}
        if not any(id(p) in own for group in given.param_groups for p in group["params"]):
            raise ConfigError(
                "optimiser: none of its parameters is the model's; make it of this model's, or give what makes it, "
                "such as AdamW(rate=0.001)"
            )
        return given
    factory: Any = AdamW() if given is None else given
    if isinstance(factory, type) and issubclass(factory, Component):
        raise ConfigError(f"optimiser is the class {factory.__name__}; give an instance: {factory.__name__}()")
    if not callable(factory):
        raise ConfigError(
            f"optimiser is a {_kind(factory)}; give a torch.optim.Optimizer, or what makes one of parameters, "
            "such as AdamW(rate=0.001)"
        )
    chosen = [p for p in model.parameters() if p.requires_grad] if parameters is None else list(parameters)
    if not chosen:
        raise ConfigError(f"{type(model).__name__} has no weights to train")
    try:
        made = factory(chosen)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimiser: {error}") from None
    if not isinstance(made, torch.optim.Optimizer):
        raise ConfigError(f"optimiser gave a {_kind(made)}, no torch.optim.Optimizer")
    return made


def check_schedule(given: Any) -> None:
    """Raise :class:`ConfigError`, with advice, unless this is a schedule that the trainer can follow."""
    if given is None or isinstance(given, (Schedule, TorchSchedule)):
        return
    if isinstance(given, type) and issubclass(given, Schedule):
        raise ConfigError(f"schedule is the class {given.__name__}; give an instance: {given.__name__}(...)")
    module = getattr(given, "__module__", "") if isinstance(given, type) else type(given).__module__
    if module.startswith("torch.optim") or callable(given):
        raise ConfigError(
            f"schedule is {f'the class {given.__name__}' if isinstance(given, type) else f'a {_kind(given)}'}; "
            "give TorchSchedule(make=lambda optimiser: ..., per='step' or 'epoch'), which makes it of the optimiser"
        )
    raise ConfigError(f"schedule is a {_kind(given)}; give one of nnpipe.training.optimization, such as Cosine()")


def check_others(folder: Any, resume: Any, identity: Any, progress: Any) -> None:
    """Raise :class:`ConfigError` naming the argument of a wrong type."""
    wrong = [
        (name, value, wanted)
        for name, value, fits, wanted in (
            ("folder", folder, folder is None or isinstance(folder, (str, Path)), "a path"),
            ("resume", resume, isinstance(resume, bool), "True or False"),
            ("identity", identity, isinstance(identity, Mapping), "settings by name"),
            ("progress", progress, callable(progress), "a function such as nnpipe.core.progress.silent"),
        )
        if not fits
    ]
    for name, value, wanted in wrong:
        raise ConfigError(f"{name} is a {_kind(value)}; give {wanted}")


def check_device(device: str) -> None:
    """Raise :class:`ConfigError` unless PyTorch can compute there."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        build = "" if torch.version.cuda else f", and PyTorch {torch.__version__} here is built without CUDA"
        raise ConfigError(f"device: PyTorch finds no usable NVIDIA GPU{build}; use 'cpu'")


def _kind(value: Any) -> str:
    return type(value).__name__
