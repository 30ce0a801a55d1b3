"""Converting and checking the optimisers, schedules and steps that callers pass to a trainer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest
from nnpipe.training._user_inputs import kind_of
from nnpipe.training.optimization import AdamW, Schedule, TorchSchedule

ONLY = "optimiser"
"""The name of an optimiser that was given without one."""


def optimisers_of(given: Any, model: Any, parameters: Any) -> dict[str, Any]:
    """Return the ``torch.optim.Optimizer`` that was given or is made, by name; one without a name gets :data:`ONLY`.

    Raises
    ------
    ConfigError
        If one cannot be made; the message names it.
    """
    if not isinstance(given, Mapping):
        if isinstance(parameters, Mapping):
            raise ConfigError("parameters have names; give optimisers by the same names")
        return {ONLY: _optimiser(given, model, parameters)}
    if not given or not all(isinstance(name, str) and name for name in given):
        raise ConfigError("optimiser: give optimisers by name, such as {'generator': AdamW(), 'critic': AdamW()}")
    by_name = {} if parameters is None else parameters
    if not isinstance(by_name, Mapping):
        raise ConfigError("parameters: give those of each optimiser by its name")
    if unknown := [name for name in by_name if name not in given]:
        raise ConfigError(f"parameters: there is no optimiser {unknown[0]!r}{nearest(str(unknown[0]), given)}")
    return {name: _optimiser(one, model, by_name.get(name), name) for name, one in given.items()}


def schedules_of(given: Any, optimisers: Mapping[str, Any]) -> dict[str, Schedule | TorchSchedule | None]:
    """Return the schedule of each optimiser; one without a name is for all."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(optimisers, given)
    if unknown := [name for name in given if name not in optimisers]:
        raise ConfigError(f"schedule: there is no optimiser {unknown[0]!r}{nearest(str(unknown[0]), optimisers)}")
    return {name: given.get(name) for name in optimisers}


def check_step(given: Any) -> None:
    """Raise :class:`ConfigError` unless this can be a step."""
    if not callable(given) or isinstance(given, type):
        kind = f"the class {given.__name__}; give an instance" if isinstance(given, type) else f"a {kind_of(given)}"
        raise ConfigError(f"step is {kind}; give a function of the training and a batch: def step(fit, batch)")


def _part(model: Any, name: str) -> list[Any] | None:
    """Return the parameters to train of the part of a model that is called ``name``; None if there is no such part."""
    import torch

    part: Any = model
    for word in name.split("."):
        part = getattr(part, word, None)
    if isinstance(part, torch.nn.Parameter):
        return [part]
    return [p for p in part.parameters() if p.requires_grad] if isinstance(part, torch.nn.Module) else None


def _optimiser(given: Any, model: Any, parameters: Iterable[Any] | None, name: str = "") -> Any:
    """Return the ``torch.optim.Optimizer`` that was given, or the one that the given factory makes."""
    import torch

    where = f"optimiser {name!r}" if name else "optimiser"
    if isinstance(given, torch.optim.Optimizer):
        if parameters is not None:
            raise ConfigError("parameters: the optimiser has its own already; give one of the two")
        own = {id(p) for p in model.parameters()}
        if not any(id(p) in own for group in given.param_groups for p in group["params"]):
            raise ConfigError(
                f"{where}: none of its parameters is the model's; make it of this model's, or give what makes it, "
                "such as AdamW(rate=0.001)"
            )
        return given
    factory: Any = AdamW() if given is None else given
    if isinstance(factory, type) and issubclass(factory, Component):
        raise ConfigError(f"{where} is the class {factory.__name__}; give an instance: {factory.__name__}()")
    if not callable(factory):
        raise ConfigError(
            f"{where} is a {kind_of(factory)}; give a torch.optim.Optimizer, or what makes one of parameters, "
            "such as AdamW(rate=0.001)"
        )
    if parameters is None and name:
        parameters = _part(model, name)
        if parameters is None:
            parts = [part for part, _ in model.named_children()]
            raise ConfigError(
                f"{where}: {type(model).__name__} has no part of this name; name one of {', '.join(parts) or 'none'}, "
                "or give its parameters by name"
            )
    chosen = [p for p in model.parameters() if p.requires_grad] if parameters is None else list(parameters)
    if not chosen:
        raise ConfigError(f"{where if name else type(model).__name__} has no weights to train")
    try:
        made = factory(chosen)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from None
    if not isinstance(made, torch.optim.Optimizer):
        raise ConfigError(f"{where} gave a {kind_of(made)}, no torch.optim.Optimizer")
    return made


def check_schedule(given: Any) -> None:
    """Raise :class:`ConfigError`, with advice, unless these are schedules that the trainer can follow."""
    if isinstance(given, Mapping):
        for schedule in given.values():
            check_schedule(schedule)
        return
    if given is None or isinstance(given, (Schedule, TorchSchedule)):
        return
    if isinstance(given, type) and issubclass(given, Schedule):
        raise ConfigError(f"schedule is the class {given.__name__}; give an instance: {given.__name__}(...)")
    module = getattr(given, "__module__", "") if isinstance(given, type) else type(given).__module__
    if module.startswith("torch.optim") or callable(given):
        raise ConfigError(
            f"schedule is {f'the class {given.__name__}' if isinstance(given, type) else f'a {kind_of(given)}'}; "
            "give TorchSchedule(make=lambda optimiser: ..., per='step' or 'epoch'), which makes it of the optimiser"
        )
    raise ConfigError(f"schedule is a {kind_of(given)}; give one of nnpipe.training.optimization, such as Cosine()")
