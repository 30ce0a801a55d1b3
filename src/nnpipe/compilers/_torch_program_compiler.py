"""The base of compilers from exported PyTorch programs to exported PyTorch programs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import ArtifactError, CompileError
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.pt2 import read_program
from nnpipe.frameworks.torch_program import (
    LoadedProgram,
    convert_to_tensors,
    serialize_program,
    suppress_torch_logs,
)
from nnpipe.frameworks.torch_state import list_state_buffers


class TorchProgramCompiler(WritingCompiler):
    """Base of compilers that read and write exported programs."""

    requires: ClassVar[tuple[str, ...]] = ("torch",)
    install: ClassVar[str] = "nnpipe[torch]"
    accepts: ClassVar[tuple[str, ...]] = ("torch-export",)
    produces: ClassVar[str] = "torch-export"
    suffix: ClassVar[str] = ".pt2"
    packages: ClassVar[tuple[str, ...]] = ("torch",)

    def _save(self, native: Any, destination: Path) -> IOSpec:
        """Write a ``torch.export.ExportedProgram`` that can be loaded again; return its inputs
        and outputs.
        """
        destination.write_bytes(serialize_program(native))
        try:
            return read_program(destination).io
        except ArtifactError as error:
            raise CompileError(
                f"what comes out cannot be kept: {str(error).partition(': ')[2]}"
            ) from None


log = logging.getLogger("nnpipe")

_SOFTMAX = ("aten::softmax", "aten::_softmax")
_LEAST = 1e-12
_HELD_BACK = 0.2  # of the samples, to judge by
_CHECKS = 8  # how often a careful training is judged
_SLOWER = 0.2  # of the rate, after steps that did harm


class DistillingCompiler(TorchProgramCompiler):
    """Base of compilers that can fine-tune their results on the source's outputs for calibration
    samples.

    This is distillation (Hinton et al. 2015, arXiv:1503.02531): the loss is the
    cross entropy for outputs of a softmax, and for other outputs the mean squared
    difference divided by the variance of the source's output.  Statistics of
    batch normalisation do not change, as the exported program is for inference.
    """

    packages: ClassVar[tuple[str, ...]] = ("torch",)

    fine_tuning_steps: int = argument(
        0,
        help="training steps towards the source's outputs on calibration samples, after pruning, "
        "or with rounded numbers; 0 for none, some hundreds restore most of the accuracy",
        minimum=0,
    )
    fine_tuning_rate: float = argument(
        0.0005, help="learning rate of the fine-tuning (Adam)", minimum=0.0
    )
    fine_tuning_batch: int = argument(
        32, help="batch size of the fine-tuning, if the batch size is free", minimum=1
    )
    fine_tuning_seed: int = argument(
        0, help="seed of the order in which samples are drawn", minimum=0
    )

    def needs_calibration(self) -> bool:
        """Return whether fine-tuning was asked for."""
        return self.fine_tuning_steps > 0

    def _fine_tune(
        self,
        loaded: LoadedProgram,
        student: Any,
        masks: Mapping[str, Any],
        calibration: Calibration,
        careful: bool = False,
    ) -> None:
        """Train a changed module of the program towards the program's original outputs.

        A careful training holds a part of the samples back and judges itself by them, now and then.
        If it has become no better, it goes back to the best weights so far, which may be those that
        it began with, and goes on in smaller steps: a network may have weights of such different
        sizes that the usual steps destroy it.

        Parameters
        ----------
        loaded
            The source program.
        student
            The changed module; its weights are trained in place.
        masks
            Masks by weight name: 1 where a weight may change, 0 where it stays 0.
        calibration
            Provides the samples.
        careful
            Whether to hold samples back, and never to end with a greater loss on them than before.
        """
        import torch

        if kept := list_state_buffers(loaded.native):
            raise CompileError(
                f"it keeps {', '.join(kept)} from one run to the next, so it cannot be trained "
                f"further here"
            )
        samples = [convert_to_tensors(batch) for batch in calibration()]
        count = max(1, round(_HELD_BACK * len(samples))) if careful else 0
        if careful and len(samples) < 2:
            raise CompileError(
                "fine-tuning holds a part of the calibration samples back; give at least 2"
            )
        # The same samples, whatever the order of training.
        held, batches = (
            self._make_batches(loaded, part) for part in (samples[:count], samples[count:])
        )
        teacher = loaded.module()
        with torch.no_grad(), suppress_torch_logs():
            wanted, expected = (
                [loaded.call(teacher, batch) for batch in part] for part in (batches, held)
            )
        kinds = _find_probability_outputs(teacher, len(loaded.io.outputs))
        trained = [p.requires_grad_() for p in student.parameters() if p.is_floating_point()]
        weights = dict(student.named_parameters(remove_duplicate=False))
        optimiser = torch.optim.Adam(trained, lr=self.fine_tuning_rate)
        order = torch.Generator().manual_seed(self.fine_tuning_seed)
        places: list[int] = []

        def evaluate_student() -> float:
            with torch.no_grad():
                losses = [
                    float(_compute_loss(loaded.call(student, batch), want, kinds))
                    * _get_batch_length(batch)
                    for batch, want in zip(held, expected, strict=True)
                ]
            return sum(losses)

        with torch.enable_grad(), suppress_torch_logs():
            best = _BestWeights(trained, optimiser, evaluate_student) if careful else None
            for step in range(self.fine_tuning_steps):
                places = places or torch.randperm(len(batches), generator=order).tolist()
                place = places.pop()
                optimiser.zero_grad()
                loss = _compute_loss(loaded.call(student, batches[place]), wanted[place], kinds)
                if not torch.isfinite(loss):
                    raise CompileError("fine-tuning ran away; use a smaller --fine-tuning-rate")
                loss.backward()
                optimiser.step()
                with torch.no_grad():
                    for name, mask in masks.items():
                        weights[name].mul_(mask)
                if best is not None and _is_check(step + 1, self.fine_tuning_steps):
                    best.update()
        for parameter in trained:
            parameter.requires_grad_(False)
        if best is not None:
            log.info("fine-tuning: %s", best)

    def _make_batches(
        self, loaded: LoadedProgram, samples: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the samples as batches, if the program takes several samples at once."""
        import torch

        if any(not spec.shape or spec.shape[0] is not None for spec in loaded.io.inputs):
            return samples
        step = self.fine_tuning_batch
        return [
            {
                name: torch.cat([sample[name] for sample in samples[start : start + step]])
                for name in samples[0]
            }
            for start in range(0, len(samples), step)
        ]


class _BestWeights:
    """The weights of a training with the least loss on samples that it does not see.

    Parameters
    ----------
    weights
        The parameters that are trained.
    optimiser
        The optimiser that changes them.
    judged
        Returns the loss.
    """

    def __init__(self, weights: list[Any], optimiser: Any, judged: Callable[[], float]) -> None:
        self._weights, self._optimiser, self._judged = weights, optimiser, judged
        self._first = self._loss = judged()
        self._kept = [weight.detach().clone() for weight in weights]

    def update(self) -> None:
        """Keep the weights if they are better than all before; otherwise go back, and take
        smaller steps.
        """
        import torch

        loss = self._judged()
        if loss < self._loss:
            self._loss, self._kept = loss, [weight.detach().clone() for weight in self._weights]
            return
        with torch.no_grad():
            for weight, kept in zip(self._weights, self._kept, strict=True):
                weight.copy_(kept)
        # the averages of its gradients belong to the weights that were left
        self._optimiser.state.clear()
        for group in self._optimiser.param_groups:
            group["lr"] *= _SLOWER
        self._judged()  # so that ranges of the weights are theirs again

    def __str__(self) -> str:
        """Return what the training has brought."""
        if self._loss < self._first:
            return (
                f"{self._loss / self._first:.0%} of the loss is left, on samples that were held "
                f"back"
            )
        return (
            "it did not lower the loss on samples that were held back; the weights are as they were"
        )


def _is_check(step: int, steps: int) -> bool:
    """Return whether a training of so many steps is judged after a step; it always is after the
    last one.
    """
    return step * _CHECKS // steps > (step - 1) * _CHECKS // steps


def _get_batch_length(batch: Mapping[str, Any]) -> int:
    shape = next(iter(batch.values())).shape
    return int(shape[0]) if shape else 1


def _find_probability_outputs(module: Any, count: int) -> list[bool]:
    """Return for each output whether it is the result of a softmax over its last axis."""
    from torch.utils import _pytree

    (end,) = (node for node in module.graph.nodes if node.op == "output")
    found = [_is_softmax_over_last_axis(node) for node in _pytree.tree_leaves(end.args)]
    return found if len(found) == count else [False] * count


def _is_softmax_over_last_axis(node: Any) -> bool:
    schema = getattr(getattr(node, "target", None), "_schema", None)
    if schema is None or schema.name not in _SOFTMAX:
        return False
    value = node.meta.get("val")
    return value is not None and node.args[1] in (-1, value.ndim - 1)


def _compute_loss(found: tuple[Any, ...], wanted: tuple[Any, ...], kinds: list[bool]) -> Any:
    import torch

    losses = []
    for have, want, probabilities in zip(found, wanted, kinds, strict=True):
        if not want.is_floating_point():
            continue
        if probabilities:
            losses.append(-(want * have.clamp_min(_LEAST).log()).sum(-1).mean())
        else:
            losses.append(
                torch.nn.functional.mse_loss(have, want) / want.var(correction=0).clamp_min(_LEAST)
            )
    if not losses:
        raise CompileError("it has no outputs to learn from; leave out --fine-tuning-steps")
    return torch.stack(losses).sum()
