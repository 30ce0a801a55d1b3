"""Converting and checking the arguments that callers pass to a trainer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.training.options import TrainerOptions

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
    raise ConfigError(f"model is a {kind_of(given)}, no torch.nn.Module")


def datasets_of(given: Any, seed: int) -> dict[str, dict[str, Any]]:
    """Return sequences by data set and split.

    A ``torch.utils.data.DataLoader``, a ``tf.data.Dataset`` of batches, and a data set of Hugging Face become
    sequences; the last in batches of 32 samples, those of ``train`` shuffled.  A single one
    becomes the training split; splits without a data set's name get one.

    Raises
    ------
    ConfigError
        If a value is not a sequence; the message says how to make one of it.
    """
    if _goes(given):
        given = {ONLY: {"train": given}}
    if not isinstance(given, Mapping):
        raise ConfigError(f"datasets is a {kind_of(given)}; {_hint(given)}")
    if given and all(_goes(part) for part in given.values()):
        given = {ONLY: given}
    found: dict[str, dict[str, Any]] = {}
    for name, parts in given.items():
        if not isinstance(parts, Mapping):
            raise ConfigError(f"datasets[{name!r}] is a {kind_of(parts)}; {_hint(parts)}")
        for word in (name, *parts):
            if not isinstance(word, str) or "/" in word:
                raise ConfigError(f"{word!r}: the name of a data set or split is a text, and cannot hold a slash")
        found[name] = {
            split: _sequence(part, f"datasets[{name!r}][{split!r}]", seed, split == "train")
            for split, part in parts.items()
        }
    return found


def _goes(value: Any) -> bool:
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


def _sequence(value: Any, where: str, seed: int, shuffle: bool) -> Any:
    if _is_loader(value):
        from nnpipe.training.sequences.torch_loader import TorchSequence

        return TorchSequence(value, seed=seed)
    if _is_of_tensorflow(value):
        from nnpipe.training.sequences.tensorflow_dataset import TensorFlowSequence

        return TensorFlowSequence(value)
    if _is_of_hugging_face(value):
        from nnpipe.training.sequences.hugging_face import HuggingFaceSequence

        return HuggingFaceSequence(value, shuffle=shuffle, seed=seed)
    if not _goes(value) or isinstance(value, type):
        raise ConfigError(f"{where} is a {kind_of(value)}, no sequence of batches; {_hint(value)}")
    return value


def _hint(value: Any) -> str:
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
            ("progress", progress, callable(progress), "a function such as nnpipe.core.progress.silent"),
        )
        if not fits
    ]
    for name, value, wanted in wrong:
        raise ConfigError(f"{name} is a {kind_of(value)}; give {wanted}")


def check_device(device: str) -> None:
    """Raise :class:`ConfigError` unless PyTorch can compute there."""
    import torch

    if device == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device: PyTorch finds no GPU of Apple here; use 'cpu'")
    if device.startswith("cuda") and torch.cuda.is_available() and ":" in device:
        found = torch.cuda.device_count()
        if int(device.partition(":")[2]) >= found:
            raise ConfigError(f"device: there is no {device}; PyTorch finds {found} NVIDIA GPU(s), from cuda:0 on")
    if device.startswith("cuda") and not torch.cuda.is_available():
        build = "" if torch.version.cuda else f", and PyTorch {torch.__version__} here is built without CUDA"
        raise ConfigError(f"device: PyTorch finds no usable NVIDIA GPU{build}; use 'cpu'")


def check_splits(datasets: Mapping[str, Mapping[str, Any]], options: TrainerOptions) -> None:
    """Raise :class:`ConfigError` if no data set has a split to learn from."""
    if not any(split in options.train_splits for parts in datasets.values() for split in parts):
        known = sorted({split for parts in datasets.values() for split in parts})
        raise ConfigError(
            f"there is nothing to learn from: train_splits are {', '.join(options.train_splits)}, "
            f"and the data sets have {', '.join(known) or 'none'}"
        )


def kind_of(value: Any) -> str:
    return type(value).__name__
