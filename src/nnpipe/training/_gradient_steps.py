"""Accumulating gradients for one optimiser, and making its steps from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.training.distributed import gather_shards, load_optimiser, shard_like
from nnpipe.training.optimization import ConstantRate, Schedule, TorchSchedule
from nnpipe.training.options import TrainerOptions
from nnpipe.training.run_settings import describe_optimiser, describe_schedule


class OptimiserCalls:
    """``step`` and ``zero_grad`` of an optimiser.

    PyTorch wraps each into a record for its profiler, which takes ten to forty microseconds also if
    nothing is profiled.  So what is wrapped is called while there is neither a profiler nor a hook.
    An optimiser whose methods somebody has replaced is called as it is.
    """

    def __init__(self, optimiser: Any) -> None:
        import torch
        from torch.optim import optimizer as base

        self._optimiser = optimiser
        self._recorded = getattr(type(optimiser), "step", None)
        self._step = _unwrap_step(optimiser)
        self._plain_zero = (
            getattr(optimiser.zero_grad, "__func__", None) is torch.optim.Optimizer.zero_grad
        )
        # Where a later PyTorch lacks it, every step is told to a profiler, as it is by itself.
        self._profiled = getattr(torch.autograd, "_profiler_enabled", lambda: True)
        self._hooks = base

    def step(self) -> None:
        """Make a step."""
        optimiser, step = self._optimiser, self._step
        if step is None or self._is_replaced() or self._profiled() or self._has_hooks():
            optimiser.step()
        else:
            step(optimiser)

    def _is_replaced(self) -> bool:
        """Return whether the step is another one by now: PyTorch's schedulers put one into an
        optimiser.
        """
        return "step" in vars(self._optimiser) or type(self._optimiser).step is not self._recorded

    def _has_hooks(self) -> bool:
        own, every = self._optimiser, self._hooks
        return bool(
            own._optimizer_step_pre_hooks
            or own._optimizer_step_post_hooks
            or every._global_optimizer_pre_hooks
            or every._global_optimizer_post_hooks
        )

    def clear_gradients(self) -> None:
        """Set all gradients to None."""
        if not self._plain_zero:
            self._optimiser.zero_grad(set_to_none=True)
            return
        for group in self._optimiser.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


def _unwrap_step(optimiser: Any) -> Callable[[Any], Any] | None:
    """Return the step of an optimiser's class without PyTorch's record; None if something else
    is around it.
    """
    from torch.optim import optimizer as base

    step = getattr(type(optimiser), "step", None)
    record = getattr(base.Optimizer, "profile_hook_step", None)
    # Other wrappers take over all names of what they wrap, but not its code.
    if record is None or getattr(step, "__code__", None) is not record(lambda: None).__code__:
        return None
    places = [
        (optimiser, "_optimizer_step_pre_hooks"),
        (optimiser, "_optimizer_step_post_hooks"),
        (base, "_global_optimizer_pre_hooks"),
        (base, "_global_optimizer_post_hooks"),
    ]
    known = all(hasattr(owner, name) for owner, name in places)
    return getattr(step, "__wrapped__", None) if known else None


class Rate:
    """The optimiser's rates, set before each step.

    Owned by the trainer's loop.

    Attributes
    ----------
    optimiser_settings, settings
        The descriptions of the optimiser and of the schedule.
    scheduled, followed
        Whether :meth:`begin_step` and :meth:`finish_step` have anything to do.
    """

    def __init__(
        self, optimiser: Any, schedule: Schedule | TorchSchedule | None, steps: int | None
    ) -> None:
        self.optimiser_settings = describe_optimiser(optimiser)  # before a schedule changes them
        self._optimiser = optimiser  # not its groups, which loading a state replaces
        self._steps = steps
        self._torch: Any = schedule.make(optimiser) if isinstance(schedule, TorchSchedule) else None
        if self._torch is not None and not hasattr(self._torch, "step"):
            raise ConfigError(
                f"TorchSchedule.make gave a {type(self._torch).__name__}, no scheduler of PyTorch"
            )
        self.settings = describe_schedule(schedule, self._torch, steps)
        self._per = schedule.per if isinstance(schedule, TorchSchedule) else "step"
        self._schedule = (
            schedule if isinstance(schedule, Schedule) and schedule != ConstantRate() else None
        )
        self.scheduled = self._schedule is not None
        self.followed = self._torch is not None and self._per == "step"
        self._bases = [group["lr"] for group in optimiser.param_groups] if self._schedule else []

    def begin_step(self, step: int) -> None:
        """Set the rates for a step."""
        if self._schedule is not None:
            factor = self._schedule.factor(step, self._steps)
            for group, base in zip(self._optimiser.param_groups, self._bases, strict=True):
                group["lr"] = base * factor

    def finish_step(self) -> None:
        """Step a PyTorch scheduler that counts steps."""
        if self.followed:
            self._torch.step()

    def finish_epoch(self, figure: float | None) -> None:
        """Step a PyTorch scheduler that counts epochs."""
        if self._torch is None or self._per != "epoch":
            return
        if not hasattr(self._torch, "patience"):  # ReduceLROnPlateau
            self._torch.step()
        elif figure is not None:
            # never better than another
            self._torch.step(figure if math.isfinite(figure) else math.nan)

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


class GradientSteps:
    """Accumulates gradients over batches and processes, and makes the steps of an optimiser from
    them.

    With one batch per step and one process, the batch's mean loss is
    differentiated.  Otherwise the sum over its samples is, and the gradients are
    then divided by the number of samples of the whole step.  So the result is
    always the mean over all samples, even if batches differ in size.

    Attributes
    ----------
    used
        Whether a step has used the gradients, so that the next batch begins with none.
    stepped
        Whether a step was made since the batch began.
    reduces
        Whether gradients are the mean over processes only after :meth:`step` has exchanged them.
    norm
        The norm of all gradients before clipping; None unless ``clip_norm`` is set.

    Parameters
    ----------
    name
        The name of the optimiser in messages.
    optimiser, rate
        The optimiser, and what sets its learning rates.
    world
        Number of processes.
    reduces
        Whether gradients are the mean over processes only after :meth:`step` has exchanged them.
        ``DistributedDataParallel`` and sharded models have exchanged them before.
    """

    def __init__(
        self,
        name: str,
        optimiser: Any,
        rate: Rate,
        options: TrainerOptions,
        world: int,
        reduces: bool = False,
    ) -> None:
        import torch

        self.name = name
        self.optimiser = optimiser
        self.rate = rate
        self.norm: Any = None
        self.used, self.stepped = True, False
        half = options.precision == "float16"
        self.scaler: Any = torch.amp.GradScaler(options.device_kind) if half else None
        self.parameters = [
            p for group in optimiser.param_groups for p in group["params"] if p.requires_grad
        ]
        self._options = options
        self._world = world
        self.reduces = reduces and world > 1
        self._summed = options.accumulate > 1 or world > 1
        self._batches = self._samples = 0
        self._calls = OptimiserCalls(optimiser)
        self._clips = options.clip_norm is not None or options.clip_value is not None
        self._counted = False  # whether the present batch is one of _batches

    @property
    def pending(self) -> bool:
        """Whether :meth:`backward` added gradients that no step has used yet."""
        return self._batches > 0

    @property
    def ready(self) -> bool:
        """Whether a step may be made: enough batches were accumulated, or gradients were
        computed elsewhere.
        """
        return not self._batches or self._batches >= self._options.accumulate

    def begin_batch(self) -> None:
        """Begin a batch: forget gradients that a step has used."""
        self.stepped = self._counted = False
        if self.used:
            self._clear_gradients()

    def backward(
        self, loss: Any, size: int, inputs: Any, retain_graph: bool | None, create_graph: bool
    ) -> None:
        """Add the gradients of the mean loss of a batch of ``size`` samples.

        ``inputs`` are the parameters that receive gradients; None for all.
        """
        self.count(size)
        if self._summed:
            loss = loss * size
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward(retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)

    def count(self, size: int) -> None:
        """Count a batch whose gradients are added, once; after a step, with new gradients."""
        if self.used:  # a second step with the same batch
            self._clear_gradients()
            self._counted = False
        if not self._counted:
            self._counted = True
            self._batches += 1
            self._samples += size

    def _clear_gradients(self) -> None:
        """Begin with no gradients."""
        self.used = False
        self._calls.clear_gradients()

    def discard(self) -> None:
        """Forget the gradients that no step has used."""
        self.used, self._batches, self._samples = True, 0, 0

    def step(self, number: int) -> None:
        """Make step ``number``, counted from 0."""
        options = self._options
        if self.rate.scheduled:
            self.rate.begin_step(number)
        own = not self._batches  # computed without backward: neither scaled nor summed
        if own and all(p.grad is None for p in self.parameters):
            raise ConfigError(
                f"{self.name}: no weight has a gradient; call fit.backward(loss) before "
                f"fit.update()"
            )
        scaler = None if own else self.scaler
        if self.reduces:
            # before the scaler looks for infinities: all processes must find the same
            self._reduce_gradients()
        if scaler is not None:
            scaler.unscale_(self.optimiser)
        if self._summed and not own:
            self._normalize_gradients()
        if self._clips:
            self._clip(options.clip_norm, options.clip_value)
        if scaler is not None:
            scaler.step(self.optimiser)
            scaler.update()
        else:
            self._calls.step()
        self.used = self.stepped = True
        self._batches = self._samples = 0

    def _reduce_gradients(self) -> None:
        """Replace the gradients by their means over the processes; all processes must call it."""
        import torch

        there = torch.tensor([p.grad is not None for p in self.parameters], dtype=torch.float32)
        there = there.to(self.parameters[0].device)
        torch.distributed.all_reduce(there)
        found = [p for p, count in zip(self.parameters, there.tolist(), strict=True) if count]
        for parameter in found:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            torch.distributed.all_reduce(parameter.grad)
        torch._foreach_mul_([p.grad for p in found], 1.0 / self._world)

    def _normalize_gradients(self) -> None:
        import torch

        samples = float(self._samples)
        if self._world > 1:
            total = torch.tensor(samples, device=self.parameters[0].device)
            torch.distributed.all_reduce(total)
            samples = float(total) / self._world  # gradients are the mean over processes
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        torch._foreach_mul_(gradients, 1.0 / samples)

    def _clip(self, norm: float | None, value: float | None) -> None:
        import torch

        if value is not None:
            torch.nn.utils.clip_grad_value_(self.parameters, value)
        if norm is not None:
            self.norm = gather_shards(torch.nn.utils.clip_grad_norm_(self.parameters, norm), True)

    # -- checkpoints ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs, but for gradients."""
        scaler = self.scaler.state_dict() if self.scaler is not None else None
        return {
            "optimiser": self.optimiser.state_dict(),
            "rate": self.rate.state_dict(),
            "scaler": scaler,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        load_optimiser(self.optimiser, state["optimiser"])
        self.rate.load_state_dict(state["rate"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])

    def gradients(self) -> dict[str, Any] | None:
        """Return the gradients that no step has used, which differ between processes; None if
        there are none.
        """
        found = {str(n): p.grad for n, p in enumerate(self.parameters) if p.grad is not None}
        if self.used or not found:
            return None
        shared = self._world > 1 and not self.reduces  # all processes have their mean
        return {
            "batches": self._batches,
            "samples": self._samples,
            "gradients": found,
            "shared": shared,
        }

    def load_gradients(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`gradients` returned."""
        self.used, self._batches, self._samples = False, state["batches"], state["samples"]
        for number, gradient in state["gradients"].items():
            parameter = self.parameters[int(number)]
            parameter.grad = shard_like(gradient.to(parameter.device), parameter)
