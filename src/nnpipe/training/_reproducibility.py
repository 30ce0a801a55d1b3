"""How the weights of a training come about: the parts of its steps, and the settings on which
they depend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nnpipe.training._forward import build_training_forward
from nnpipe.training._gradient_steps import GradientSteps, Rate
from nnpipe.training._steps import Steps
from nnpipe.training.averages import EpochAverage, WeightAverage
from nnpipe.training.distributed import is_sharded
from nnpipe.training.fit import TrainingRun
from nnpipe.training.optimization import Schedule, TorchSchedule
from nnpipe.training.options import TrainerOptions
from nnpipe.training.run_settings import describe_data, describe_structure
from nnpipe.training.step import LearningStep, default_step


def make_steps(
    fit: TrainingRun,
    schedules: Mapping[str, Schedule | TorchSchedule | None],
    world: int,
    step: LearningStep,
) -> Steps:
    """Return the parts of the steps of a training, whose optimisers follow schedules, in
    ``world`` processes.
    """
    options = fit.options
    # DistributedDataParallel knows of one forward and one backward a batch only, for all weights.
    sharded = is_sharded(fit.model)
    distributed = world > 1 and not sharded and step is default_step and len(fit.optimisers) == 1
    reduces = not (distributed or sharded)
    length = count_steps(fit.datasets, options)
    by_name = {
        name: GradientSteps(name, one, Rate(one, schedules[name], length), options, world, reduces)
        for name, one in fit.optimisers.items()
    }
    forward = build_training_forward(fit.model, options, distributed)
    average = None if options.ema_decay is None else WeightAverage(fit.model, options.ema_decay)
    swa = None if options.swa_start is None else EpochAverage(fit.model)
    return Steps(by_name, forward, options, average, swa)


def count_steps(datasets: Mapping[str, Mapping[str, Any]], options: TrainerOptions) -> int | None:
    """Return the number of steps of a whole training; None if a sequence has no length."""
    most = math.inf if options.max_steps is None else options.max_steps
    if options.epoch_steps is not None:
        return int(min(most, options.num_epochs * options.epoch_steps))
    try:
        batches = sum(
            len(s)
            for parts in datasets.values()
            for name, s in parts.items()
            if name in options.train_splits
        )
    except TypeError:
        return options.max_steps
    return int(min(most, options.num_epochs * -(-batches // options.accumulate)))


def reproducibility_settings(
    fit: TrainingRun, rates: Mapping[str, Rate], step: Any
) -> dict[str, Any]:
    """Return the settings on which the weights depend; a run can only be continued with equal ones.

    Parameters
    ----------
    fit
        The training, before its first step.
    rates
        The rates of each optimiser, which know its settings and those of its schedule.
    step
        What learns from a batch; it is known by its name.
    """
    splits = {name: list(parts) for name, parts in fit.datasets.items()}
    optimisers = {name: rate.optimiser_settings for name, rate in rates.items()}
    schedules = {name: rate.settings for name, rate in rates.items()}
    single = len(rates) == 1
    course = fit.options.get_weight_options() | {
        "datasets": splits,
        "optimiser": next(iter(optimisers.values())) if single else optimisers,
        "schedule": next(iter(schedules.values())) if single else schedules,
        "data": describe_data(fit.datasets),
        "structure": describe_structure(fit.model),
    }
    return course if step is default_step else course | {"step": _get_step_name(step)}


def _get_step_name(step: Any) -> str:
    named = step if hasattr(step, "__qualname__") else type(step)
    return f"{named.__module__}.{named.__qualname__}"
