"""Any data set with a user's function applied to its samples."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument, encode_argument, list_arguments
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.registry import find
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.plugins.plugin import PROCESS_DATASET, Plugin, load_plugin, read_checked_source


class PluginDataset(Dataset):
    """Another data set, whose samples a plugin's function transforms.

    The function gets ``x`` and ``y`` of several samples: each is an array
    ``(n, ...)``, or a dict of arrays if the data set has several inputs or
    targets.  It must return as many samples, each depending on its own sample
    only.
    """

    wrapped: str = argument(help="class of the data set that provides the samples")
    plugin: str = argument(
        help="Python file with process_dataset(x, y), or name of an installed plugin"
    )
    wrapped_arguments: str = argument("{}", help="arguments of that data set, as a JSON object")
    plugin_sha256: str = argument(
        "", help="SHA-256 that the plugin's file must have; by default that of the file"
    )

    def validate(self) -> None:
        """Check the arguments of the other data set, and the plugin's functions without running
        its code.
        """
        _ = self._inner
        path, source = read_checked_source(self.plugin, (PROCESS_DATASET,))
        found = hashlib.sha256(source).hexdigest()
        if self.plugin_sha256.lower() not in ("", found):
            wanted = self.plugin_sha256
            raise ConfigError(
                f"{path}: its SHA-256 is {found}, not {wanted}: it was changed, or is another"
            )
        # Recorded in every description, so that results of another plugin are never mistaken for
        # this one's.
        object.__setattr__(self, "plugin_sha256", found)

    @cached_property
    def _inner(self) -> Dataset:
        cls = find(self.wrapped, Dataset)
        try:
            given = parse_json(self.wrapped_arguments)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"PluginDataset.wrapped_arguments: not JSON: {error}") from None
        if not isinstance(given, dict):
            raise ConfigError(
                'PluginDataset.wrapped_arguments: expected a JSON object such as {"seed": 1}'
            )
        if issubclass(cls, PluginDataset):
            raise ConfigError(
                "PluginDataset.wrapped: a plugin's data set cannot wrap another; join the two "
                "functions"
            )
        shared = {
            declared.name: encode_argument(getattr(self, declared.name))
            for declared in list_arguments(Dataset)
        }
        return cls.from_json(shared | given)

    @cached_property
    def _plugin(self) -> Plugin:
        return load_plugin(self.plugin, (PROCESS_DATASET,), self.plugin_sha256)

    def prepare(self) -> None:
        """Run the plugin's file first, then prepare the other data set."""
        _ = self._plugin
        self._inner.prepare()

    def download(self) -> None:
        """Download the other data set's files."""
        self._inner.download()

    @cached_property
    def spec(self) -> DatasetSpec:
        """The specification of the plugin's results, derived from the first sample."""
        inner = self._inner.spec
        inputs, truth = self.read(np.arange(min(1, len(self))))
        return DatasetSpec(inner.task, _make_specs(inputs), _make_specs(truth), inner.class_names)

    @cached_property
    def reading_notes(self) -> tuple[str, ...]:
        """Those of the other data set."""
        return self._inner.reading_notes

    def __len__(self) -> int:
        return len(self._inner)

    def split(self, name: str) -> npt.NDArray[np.int64]:
        """Return the other data set's split."""
        return self._inner.split(name)

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return samples, preprocessed by the other data set and transformed by the plugin."""
        inputs, truth = self._inner.read(indices)
        x, y = self._plugin.process_dataset(
            _unwrap_single(self._inner.preprocess(inputs)), _unwrap_single(truth)
        )
        return self._to_batch(x, inputs, "x"), self._to_batch(y, truth, "y")

    def postprocess(self, predictions: Batch) -> Batch:
        """Return the other data set's postprocessing of predictions."""
        return self._inner.postprocess(predictions)

    def evaluate(self, predictions: Batch, truth: Batch) -> Evaluation:
        """Return the other data set's evaluation."""
        return self._inner.evaluate(predictions, truth)

    def origin(self) -> Mapping[str, Any]:
        """Return the other data set's source, and the plugin."""
        return {**self._inner.origin(), "plugin": self.plugin, "plugin_sha256": self.plugin_sha256}

    def _to_batch(self, given: Any, before: Batch, what: str) -> Batch:
        arrays = given if isinstance(given, Mapping) else dict(zip(before, [given], strict=False))
        if not isinstance(given, Mapping) and len(before) > 1:
            raise DatasetError(
                f"{self.plugin}: process_dataset gave {type(given).__name__} for {what}; give a "
                f"dict back"
            )
        found = {str(name): np.asarray(array) for name, array in arrays.items()}
        count = len(next(iter(before.values())))
        for name, array in found.items():
            if array.dtype == object or array.ndim == 0 or len(array) != count:
                shape = f"{array.dtype} of shape {array.shape}"
                raise DatasetError(
                    f"{self.plugin}: process_dataset made {shape} of {count} samples of {what} "
                    f"({name})"
                )
        return found


def _unwrap_single(batch: Batch) -> Any:
    return next(iter(batch.values())) if len(batch) == 1 else dict(batch)


def _make_specs(batch: Batch) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name, (None, *array.shape[1:]), array.dtype.name)
        for name, array in batch.items()
    )
