"""Setting the learning rate for each step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.training.optimization import ConstantRate, Schedule, TorchSchedule
from nnpipe.training.run_settings import optimiser_settings, schedule_settings


class Rate:
    """The optimiser's rates, set before each step.

    Owned by the trainer's loop.

    Attributes
    ----------
    optimiser_settings, settings
        The descriptions of the optimiser and of the schedule.
    scheduled, followed
        Whether :meth:`before_step` and :meth:`after_step` have anything to do.
    """

    def __init__(self, optimiser: Any, schedule: Schedule | TorchSchedule | None, steps: int | None) -> None:
        self.optimiser_settings = optimiser_settings(optimiser)  # before a schedule changes them
        self._optimiser = optimiser  # not its groups, which loading a state replaces
        self._steps = steps
        self._torch: Any = schedule.make(optimiser) if isinstance(schedule, TorchSchedule) else None
        if self._torch is not None and not hasattr(self._torch, "step"):
            raise ConfigError(f"TorchSchedule.make gave a {type(self._torch).__name__}, no scheduler of PyTorch")
        self.settings = schedule_settings(schedule, self._torch, steps)
        self._per = schedule.per if isinstance(schedule, TorchSchedule) else "step"
        self._schedule = schedule if isinstance(schedule, Schedule) and schedule != ConstantRate() else None
        self.scheduled = self._schedule is not None
        self.followed = self._torch is not None and self._per == "step"
        self._bases = [group["lr"] for group in optimiser.param_groups] if self._schedule else []

    def before_step(self, step: int) -> None:
        """Set the rates for a step."""
        if self._schedule is not None:
            factor = self._schedule.factor(step, self._steps)
            for group, base in zip(self._optimiser.param_groups, self._bases, strict=True):
                group["lr"] = base * factor

    def after_step(self) -> None:
        """Step a PyTorch scheduler that counts steps."""
        if self.followed:
            self._torch.step()

    def after_epoch(self, figure: float | None) -> None:
        """Step a PyTorch scheduler that counts epochs."""
        if self._torch is None or self._per != "epoch":
            return
        if not hasattr(self._torch, "patience"):  # ReduceLROnPlateau
            self._torch.step()
        elif figure is not None:
            self._torch.step(figure if math.isfinite(figure) else math.nan)  # never better than another

    def scale(self, factor: float) -> None:
        """Multiply the present rates, and all that the schedule makes of them, with a factor."""
        for group in self._optimiser.param_groups:
            for name in ("lr", "initial_lr", "max_lr", "min_lr"):
                if name in group:
                    group[name] = group[name] * factor
        self._bases = [base * factor for base in self._bases]
        if hasattr(self._torch, "base_lrs"):
            self._torch.base_lrs = [base * factor for base in self._torch.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        if self._torch is None:
            return {"bases": list(self._bases)}
        # A state holds no functions; PyTorch's own LambdaLR leaves them out for the same reason.
        return {"torch": {k: v for k, v in self._torch.state_dict().items() if not callable(v)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        if self._torch is not None:
            self._torch.load_state_dict(state["torch"])
        else:
            self._bases = list(state["bases"])
