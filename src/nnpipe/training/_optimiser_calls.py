"""Calling a PyTorch optimiser without telling the profiler of it while there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class OptimiserCalls:
    """``step`` and ``zero_grad`` of an optimiser.

    PyTorch wraps each into a record for its profiler, which takes ten to forty microseconds also if nothing is
    profiled.  So what is wrapped is called while there is neither a profiler nor a hook.  An optimiser whose methods
    somebody has replaced is called as it is.
    """

    def __init__(self, optimiser: Any) -> None:
        import torch
        from torch.optim import optimizer as base

        self._optimiser = optimiser
        self._recorded = getattr(type(optimiser), "step", None)
        self._step = _wrapped_step(optimiser)
        self._plain_zero = getattr(optimiser.zero_grad, "__func__", None) is torch.optim.Optimizer.zero_grad
        # Where a later PyTorch lacks it, every step is told to a profiler, as it is by itself.
        self._profiled = getattr(torch.autograd, "_profiler_enabled", lambda: True)
        self._hooks = base

    def step(self) -> None:
        """Make a step."""
        optimiser, step = self._optimiser, self._step
        if step is None or self._replaced() or self._profiled() or self._hooked():
            optimiser.step()
        else:
            step(optimiser)

    def _replaced(self) -> bool:
        """Return whether the step is another one by now: PyTorch's schedulers put one into an optimiser."""
        return "step" in vars(self._optimiser) or type(self._optimiser).step is not self._recorded

    def _hooked(self) -> bool:
        own, every = self._optimiser, self._hooks
        return bool(
            own._optimizer_step_pre_hooks
            or own._optimizer_step_post_hooks
            or every._global_optimizer_pre_hooks
            or every._global_optimizer_post_hooks
        )

    def forget(self) -> None:
        """Set all gradients to None."""
        if not self._plain_zero:
            self._optimiser.zero_grad(set_to_none=True)
            return
        for group in self._optimiser.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


def _wrapped_step(optimiser: Any) -> Callable[[Any], Any] | None:
    """Return the step of an optimiser's class without PyTorch's record; None if something else is around it."""
    from torch.optim import optimizer as base

    step = getattr(type(optimiser), "step", None)
    record = getattr(base.Optimizer, "profile_hook_step", None)
    # Other wrappers take over all names of what they wrap, but not its code.
    if record is None or getattr(step, "__code__", None) is not record(lambda: None).__code__:
        return None
    places = [(optimiser, "_optimizer_step_pre_hooks"), (optimiser, "_optimizer_step_post_hooks"),
              (base, "_global_optimizer_pre_hooks"), (base, "_global_optimizer_post_hooks")]  # fmt: skip
    known = all(hasattr(owner, name) for owner, name in places)
    return getattr(step, "__wrapped__", None) if known else None
