"""Training of PyTorch modules: on a data set, and in single steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from nnpipe.core.component import find_source_files
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.core.model import Samples
from nnpipe.core.progress import Progress, Renaming
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.experiment.state import State
from nnpipe.frameworks.torch_session import set_torch_threads, to_tensor
from nnpipe.frameworks.training_curves import DATA, map_epoch_figures, write_training_curves
from nnpipe.modelwrappers.frameworks.inspection import convert_history
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import choose
from nnpipe.training.final_weights import FinalWeights
from nnpipe.training.fit import TrainingRun
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.output import Metric, Output
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.training.trainer import Trainer

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

_INPUT, _TRUTH = "input/", "truth/"


def make_sequence(
    wrapper: PyTorchWrapper, dataset: Dataset, split: str, size: int, seed: int | None
) -> DatasetSequence:
    """Return the batches of a split, prepared for the model and, with a seed, shuffled and
    augmented.
    """
    return DatasetSequence(
        dataset,
        split,
        batch=size,
        shuffle=seed is not None,
        seed=seed or 0,
        prepare=wrapper.preprocess,
        augment=None if seed is None else wrapper.augment,
        prefixes=(_INPUT, _TRUTH),
    )


@dataclass(eq=False)
class WrapperOutput(Output):
    """All outputs of a wrapper's module, with the wrapper's ``loss`` and ``score`` of whole
    batches.
    """

    wrapper: Any = field(kw_only=True)
    _mean: Any = field(default=None, init=False, repr=False)

    def loss(self) -> Any:
        """Return the mean loss of the batch."""
        if self._mean is None:
            self._mean = self.wrapper.loss(self.output, self.target)
        return self._mean

    def compute_losses(self) -> Any:
        """Return the loss of each sample; calls the wrapper's ``loss`` once per sample."""
        import torch

        def compute_one(sample: int) -> Any:
            here = slice(sample, sample + 1)
            truth = {name: tensor[here] for name, tensor in self.target.items()}
            return self.wrapper.loss(tuple(tensor[here] for tensor in self.output), truth)

        return torch.stack([compute_one(sample) for sample in range(self._size)])

    @property
    def _size(self) -> int:
        return len(self.output[0])

    def predictions(self) -> Any:
        """Return the module's results."""
        return tuple(tensor.detach() for tensor in self.output)

    def loss_metric(self) -> Metric:
        """Return the mean loss, weighted with the number of samples."""
        return self._make_metric(self.loss().detach())

    def metrics(self) -> dict[str, Metric]:
        """Return the wrapper's score."""
        detached = tuple(tensor.detach() for tensor in self.output)
        return {
            self.wrapper.score_name: self._make_metric(self.wrapper.score(detached, self.target))
        }

    def _make_metric(self, mean: Any) -> Metric:
        count = mean.double().new_full((1,), self._size)
        return Metric(mean.double()[None] * count, count)


def wrap_for_training(wrapper: PyTorchWrapper, module: Any) -> Any:
    """Return the trainer's module: the live one with batches as arguments."""
    import torch

    class Trained(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            if mode:
                wrapper.training_mode(self.module)
            else:
                wrapper.inference_mode(self.module)
            return self

        def forward(self, batch: Mapping[str, Any]) -> Output | dict[str, Output]:
            outputs = as_tuple(
                self.module(*(batch[_INPUT + spec.name] for spec in wrapper.io.inputs))
            )
            # An autoencoder is judged by what it was given.
            truth = {spec.name: batch[_INPUT + spec.name] for spec in wrapper.io.inputs}
            truth |= {
                n.removeprefix(_TRUTH): tensor
                for n, tensor in batch.items()
                if n.startswith(_TRUTH)
            }
            return wrapper.judge(self.module, outputs, truth)

    return Trained()


def make_output(
    wrapper: PyTorchWrapper, outputs: tuple[Any, ...], truth: Mapping[str, Any]
) -> Output:
    """Return the output with the wrapper's loss and score, or a classification if they are the
    defaults.
    """
    if wrapper.classifies():
        return ClassificationOutput(outputs[0], truth["label"])
    return WrapperOutput(outputs, truth, wrapper=wrapper)


def create_callbacks(
    wrapper: PyTorchWrapper, dataset: Dataset, options: TrainingOptions
) -> tuple[Callback, ...]:
    """Return the requested callbacks; none without a folder for their files."""
    if options.run_folder is None:
        return ()
    first = _INPUT + wrapper.io.inputs[0].name
    known = {
        "classes": dataset.spec.class_names,
        "folders": find_source_files(wrapper, dataset),
        "input": first,
        "inputs": [_INPUT + spec.name for spec in wrapper.io.inputs],
        "output": "output",
    }
    return choose(options.callbacks, framework="torch", known=known, classes=wrapper.classifies())


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """Return a module's results as a tuple."""
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


class EpochCurves(Callback):
    """Passes on the figures of each epoch and the rate of its first step, and records which
    weights are kept.
    """

    def __init__(self, write: Callable[[int, Mapping[str, float]], None]) -> None:
        self.write = write
        self.first = State(rate=0.0)
        self.final: FinalWeights | None = None

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Record the rate."""
        if fit.batch == 1:
            self.first.rate = fit.rates[0]

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Pass on the figures."""
        self.write(
            fit.epoch, map_epoch_figures(fit.history.last) | {"learning_rate": self.first.rate}
        )

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Record which weights are kept."""
        self.final = fit.final


_WEIGHT_DECAY = 0.01
_STEP_RATE = 1e-3
_RANDOM_BATCH = 8
_STEPS_BETWEEN_CHECKPOINTS = 500
# With less work, a thread waits longer for the others than it computes, on a busy machine many
# times longer.
_OPERATIONS_A_THREAD = 2e9


@contextmanager
def apply_seed(seed: int, device: str) -> Iterator[None]:
    """Seed PyTorch's random numbers inside the block, and restore the generator after it."""
    import torch

    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with (
        torch.random.fork_rng(devices=devices),
        torch.backends.cudnn.flags(deterministic=True, benchmark=False),
    ):
        torch.manual_seed(seed)
        yield


def train(
    wrapper: PyTorchWrapper,
    module: Any,
    dataset: Dataset,
    options: TrainingOptions,
    progress: Progress,
) -> TrainingHistory:
    """Fit the module with AdamW; the step size decreases to 0 along half a cosine.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, and
    "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017 (without restarts).
    """
    dataset.prepare()
    if not len(dataset.split("train")):
        raise DatasetError(f"{type(dataset).__name__} has no training samples")
    parts = {"train": make_sequence(wrapper, dataset, "train", options.batch_size, options.seed)}
    if len(dataset.split("validation")):
        parts["validation"] = make_sequence(
            wrapper, dataset, "validation", options.batch_size, None
        )
    asked = TrainerOptions.from_json(
        {
            "num_epochs": options.num_epochs,
            "seed": options.seed,
            "device": wrapper.device,
            "checkpoint_every": _STEPS_BETWEEN_CHECKPOINTS,
            "weights": options.weights,
        }
    )
    useful = count_useful_threads(
        wrapper, module, min(options.batch_size, len(dataset.split("train")))
    )
    try:
        with (
            apply_seed(options.seed, wrapper.device),
            set_torch_threads(useful),
            write_training_curves(options.logdir) as write,
        ):
            epochs = EpochCurves(write)
            history = Trainer(asked, (epochs, *create_callbacks(wrapper, dataset, options))).fit(
                wrap_for_training(wrapper, module),
                {DATA: parts},
                folder=options.run_folder,
                optimiser=AdamW(rate=options.learning_rate, weight_decay=_WEIGHT_DECAY),
                schedule=Cosine(),
                resume=options.resume,
                parameters=wrapper.parameters_to_train(module),
                identity={
                    "wrapper": hide_settings_secrets(wrapper.describe()),
                    "dataset": hide_settings_secrets(dataset.describe()),
                    "training": options.get_weight_options(),
                },
                progress=Renaming(progress, map_epoch_figures),
            )
    finally:
        module.eval()
    return convert_history(history, epochs.final)


def count_useful_threads(wrapper: PyTorchWrapper, module: Any, size: int) -> int:
    """Return the number of threads useful for a step, from the operations of a forward pass; at
    most PyTorch's own.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    if wrapper.device != "cpu":
        return 0
    batch = generate_random_batch(wrapper.io, size)
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        module.eval()(*(to_tensor(batch[spec.name], "cpu") for spec in wrapper.io.inputs))
    worth: int = round(counter.get_total_flops() / _OPERATIONS_A_THREAD)
    return max(1, min(int(torch.get_num_threads()), worth))


def create_optimiser(wrapper: PyTorchWrapper, module: Any, rate: float) -> Any:
    """Return the optimiser of the weights to train."""
    import torch

    return torch.optim.AdamW(
        wrapper.parameters_to_train(module), lr=rate, weight_decay=_WEIGHT_DECAY
    )


def run_step(
    wrapper: PyTorchWrapper, module: Any, optimiser: Any, inputs: Batch, truth: Batch
) -> tuple[Any, Any]:
    """Run one step and return the loss and the score, measured before its update, as tensors."""
    given = (to_tensor(inputs[spec.name], wrapper.device) for spec in wrapper.io.inputs)
    targets = {name: to_tensor(array, wrapper.device) for name, array in truth.items()}
    outputs = as_tuple(module(*given))
    loss = wrapper.loss_of(module, outputs, targets)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.detach(), wrapper.score_of(
        module, tuple(output.detach() for output in outputs), targets
    )


def generate_random_samples(wrapper: PyTorchWrapper) -> Iterator[tuple[Batch, Batch]]:
    """Yield an endless, reproducible sequence of batches of noise with random targets."""
    seed = 0
    while True:
        yield (
            generate_random_batch(wrapper.io, _RANDOM_BATCH, seed),
            wrapper.random_truth(_RANDOM_BATCH, seed),
        )
        seed += 1


def iter_samples(
    wrapper: PyTorchWrapper, n_steps: int, samples: Samples | None
) -> Iterator[tuple[Batch, Batch]]:
    """Yield up to ``n_steps`` of the given batches, or batches of noise without any."""
    return islice(generate_random_samples(wrapper) if samples is None else samples, n_steps)


def run_steps(
    wrapper: PyTorchWrapper,
    module: Any,
    n_steps: int,
    samples: Samples | None,
    around: Callable[[Callable[[], Any]], Any] = lambda work: work(),
) -> list[tuple[float, float]]:
    """Run some training steps and return ``(loss, score)`` of each.

    ``around`` is called with a function that runs the step, so that callers can
    measure it.
    """
    found = []
    try:
        with apply_seed(0, wrapper.device):
            optimiser = create_optimiser(wrapper, module, _STEP_RATE)
            wrapper.training_mode(module)
            for inputs, truth in iter_samples(wrapper, n_steps, samples):
                loss, score = around(partial(run_step, wrapper, module, optimiser, inputs, truth))
                found.append((float(loss), float(score)))
    finally:
        module.eval()
    return found
