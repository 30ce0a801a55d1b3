"""What the data are, as the model sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nnpipe.experiment.state import State
from nnpipe.training.callbacks._writing import WritingCallback, write_table

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_CLASSES = 256


class DatasetSummary(WritingCallback):
    """Count samples, and describe each feature: shape, type, mean, deviation, least and greatest value, classes.

    It looks at the batches of the first epoch as they pass, so augmentation is
    seen as the model sees it.  Whole numbers that are one a sample and lie
    between 0 and 255 are counted as classes.  Writes ``tables/datasets.json``.
    """

    def __init__(self) -> None:
        self.state = State(features={}, samples={})

    def on_batch_begin(self, fit: Fit, batch: dict[str, Any]) -> None:
        """Look at a training batch of the first epoch."""
        if fit.epoch == 1:
            self._look(f"{fit.dataset}/{'+'.join(fit.options.train_splits)}", batch)

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Look at a batch of the first evaluation."""
        if fit.epoch == fit.options.evaluate_every or (
            fit.epoch == fit.options.num_epochs < fit.options.evaluate_every
        ):
            self._look(f"{dataset}/{split}", batch)

    def _look(self, split: str, batch: dict[str, Any]) -> None:
        import torch

        state = self.state
        state.samples[split] = state.samples.get(split, 0) + len(batch["sample_id"])
        features = state.features.setdefault(split, {})
        for name, value in batch.items():
            if name == "sample_id":
                continue
            if not isinstance(value, torch.Tensor):
                features[name] = {"type": type(value).__name__}
                continue
            values = value.detach().double()
            sums = torch.stack([values.sum(), values.square().sum()])
            ends = torch.stack([values.min(), values.max()]) if values.numel() else None
            known = features.setdefault(
                name, {"type": str(value.dtype).removeprefix("torch."), "shape": list(value.shape[1:]), "count": 0}
            )
            if known["shape"] != list(value.shape[1:]):
                known["shape"] = None  # it varies from batch to batch
            known["count"] += value.numel()
            known["sums"] = sums + known["sums"].to(sums.device) if "sums" in known else sums
            if ends is not None:
                if "ends" in known:
                    before = known["ends"].to(ends.device)
                    ends = torch.stack([torch.minimum(before[0], ends[0]), torch.maximum(before[1], ends[1])])
                known["ends"] = ends
            if value.dim() == 1 and not value.is_floating_point() and value.dtype != torch.bool:
                # What lies outside is counted, too, in places of its own; nothing is fetched for it.
                counts = torch.zeros(_CLASSES + 1, dtype=torch.int64, device=value.device)
                places = torch.where((value >= 0) & (value < _CLASSES), value, _CLASSES).long()
                counts.scatter_add_(0, places, torch.ones_like(places))
                known["classes"] = counts + known["classes"].to(counts.device) if "classes" in known else counts

    def on_epoch_end(self, fit: Fit) -> None:
        """Write the table while there is something new."""
        if fit.epoch > max(1, fit.options.evaluate_every) and fit.epoch != fit.options.num_epochs:
            return
        rows = [
            {"split": split, "samples": self.state.samples[split], "features": {n: _told(f) for n, f in found.items()}}
            for split, found in self.state.features.items()
        ]
        write_table(fit, "datasets", rows)


def _told(feature: dict[str, Any]) -> dict[str, Any]:
    found = {"type": feature["type"]}
    if not feature.get("count"):
        return found
    total, squares = feature["sums"].tolist()
    mean = total / feature["count"]
    found |= {"shape": feature["shape"], "mean": mean}
    found["deviation"] = max(0.0, squares / feature["count"] - mean**2) ** 0.5
    found["least"], found["greatest"] = feature["ends"].tolist()
    if "classes" in feature:
        counts = feature["classes"].tolist()
        if not counts.pop():
            found["classes"] = {str(number): count for number, count in enumerate(counts) if count}
    return found
