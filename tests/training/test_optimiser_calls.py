"""Optimisers are called without PyTorch's record only while nobody could see it."""

import functools

import pytest

torch = pytest.importorskip("torch")

from torch.optim import optimizer  # noqa: E402

from nnpipe.training._gradient_steps import OptimiserCalls  # noqa: E402


def weight_and_optimiser():
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    return weight, torch.optim.SGD([weight], lr=0.5)


def records_of(calls):
    with torch.profiler.profile() as profile:
        calls.step()
    return [event.name for event in profile.events() if event.name.startswith("Optimizer.step")]


def test_a_step_is_the_optimisers_own_and_leaves_out_the_record(monkeypatch):
    weight, optimiser = weight_and_optimiser()
    calls = OptimiserCalls(optimiser)
    monkeypatch.setattr(torch.autograd.profiler, "record_function", None)  # fails if it is called
    calls.step()
    assert weight.tolist() == [0.5] * 3
    assert torch.is_grad_enabled()


def test_a_profiler_sees_the_step():
    _, optimiser = weight_and_optimiser()
    assert records_of(OptimiserCalls(optimiser)) == ["Optimizer.step#SGD.step"]


@pytest.mark.parametrize("register", ["register_step_pre_hook", "register_step_post_hook"])
def test_hooks_of_an_optimiser_are_called(register):
    _, optimiser = weight_and_optimiser()
    calls, seen = OptimiserCalls(optimiser), []
    handle = getattr(optimiser, register)(lambda *given: seen.append(given[0]))
    calls.step()
    handle.remove()
    calls.step()
    assert seen == [optimiser]


@pytest.mark.parametrize(
    "register", ["register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"]
)
def test_hooks_of_all_optimisers_are_called(register):
    _, optimiser = weight_and_optimiser()
    calls, seen = OptimiserCalls(optimiser), []
    handle = getattr(optimizer, register)(lambda *given: seen.append(given[0]))
    try:
        calls.step()
    finally:
        handle.remove()
    assert seen == [optimiser]


def test_a_scheduler_that_counts_steps_sees_them():
    _, optimiser = weight_and_optimiser()
    calls = OptimiserCalls(optimiser)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)
    calls.step()
    schedule.step()  # warns, which is an error here, unless the optimiser's own step was called


def test_a_step_that_somebody_has_wrapped_is_called():
    class Watched(torch.optim.SGD):
        pass

    weight = torch.nn.Parameter(torch.ones(3))
    optimiser, seen = Watched([weight], lr=0.5), []
    original = Watched.step

    @functools.wraps(original)  # takes over the names by which PyTorch knows its own wrapper
    def step(self):
        seen.append(self)
        return original(self)

    Watched.step = step
    OptimiserCalls(optimiser).step()
    assert seen == [optimiser]


def test_gradients_are_forgotten_also_by_a_zero_grad_of_ones_own():
    class Own(torch.optim.SGD):
        def zero_grad(self, set_to_none=True):
            self.asked = set_to_none

    weight, optimiser = weight_and_optimiser()
    OptimiserCalls(optimiser).clear_gradients()
    assert weight.grad is None
    own = Own([weight], lr=0.5)
    OptimiserCalls(own).clear_gradients()
    assert own.asked is True
