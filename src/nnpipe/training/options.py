"""The options of a trainer."""

from __future__ import annotations

import re
from typing import Literal

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component
from nnpipe.core.discoverable import CXX, Tool
from nnpipe.core.errors import ConfigError


class TrainerOptions(Component):
    """Options of the trainer."""

    requires = ("torch", "safetensors")
    install = "nnpipe[torch]"

    num_epochs: int = argument(5, help="how often to go through the training samples", minimum=1)
    seed: int = argument(0, help="seed of all random numbers of the training", minimum=0)
    epoch_steps: int | None = argument(
        None,
        help=(
            "steps after which an epoch ends, wherever it is in the data; by default an epoch is "
            "one pass"
        ),
        minimum=1,
    )
    max_steps: int | None = argument(
        None, help="steps after which the training ends, within an epoch", minimum=1
    )
    max_seconds: float | None = argument(
        None,
        help=(
            "seconds after which it stops with a checkpoint, from which the same call goes on to "
            "the bit"
        ),
        minimum=0.0,
    )
    device: str = argument(
        "cpu", help="where to compute: cpu, cuda, a certain GPU such as cuda:1, or mps"
    )
    precision: Literal["float32", "bfloat16", "float16"] = argument(
        "float32", help="what matrices are multiplied in; weights stay in float32"
    )
    accumulate: int = argument(1, help="batches whose gradients make one step", minimum=1)
    clip_norm: float | None = argument(
        None, help="greatest norm of all gradients together", minimum=0.0
    )
    clip_value: float | None = argument(
        None, help="greatest size of each part of a gradient", minimum=0.0
    )
    ema_decay: float | None = argument(
        None,
        help=(
            "evaluate, and leave in the model, a moving average of the weights, of which a step "
            "keeps this part"
        ),
        minimum=0.0,
        maximum=1.0,
    )
    swa_start: int | None = argument(
        None,
        help=(
            "epoch from which on the weights at the ends of epochs are averaged, for the model at "
            "the end"
        ),
        minimum=1,
    )
    recompute: tuple[str, ...] = argument(
        (),
        help=(
            "layers, with * for any letters, that compute their outputs again for gradients rather "
            "than keep them"
        ),
    )
    shard: tuple[str, ...] = argument(
        (),
        help=(
            "layers, with * for any letters, whose weights are divided over the processes (FSDP), "
            "as are all others"
        ),
    )
    channels_last: bool = argument(
        False, help="keep images and kernels with the channels as the last axis in memory"
    )
    compile: bool = argument(False, help="compile the model with torch.compile")
    train_splits: tuple[str, ...] = argument(
        ("train",), help="splits to learn from; the others are evaluated"
    )
    mixing: Literal["sequential", "interleaved"] = argument(
        "sequential", help="whether data sets follow each other in an epoch or take turns by batch"
    )
    train_metrics: bool = argument(
        True, help="compute the metrics of training batches, not only their loss"
    )
    evaluate_every: int = argument(
        1, help="epochs between evaluations; the last one is always evaluated", minimum=1
    )
    monitor: str | None = argument(
        None,
        help=(
            "figure that tells the best epoch; by default the loss of the first split that is "
            "evaluated"
        ),
    )
    monitor_mode: Literal["min", "max"] | None = argument(
        None,
        help=(
            "whether the least or the greatest monitored figure is best; by default as its metric "
            "says"
        ),
    )
    weights: Literal["last", "best", "average"] | None = argument(
        None,
        help="weights that the model has at the end: of the last step, of the best epoch, or "
        "their moving average; by default those that the history's last row was measured with",
    )
    patience: int | None = argument(
        None, help="evaluations without a better figure before it stops", minimum=1
    )
    min_delta: float = argument(0.0, help="how much better counts as better", minimum=0.0)
    keep_best: int = argument(
        1, help="number of the best epochs whose weights are kept in files", minimum=1
    )
    on_divergence: Literal["stop", "rollback"] = argument(
        "stop",
        help=(
            "what to do at a loss that is not finite: an error, or back to the last checkpoint, "
            "more slowly"
        ),
    )
    rollback_factor: float = argument(
        0.5, help="what a rollback multiplies the learning rate with", minimum=0.0
    )
    max_rollbacks: int = argument(3, help="rollbacks after which it is an error", minimum=1)
    abort_above: float | None = argument(
        None, help="stop with an error if a batch's loss is above this"
    )
    checkpoint_every: int = argument(
        0, help="steps between checkpoints; 0 for one an epoch only", minimum=0
    )
    keep_every: int = argument(
        0, help="epochs between checkpoints that are kept for good; 0 for none", minimum=0
    )
    callback_errors: Literal["raise", "log"] = argument(
        "raise", help="what to do when a callback raises"
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` if options contradict each other."""
        if not re.fullmatch(r"cpu|cuda(:\d+)?|mps", self.device):
            raise ConfigError(
                f"device is {self.device!r}; give cpu, cuda, a certain GPU such as cuda:1, or mps"
            )
        if not self.train_splits:
            raise ConfigError("there are no splits to train on")
        if self.weights == "average" and self.ema_decay is None and self.swa_start is None:
            raise ConfigError(
                "weights='average' needs ema_decay or swa_start, which say how the average is taken"
            )
        if self.ema_decay is not None and self.swa_start is not None:
            raise ConfigError("ema_decay and swa_start are two averages; give one of them")
        if self.shard and self.precision == "float16":
            raise ConfigError(
                "shard: weights that are divided over processes cannot learn in float16; use "
                "bfloat16"
            )
        if self.swa_start is not None and self.swa_start > self.num_epochs:
            raise ConfigError(
                f"swa_start={self.swa_start} is after the last epoch, {self.num_epochs}"
            )

    @property
    def device_kind(self) -> str:
        """The device without the number of a GPU."""
        return self.device.partition(":")[0]

    def tools(self) -> tuple[Tool, ...]:
        """Return a C++ compiler if the model is to be compiled for the CPU."""
        return (CXX,) if self.compile and self.device == "cpu" else ()

    def get_weight_options(self) -> dict[str, object]:
        """Return the options on which the weights depend; a run can only be continued with equal
        ones.
        """
        free = {
            "num_epochs",
            "checkpoint_every",
            "keep_every",
            "callback_errors",
            "abort_above",
            "train_metrics",
            "evaluate_every",
            "patience",
            "min_delta",
            "monitor",
            "monitor_mode",
            "compile",
            "device",
            "weights",
            "max_steps",
            "max_seconds",
            "keep_best",
            "on_divergence",
            "rollback_factor",
            "max_rollbacks",
            "recompute",
            "shard",
        }
        return {name: value for name, value in self.to_json().items() if name not in free}
