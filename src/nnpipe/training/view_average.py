"""Test-time augmentation: the mean of a model's outputs over several views of each sample."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training._forward import normalize_outputs


@dataclass(frozen=True)
class BatchView:
    """A change of a batch before a model sees it, and how its outputs change back.

    Attributes
    ----------
    change
        Takes a batch of tensors by name, and returns another one of as many samples.
    back
        By the name of an output, what takes its tensor ``(n, ...)`` and returns what it would be
        for the batch as it was.  Other outputs, such as the class of an image, do not depend on the
        change.
    """

    change: Callable[[dict[str, Any]], dict[str, Any]]
    back: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_call(BatchView, vars(self))


def make_mirror_view(feature: str, *, maps: Sequence[str] = ()) -> BatchView:
    """Return the view of mirrored images.

    Parameters
    ----------
    feature
        The name of the images ``(n, ..., width)`` in a batch.
    maps
        The names of outputs ``(n, ..., width)`` that are mirrored, too, as those of a segmentation
        are.
    """

    def flip_feature(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, feature: batch[feature].flip(-1)}

    return BatchView(flip_feature, dict.fromkeys(maps, _flip))


def _flip(tensor: Any) -> Any:
    return tensor.flip(-1)


def average_views(model: Any, views: Sequence[BatchView]) -> Any:
    """Return a module whose outputs are the means of a model's over a batch as it is and views of
    it.

    Logits are averaged as they are, which multiplies probabilities.  Metrics and losses are those
    of the mean::

        trainer.evaluate(averaged(model, [mirrored("image")]), data)

    Parameters
    ----------
    model
        A ``torch.nn.Module`` whose ``forward(batch)`` returns outputs by name, or a single one; the
        module shares its weights.
    views
        The further views.

    Raises
    ------
    ConfigError
        If there are no views; or, when a batch is computed, if an output has another shape for a
        view.
    """
    import torch

    check_call(average_views, locals())
    if not views:
        raise ConfigError("views: give at least one, such as mirrored('image')")

    class Averaged(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: dict[str, Any]) -> Any:
            found = normalize_outputs(self.model(batch), batch, self.model)
            means = {name: output.output for name, output in found.items()}
            for view in views:
                changed = view.change(batch)
                for name, output in normalize_outputs(
                    self.model(changed), changed, self.model
                ).items():
                    back = view.back.get(name)
                    seen = output.output if back is None else back(output.output)
                    if seen.shape != means[name].shape:
                        raise ConfigError(
                            f"a view makes the output {name!r} {tuple(seen.shape)}, which is "
                            f"{tuple(means[name].shape)}"
                        )
                    means[name] = means[name] + seen
            return {
                name: _with(output, means[name] / (1 + len(views)))
                for name, output in found.items()
            }

    return Averaged()


def _with(output: Any, tensor: Any) -> Any:
    """Return a copy of an output with another tensor, whose losses are not computed yet."""
    found = copy.copy(output)
    found.output, found._kept = tensor, None
    return found
