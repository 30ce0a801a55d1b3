"""Converting between PyTorch's data loaders and sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._batching import validate_batch
from nnpipe.training.sequences._content_digest import compute_digest
from nnpipe.training.sequences._unindexed import get_stateful, iter_unindexed_batches
from nnpipe.training.sequences.randomness import (
    OwnGenerators,
    Seeded,
    create_order_generator,
    sample_generator,
)
from nnpipe.training.sequences.sequence import Batch, Sequence, Stream

_NAMES = ("input", "target")


class TorchSequence(Sequence):
    """The batches of a ``torch.utils.data.DataLoader``, with the ids of their samples.

    Ids are the indices of the loader's data set.  If it has no indices (an ``IterableDataset``),
    ids count the samples.  Where such a data set has ``state_dict`` and ``load_state_dict`` and the
    loader no workers, a resumed run continues from its state.  Otherwise the run reads and discards
    earlier batches, and refuses to go on if the last of them is not the one that it was. The global
    generators are seeded for each epoch, so that a data set that shuffles by them is the same
    again.

    With indices, the order follows from the seed and the epoch.  During
    ``dataset[index]`` the generators of PyTorch, numpy and Python are seeded from
    seed, epoch and index.  So augmentations that use them are the same with any
    number of workers and in a resumed run, which loads nothing twice.

    Parameters
    ----------
    loader
        The loader.  Its data set, batch sampler, collate function and number of workers are used;
        it is not changed.
    names
        Names of the parts, if batches are tuples or lists; dictionaries have their own names.
    seed
        Seed of the order and the augmentations.
    """

    def __init__(self, loader: Any, *, names: tuple[str, ...] = _NAMES, seed: int = 0) -> None:
        check_call(TorchSequence, locals())
        super().__init__()
        self._loader = loader
        self._names = names
        self._seed = seed

    @property
    def _indexed(self) -> bool:
        from torch.utils.data import IterableDataset

        return self._loader.batch_sampler is not None and not isinstance(
            self._loader.dataset, IterableDataset
        )

    @property
    def exact(self) -> bool:
        """Whether the loader's data set has indices, or a state."""
        return self._indexed or self._stateful is not None

    @property
    def _stateful(self) -> Any:
        # With workers, copies of the data set have its state.
        return (
            None
            if self._indexed or self._loader.num_workers
            else get_stateful(self._loader.dataset)
        )

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch, according to the batch sampler."""
        sampler = self._loader.batch_sampler
        if (
            not self._indexed
            or not hasattr(sampler, "batch_size")
            or not hasattr(sampler, "sampler")
        ):
            return super().sizes()
        full, rest = divmod(len(sampler.sampler), sampler.batch_size)
        return [sampler.batch_size] * full + [rest] * (rest > 0 and not sampler.drop_last)

    def settings(self) -> dict[str, Any]:
        """Return how the loader orders and cuts samples, and a digest of some of them."""
        loader = self._loader
        found: dict[str, Any] = {
            "dataset": type(loader.dataset).__qualname__,
            "names": list(self._names),
        }
        found["seed"] = self._seed
        if not self._indexed:
            return found | {"batch": loader.batch_size}
        sampler, count = loader.batch_sampler, len(loader.dataset)
        places = np.unique(np.linspace(0, count - 1, min(count, 3)).astype(np.int64)).tolist()
        items = [_Indexed(loader.dataset, self._seed, 0)[place][1] for place in places]
        return found | {
            "samples": count,
            "batch": getattr(sampler, "batch_size", None),
            "drop_last": getattr(sampler, "drop_last", None),
            "sampler": type(getattr(sampler, "sampler", sampler)).__qualname__,
            "content": compute_digest({"items": [_to_arrays(item) for item in items]}),
        }

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the number of batches before it, without indices a
        list.
        """
        if not self._indexed:
            what = f"the data set {type(self._loader.dataset).__name__}"
            for batch, after in iter_unindexed_batches(
                lambda: self._iter_unindexed(epoch), position, what, self._stateful
            ):
                size = len(next(iter(batch.values())))
                yield (
                    validate_batch(
                        batch, np.arange(after[1] - size, after[1]), "a batch of the loader"
                    ),
                    after,
                )
            return
        start = position or 0
        for number, (ids, found) in enumerate(self._iter_batches(epoch, start), start + 1):
            batch = _to_batch(found, self._names)
            known = np.asarray(ids, np.int64)
            yield validate_batch(batch, known, "a batch of the loader"), number

    def _iter_unindexed(self, epoch: int) -> Iterator[Batch]:
        own = OwnGenerators(int(create_order_generator(self._seed, epoch).integers(2**63)))
        set_epoch = getattr(self._loader.dataset, "set_epoch", None)
        if callable(set_epoch):  # such as that of data sets of Hugging Face
            set_epoch(epoch)
        with own:
            found = iter(self._loader)
        while True:
            with own:
                batch = next(found, None)
            if batch is None:
                return
            yield _to_batch(batch, self._names)

    def _iter_batches(self, epoch: int, start: int) -> Iterator[tuple[Any, Any]]:
        import torch
        from torch.utils.data import DataLoader

        old = self._loader
        workers: dict[str, Any] = {}
        if old.num_workers:
            workers = {
                "prefetch_factor": old.prefetch_factor,
                "worker_init_fn": old.worker_init_fn,
                "multiprocessing_context": old.multiprocessing_context,
            }
        yield from DataLoader(
            _Indexed(old.dataset, self._seed, epoch),
            batch_sampler=self._compute_order(epoch)[start:],
            collate_fn=_Collated(old.collate_fn),
            num_workers=old.num_workers,
            pin_memory=old.pin_memory,
            timeout=old.timeout,
            # Otherwise it draws from the global generator, which must not change.
            generator=torch.Generator(),
            **workers,
        )

    def _compute_order(self, epoch: int) -> list[list[int]]:
        """Return an epoch's order by the loader's own sampler, with its generators seeded, then
        restored.
        """
        import torch

        seed = int(create_order_generator(self._seed, epoch).integers(2**63))
        sampler = self._loader.batch_sampler
        own = [
            getattr(part, "generator", None)
            for part in (sampler, getattr(sampler, "sampler", None))
        ]
        generators = [generator for generator in own if generator is not None]
        before = [generator.get_state() for generator in generators]
        set_epoch = getattr(getattr(sampler, "sampler", None), "set_epoch", None)
        if callable(set_epoch):  # such as torch.utils.data.distributed.DistributedSampler's
            set_epoch(epoch)
        try:
            with Seeded(seed):
                for generator in generators:
                    generator.manual_seed(seed)
                return [torch.as_tensor(indices).tolist() for indices in sampler]
        finally:
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)


class _Indexed:
    """A data set that returns each item with its index, with the global generators seeded for
    it.
    """

    def __init__(self, dataset: Any, seed: int, epoch: int) -> None:
        self._dataset, self._seed, self._epoch = dataset, seed, epoch

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        with Seeded(int(sample_generator(self._seed, 0, self._epoch, index).integers(2**63))):
            return index, self._dataset[index]


class _Collated:
    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function

    def __call__(self, items: list[tuple[int, Any]]) -> tuple[list[int], Any]:
        return [index for index, _ in items], self._function([item for _, item in items])


def to_data_loader(sequence: Sequence) -> Any:
    """Return a ``torch.utils.data.DataLoader`` of a sequence's batches, with tensors instead of
    arrays.

    It has no workers, since the sequence has its own; each iteration is one
    iteration of the sequence.
    """
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Batches(IterableDataset):  # type: ignore[misc]
        """The sequence as a PyTorch data set."""

        def __iter__(self) -> Iterator[Batch]:
            return iter(sequence)

        def __len__(self) -> int:
            return len(sequence)

    return DataLoader(Batches(), batch_size=None, generator=torch.Generator())


def _to_arrays(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {name: _to_arrays(value) for name, value in item.items()}
    if isinstance(item, (tuple, list)):
        return [_to_arrays(value) for value in item]
    return item.detach().cpu().numpy() if hasattr(item, "detach") else item


def _to_batch(found: Any, names: tuple[str, ...]) -> Batch:
    if isinstance(found, Mapping):
        parts = dict(found)
    else:
        values = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(values) > len(names):
            raise ConfigError(
                f"a batch has {len(values)} parts, and names for {', '.join(names)}; give more "
                f"names"
            )
        parts = dict(zip(names, values, strict=False))
    return {
        name: value.numpy()
        if hasattr(value, "numpy")
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in parts.items()
    }
