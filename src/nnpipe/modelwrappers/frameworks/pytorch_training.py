"""Training PyTorch modules: whole trainings on a data set, and single steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.model import Samples, random_batch
from nnpipe.core.progress import Progress
from nnpipe.core.tensors import Batch, batch_size
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.frameworks.torch_session import tensor_of, threads
from nnpipe.modelwrappers.frameworks.pytorch_curves import Curves

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

_WEIGHT_DECAY = 0.01
_STEP_RATE = 1e-3
_RANDOM_BATCH = 8
# Asking a GPU for the loss makes the host wait, so it is asked now and then.
_STEPS_BETWEEN_CHECKS = 50
# Below this much work a thread waits for the others longer than it computes, on a busy machine many times as long.
_OPERATIONS_A_THREAD = 2e9


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """Draw PyTorch's random numbers from a seed inside the block, and as before after it."""
    import torch

    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.backends.cudnn.flags(deterministic=True, benchmark=False):
        torch.manual_seed(seed)
        yield


def train(wrapper: PyTorchWrapper, dataset: Dataset, options: TrainingOptions, progress: Progress) -> TrainingHistory:
    """Fit the wrapper's module with AdamW, the step size falling to nothing along half a cosine.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, and
    "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017 (without restarts).
    """
    import torch

    dataset.prepare()
    indices, held_out = dataset.split("train"), dataset.split("validation")
    if not len(indices):
        raise DatasetError(f"{type(dataset).__name__} has no training samples")
    module = wrapper.native
    steps = options.num_epochs * len(_cuts(len(indices), options.batch_size))
    optimiser = optimiser_of(wrapper, options.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    rng = np.random.default_rng(options.seed)
    epochs: list[dict[str, float]] = []
    try:
        useful = useful_threads(wrapper, min(options.batch_size, len(indices)))
        with seeded(options.seed, wrapper.device), threads(useful), Curves(options.logdir) as curves:
            for epoch in range(1, options.num_epochs + 1):
                batches = _batches(wrapper, dataset, rng.permutation(indices), options.batch_size, rng)
                total = len(_cuts(len(indices), options.batch_size))
                rate = schedule.get_last_lr()[0]
                means = Means(wrapper, f"epoch {epoch}")
                wrapper.training_mode(module)
                for batch in progress(batches, f"epoch {epoch}/{options.num_epochs}", total):
                    means.add(*step(wrapper, optimiser, *batch), batch_size(batch[0]))
                    schedule.step()
                found = means.result()
                curves.add("train", epoch, found | {"learning_rate": rate})
                if len(held_out):
                    validation = validate(wrapper, _batches(wrapper, dataset, held_out, options.batch_size))
                    curves.add("validation", epoch, validation)
                    found |= {f"validation_{name}": value for name, value in validation.items()}
                epochs.append(found)
    finally:
        module.eval()
    return TrainingHistory(tuple(epochs))


def useful_threads(wrapper: PyTorchWrapper, size: int) -> int:
    """Number of threads that a step has work for, from the operations of a forward pass; at most PyTorch's own."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    if wrapper.device != "cpu":
        return 0
    batch = random_batch(wrapper.io, size)
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        wrapper.native.eval()(*(tensor_of(batch[spec.name], "cpu") for spec in wrapper.io.inputs))
    worth: int = round(counter.get_total_flops() / _OPERATIONS_A_THREAD)
    return max(1, min(int(torch.get_num_threads()), worth))


def optimiser_of(wrapper: PyTorchWrapper, rate: float) -> Any:
    """Make the optimiser of the weights that are to be trained."""
    import torch

    return torch.optim.AdamW(wrapper.parameters_to_train(wrapper.native), lr=rate, weight_decay=_WEIGHT_DECAY)


def step(wrapper: PyTorchWrapper, optimiser: Any, inputs: Batch, truth: Batch) -> tuple[Any, Any]:
    """Do one step and give the loss and the score, before it, as tensors."""
    outputs, targets = forward(wrapper, inputs, truth)
    loss = wrapper.loss(outputs, targets)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.detach(), wrapper.score(tuple(output.detach() for output in outputs), targets)


def validate(wrapper: PyTorchWrapper, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
    """Compute loss and score over all samples, each weighing the same."""
    import torch

    wrapper.native.eval()
    means = Means(wrapper, "validation")
    with torch.inference_mode():
        for inputs, truth in batches:
            outputs, targets = forward(wrapper, inputs, truth)
            means.add(wrapper.loss(outputs, targets), wrapper.score(outputs, targets), batch_size(inputs))
    return means.result()


def forward(wrapper: PyTorchWrapper, inputs: Batch, truth: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Run the module on a batch; give its outputs, as the loss takes them, and the truth as tensors."""
    given = (tensor_of(inputs[spec.name], wrapper.device) for spec in wrapper.io.inputs)
    targets = {name: tensor_of(array, wrapper.device) for name, array in truth.items()}
    return as_tuple(wrapper.native(*given)), targets


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """Give what a module returned as a tuple."""
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


class Means:
    """Means of loss and score over samples; batches count by their size.

    Sums stay on the device, in double precision.
    """

    def __init__(self, wrapper: PyTorchWrapper, where: str) -> None:
        self._names = ("loss", wrapper.score_name)
        self._where = where
        self._sums: Any = None
        self._samples = 0
        self._steps = 0
        self._every = 1 if wrapper.device == "cpu" else _STEPS_BETWEEN_CHECKS

    def add(self, loss: Any, score: Any, samples: int) -> None:
        """Add the means of one batch; raise :class:`ConfigError` once the loss is no number."""
        import torch

        sums = torch.stack([loss.double(), score.double()]) * samples
        self._sums = sums if self._sums is None else self._sums + sums
        self._samples += samples
        self._steps += 1
        if self._steps % self._every == 0:
            self._check()

    def result(self) -> dict[str, float]:
        """Give the means by name."""
        self._check()
        return {name: value / self._samples for name, value in zip(self._names, self._sums.tolist(), strict=True)}

    def _check(self) -> None:
        if not math.isfinite(float(self._sums[0])):
            raise ConfigError(
                f"the training diverged in {self._where}, step {self._steps}: the loss is {float(self._sums[0])}; "
                "use a smaller --learning-rate"
            )


def _batches(
    wrapper: PyTorchWrapper,
    dataset: Dataset,
    indices: np.ndarray,
    size: int,
    rng: np.random.Generator | None = None,
) -> Iterator[tuple[Batch, Batch]]:
    """Read, preprocess and, where there is a generator, vary samples in batches."""
    for start, end in _cuts(len(indices), size):
        raw, truth = dataset.read(indices[start:end])
        inputs = wrapper.preprocess(dataset.preprocess(raw))
        yield (inputs if rng is None else wrapper.augment(inputs, rng)), truth


def _cuts(count: int, size: int) -> list[tuple[int, int]]:
    """Cut a number of samples into batches; a single one left over joins the last batch.

    Batch normalisation cannot learn from one sample.
    """
    starts = list(range(0, count, size))
    if len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], count], strict=True))


def random_samples(wrapper: PyTorchWrapper) -> Iterator[tuple[Batch, Batch]]:
    """Make batches of noise with random truth, without end and the same every time."""
    seed = 0
    while True:
        yield random_batch(wrapper.io, _RANDOM_BATCH, seed), wrapper.random_truth(_RANDOM_BATCH, seed)
        seed += 1


def some(wrapper: PyTorchWrapper, n_steps: int, samples: Samples | None) -> Iterator[tuple[Batch, Batch]]:
    """Give ``n_steps`` batches, or as many as there are; of noise where there are none given."""
    return islice(random_samples(wrapper) if samples is None else samples, n_steps)


def run_steps(
    wrapper: PyTorchWrapper,
    n_steps: int,
    samples: Samples | None,
    around: Callable[[Callable[[], Any]], Any] = lambda work: work(),
) -> list[tuple[float, float]]:
    """Do some training steps and give ``(loss, score)`` of each.

    ``around`` is called with each step's work, for those who want to watch it.
    """
    found = []
    try:
        with seeded(0, wrapper.device):
            optimiser = optimiser_of(wrapper, _STEP_RATE)
            wrapper.training_mode(wrapper.native)
            for inputs, truth in some(wrapper, n_steps, samples):
                loss, score = around(partial(step, wrapper, optimiser, inputs, truth))
                found.append((float(loss), float(score)))
    finally:
        wrapper.native.eval()
    return found
