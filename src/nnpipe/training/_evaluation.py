"""Computing the figures of whole splits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from nnpipe.core.progress import Progress
from nnpipe.training._batches import select_share, size_of, to_tensors
from nnpipe.training._forward import make_precision_factory, run_forward
from nnpipe.training._hooks import Hooks, preserve_modes
from nnpipe.training._random import preserve_rng_state, seed_all
from nnpipe.training._whole_metrics import MetricSums, Wanted, check_outputs
from nnpipe.training.averages import WeightAverage, estimate_statistics
from nnpipe.training.distributed import Team, broadcast_buffers, is_sharded
from nnpipe.training.fit import TrainingRun


class Evaluator:
    """Evaluates splits without any effect on the training."""

    def __init__(self, fit: TrainingRun, hooks: Hooks, team: Team, progress: Progress) -> None:
        self._fit = fit
        self._hooks = hooks
        self._team = team
        self._progress = progress
        self._precision = make_precision_factory(fit.options)

    def evaluate(
        self,
        splits: list[tuple[str, str]],
        average: WeightAverage | None = None,
        hooks: Hooks | None = None,
    ) -> dict[str, float]:
        """Return the figures of some splits, computed with ``average`` instead of the weights if it
        is given.

        The batches are shown to ``hooks``, by default those of the training.
        """
        import torch

        fit = self._fit
        row: dict[str, float] = {}
        with preserve_rng_state(fit.device), preserve_modes(fit.model), torch.no_grad():
            fit.model.eval()
            seed_all(int(fit.generator("evaluation").integers(2**31)), fit.device)
            if self._team.world > 1:
                broadcast_buffers(fit.model)
            with nullcontext() if average is None else average.apply_temporarily():
                for dataset, split in splits:
                    row |= self._evaluate(dataset, split, self._hooks if hooks is None else hooks)
        return row

    def estimate_statistics(self) -> None:
        """Estimate the statistics of batch normalisations from the training data, for averaged
        weights.
        """
        import torch

        fit = self._fit
        if type(fit.model).forward is torch.nn.Module.forward:
            fit.log.warning(
                "%s has no forward(batch): batch normalisations keep their statistics",
                type(fit.model).__name__,
            )
            return
        training = {
            f"{name}/{split}": sequence
            for name, parts in fit.datasets.items()
            for split, sequence in parts.items()
            if split in fit.options.train_splits
        }

        def iter_batches() -> Iterator[Any]:
            for name, sequence in training.items():
                sequence.set_epoch(1)
                for given in self._progress(sequence, f"statistics of {name}", None):
                    with self._precision():
                        yield to_tensors(given, fit.device, fit.options.channels_last)

        with preserve_rng_state(fit.device), preserve_modes(fit.model):
            seed_all(int(fit.generator("statistics").integers(2**31)), fit.device)
            estimate_statistics(fit.model, iter_batches())

    def check_metrics(self) -> None:
        """Raise :class:`ConfigError` if metrics were asked for of an output that no split's
        first batch has.
        """
        fit = self._fit
        if fit.metrics:
            splits = [(name, split) for name, parts in fit.datasets.items() for split in parts]
            check_outputs(
                fit.metrics,
                [figure for name, split in splits for figure in self.names(name, split)],
            )

    def names(self, dataset: str, split: str) -> list[str]:
        """Return the names of a split's figures, read from its first batch; an empty list if it
        has no batch.
        """
        import torch

        fit, sums = self._fit, MetricSums(self._fit.metrics)
        with preserve_rng_state(fit.device), preserve_modes(fit.model), torch.no_grad():
            fit.model.eval()
            sequence = fit.datasets[dataset][split]
            sequence.set_epoch(0)
            given = next(iter(sequence), None)
            if given is None:
                return []
            with self._precision():
                _, outputs = run_forward(
                    fit.model, to_tensors(given, fit.device, fit.options.channels_last)
                )
            sums.add(outputs)
        return list(sums.figures())

    def _evaluate(self, dataset: str, split: str, hooks: Hooks) -> dict[str, float]:
        fit, team = self._fit, self._team
        sharded = is_sharded(fit.model)
        sequence, sums = fit.datasets[dataset][split], MetricSums(fit.metrics)
        watched = hooks.has("on_evaluate_batch")
        sequence.set_epoch(0)
        fit.dataset = dataset
        try:
            total: int | None = len(sequence)
        except TypeError:
            total = None
        for given in self._progress(sequence, f"{dataset}/{split}", total):
            given, size = (
                (given, size_of(given))
                if team.world == 1
                else select_share(given, team.rank, team.world)
            )
            if not size and not sharded:
                continue
            batch = to_tensors(given, fit.device, fit.options.channels_last)
            with self._precision():
                _, outputs = run_forward(fit.model, batch)
            if not size:  # divided weights are gathered by all processes together
                continue
            sums.add(outputs)
            if watched:
                hooks.call("on_evaluate_batch", dataset, split, batch, outputs, batch=batch)
        return {
            f"{dataset}/{split}/{name}": value
            for name, value in compute_team_figures(sums, team, fit.metrics).items()
        }


def compute_team_figures(sums: MetricSums, team: Team, wanted: Wanted) -> dict[str, float]:
    """Return the figures over the samples of all processes; all processes must call it."""
    if team.world == 1:
        return sums.figures()
    whole = MetricSums(wanted)
    whole.join(team.gather(sums.state_dict()))
    return whole.figures()
