"""Converting and checking the optimisers, schedules and steps that callers pass to a trainer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.training.optimization import AdamW, Schedule, TorchSchedule
from nnpipe.training.options import TrainerOptions

_HINT = (
    "give sequences by data set and split, such as {'digits': {'train': ArraySequence(...), "
    "'test': ...}}"
)
ONLY_DATASET = "data"
"""The name of a data set that was given without one."""


def require_module(given: Any) -> Any:
    """Return the ``torch.nn.Module``; raise :class:`ConfigError` if it is anything else."""
    import torch

    found = getattr(given, "module", given) if not isinstance(given, torch.nn.Module) else given
    if isinstance(found, torch.nn.Module):
        return found
    if isinstance(given, type):
        raise ConfigError(
            f"model is the class {given.__name__}; give an instance: "
            f"trainer.build({given.__name__})"
        )
    raise ConfigError(f"model is a {get_type_name(given)}, no torch.nn.Module")


def convert_datasets(given: Any, seed: int) -> dict[str, dict[str, Any]]:
    """Return sequences by data set and split.

    A ``torch.utils.data.DataLoader``, a ``tf.data.Dataset`` of batches, and a data set of Hugging
    Face become sequences; the last in batches of 32 samples, those of ``train`` shuffled.  A single
    one becomes the training split; splits without a data set's name get one.

    Raises
    ------
    ConfigError
        If a value is not a sequence; the message says how to make one of it.
    """
    if _is_convertible(given):
        given = {ONLY_DATASET: {"train": given}}
    if not isinstance(given, Mapping):
        raise ConfigError(f"datasets is a {get_type_name(given)}; {_suggest_conversion(given)}")
    if given and all(_is_convertible(part) for part in given.values()):
        given = {ONLY_DATASET: given}
    found: dict[str, dict[str, Any]] = {}
    for name, parts in given.items():
        if not isinstance(parts, Mapping):
            raise ConfigError(
                f"datasets[{name!r}] is a {get_type_name(parts)}; {_suggest_conversion(parts)}"
            )
        for word in (name, *parts):
            if not isinstance(word, str) or "/" in word:
                raise ConfigError(
                    f"{word!r}: the name of a data set or split is a text, and cannot hold a slash"
                )
        found[name] = {
            split: _to_sequence(part, f"datasets[{name!r}][{split!r}]", seed, split == "train")
            for split, part in parts.items()
        }
    return found


def _is_convertible(value: Any) -> bool:
    known = _is_loader(value) or _is_of_tensorflow(value) or _is_of_hugging_face(value)
    return known or (hasattr(value, "set_epoch") and hasattr(value, "__iter__"))


def _is_loader(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.utils.data.DataLoader)


def _is_of_tensorflow(value: Any) -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(value, tensorflow.data.Dataset)


def _is_of_hugging_face(value: Any) -> bool:
    datasets = sys.modules.get("datasets")
    kinds = tuple(getattr(datasets, name, ()) or () for name in ("Dataset", "IterableDataset"))
    return any(isinstance(kind, type) and isinstance(value, kind) for kind in kinds)


def _to_sequence(value: Any, where: str, seed: int, shuffle: bool) -> Any:
    if _is_loader(value):
        from nnpipe.training.sequences.torch_loader import TorchSequence

        return TorchSequence(value, seed=seed)
    if _is_of_tensorflow(value):
        from nnpipe.training.sequences.other_libraries import TensorFlowSequence

        return TensorFlowSequence(value)
    if _is_of_hugging_face(value):
        from nnpipe.training.sequences.other_libraries import HuggingFaceSequence

        return HuggingFaceSequence(value, shuffle=shuffle, seed=seed)
    if not _is_convertible(value) or isinstance(value, type):
        raise ConfigError(
            f"{where} is a {get_type_name(value)}, no sequence of batches; "
            f"{_suggest_conversion(value)}"
        )
    return value


def _suggest_conversion(value: Any) -> str:
    module = type(value).__module__
    if module.startswith("torch.utils.data"):
        return "make a torch.utils.data.DataLoader of it"
    return _HINT


def check_others(folder: Any, resume: Any, identity: Any, progress: Any) -> None:
    """Raise :class:`ConfigError` naming the argument of a wrong type."""
    wrong = [
        (name, value, wanted)
        for name, value, fits, wanted in (
            ("folder", folder, folder is None or isinstance(folder, (str, Path)), "a path"),
            ("resume", resume, isinstance(resume, bool), "True or False"),
            ("identity", identity, isinstance(identity, Mapping), "settings by name"),
            (
                "progress",
                progress,
                callable(progress),
                "a function such as nnpipe.core.progress.silent",
            ),
        )
        if not fits
    ]
    for name, value, wanted in wrong:
        raise ConfigError(f"{name} is a {get_type_name(value)}; give {wanted}")


def check_device(device: str) -> None:
    """Raise :class:`ConfigError` unless PyTorch can compute there."""
    import torch

    if device == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device: PyTorch finds no GPU of Apple here; use 'cpu'")
    if device.startswith("cuda") and torch.cuda.is_available() and ":" in device:
        found = torch.cuda.device_count()
        if int(device.partition(":")[2]) >= found:
            raise ConfigError(
                f"device: there is no {device}; PyTorch finds {found} NVIDIA GPU(s), from cuda:0 on"
            )
    if device.startswith("cuda") and not torch.cuda.is_available():
        build = (
            ""
            if torch.version.cuda
            else f", and PyTorch {torch.__version__} here is built without CUDA"
        )
        raise ConfigError(f"device: PyTorch finds no usable NVIDIA GPU{build}; use 'cpu'")


def check_splits(datasets: Mapping[str, Mapping[str, Any]], options: TrainerOptions) -> None:
    """Raise :class:`ConfigError` if no data set has a split to learn from."""
    if not any(split in options.train_splits for parts in datasets.values() for split in parts):
        known = sorted({split for parts in datasets.values() for split in parts})
        raise ConfigError(
            f"there is nothing to learn from: train_splits are {', '.join(options.train_splits)}, "
            f"and the data sets have {', '.join(known) or 'none'}"
        )


def get_type_name(value: Any) -> str:
    return type(value).__name__


ONLY = "optimiser"
"""The name of an optimiser that was given without one."""


def resolve_optimisers(given: Any, model: Any, parameters: Any) -> dict[str, Any]:
    """Return the ``torch.optim.Optimizer`` that was given or is made, by name; one without a name
    gets :data:`ONLY`.

    Raises
    ------
    ConfigError
        If one cannot be made; the message names it.
    """
    if not isinstance(given, Mapping):
        if isinstance(parameters, Mapping):
            raise ConfigError("parameters have names; give optimisers by the same names")
        return {ONLY: _resolve_optimiser(given, model, parameters)}
    if not given or not all(isinstance(name, str) and name for name in given):
        raise ConfigError(
            "optimiser: give optimisers by name, such as {'generator': AdamW(), 'critic': AdamW()}"
        )
    by_name = {} if parameters is None else parameters
    if not isinstance(by_name, Mapping):
        raise ConfigError("parameters: give those of each optimiser by its name")
    if unknown := [name for name in by_name if name not in given]:
        raise ConfigError(
            f"parameters: there is no optimiser "
            f"{unknown[0]!r}{suggest_name(str(unknown[0]), given)}"
        )
    return {
        name: _resolve_optimiser(one, model, by_name.get(name), name) for name, one in given.items()
    }


def resolve_schedules(
    given: Any, optimisers: Mapping[str, Any]
) -> dict[str, Schedule | TorchSchedule | None]:
    """Return the schedule of each optimiser; one without a name is for all."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(optimisers, given)
    if unknown := [name for name in given if name not in optimisers]:
        raise ConfigError(
            f"schedule: there is no optimiser "
            f"{unknown[0]!r}{suggest_name(str(unknown[0]), optimisers)}"
        )
    return {name: given.get(name) for name in optimisers}


def check_step(given: Any) -> None:
    """Raise :class:`ConfigError` unless this can be a step."""
    if not callable(given) or isinstance(given, type):
        kind = (
            f"the class {given.__name__}; give an instance"
            if isinstance(given, type)
            else f"a {get_type_name(given)}"
        )
        raise ConfigError(
            f"step is {kind}; give a function of the training and a batch: def step(fit, batch)"
        )


def _find_part_parameters(model: Any, name: str) -> list[Any] | None:
    """Return the parameters to train of the part of a model that is called ``name``; None if
    there is no such part.
    """
    import torch

    part: Any = model
    for word in name.split("."):
        part = getattr(part, word, None)
    if isinstance(part, torch.nn.Parameter):
        return [part]
    return (
        [p for p in part.parameters() if p.requires_grad]
        if isinstance(part, torch.nn.Module)
        else None
    )


def _resolve_optimiser(
    given: Any, model: Any, parameters: Iterable[Any] | None, name: str = ""
) -> Any:
    """Return the ``torch.optim.Optimizer`` that was given, or the one that the given factory
    makes.
    """
    import torch

    where = f"optimiser {name!r}" if name else "optimiser"
    if isinstance(given, torch.optim.Optimizer):
        if parameters is not None:
            raise ConfigError("parameters: the optimiser has its own already; give one of the two")
        own = {id(p) for p in model.parameters()}
        if not any(id(p) in own for group in given.param_groups for p in group["params"]):
            raise ConfigError(
                f"{where}: none of its parameters is the model's; make it of this model's, or give "
                f"what makes it, "
                "such as AdamW(rate=0.001)"
            )
        return given
    factory: Any = AdamW() if given is None else given
    if isinstance(factory, type) and issubclass(factory, Component):
        raise ConfigError(
            f"{where} is the class {factory.__name__}; give an instance: {factory.__name__}()"
        )
    if not callable(factory):
        raise ConfigError(
            f"{where} is a {get_type_name(factory)}; give a torch.optim.Optimizer, or what makes "
            f"one of parameters, "
            "such as AdamW(rate=0.001)"
        )
    if parameters is None and name:
        parameters = _find_part_parameters(model, name)
        if parameters is None:
            parts = [part for part, _ in model.named_children()]
            raise ConfigError(
                f"{where}: {type(model).__name__} has no part of this name; name one of "
                f"{', '.join(parts) or 'none'}, "
                "or give its parameters by name"
            )
    chosen = (
        [p for p in model.parameters() if p.requires_grad]
        if parameters is None
        else list(parameters)
    )
    if not chosen:
        raise ConfigError(f"{where if name else type(model).__name__} has no weights to train")
    try:
        made = factory(chosen)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from None
    if not isinstance(made, torch.optim.Optimizer):
        raise ConfigError(f"{where} gave a {get_type_name(made)}, no torch.optim.Optimizer")
    return made


def check_schedule(given: Any) -> None:
    """Raise :class:`ConfigError`, with advice, unless these are schedules that the trainer can
    follow.
    """
    if isinstance(given, Mapping):
        for schedule in given.values():
            check_schedule(schedule)
        return
    if given is None or isinstance(given, (Schedule, TorchSchedule)):
        return
    if isinstance(given, type) and issubclass(given, Schedule):
        raise ConfigError(
            f"schedule is the class {given.__name__}; give an instance: {given.__name__}(...)"
        )
    module = getattr(given, "__module__", "") if isinstance(given, type) else type(given).__module__
    if module.startswith("torch.optim") or callable(given):
        raise ConfigError(
            f"schedule is "
            f"{f'the class {given.__name__}' if isinstance(given, type) else f'a {get_type_name(given)}'}; "
            "give TorchSchedule(make=lambda optimiser: ..., per='step' or 'epoch'), which makes it "
            "of the optimiser"
        )
    raise ConfigError(
        f"schedule is a {get_type_name(given)}; give one of nnpipe.training.optimization, such as "
        f"Cosine()"
    )
