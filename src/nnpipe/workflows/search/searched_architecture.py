"""Searching architectures by a search file: a pipeline that trains and measures the network of each trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nnpipe.architectures.architecture_space import ArchitectureSpace
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import write_text
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import SearchTrial
from nnpipe.workflows.pipeline.entries import component_of
from nnpipe.workflows.search.choice import SearchChoice
from nnpipe.workflows.search.searched_pipeline import SearchedPipeline, pipeline_of

NETWORK = "network.yaml"
"""The file of a trial's network in the folder of the trial."""

_MODEL = "nnpipe.modelwrappers.files.declared.DeclaredModel"


class SearchedArchitecture(SearchedPipeline):
    """A pipeline whose model is a network of cells, which parameters choose; others may be settings of the pipeline.

    Parameters
    ----------
    architecture
        The networks to choose from, as in :class:`~nnpipe.architectures.architecture_space.ArchitectureSpace`; what is
        left out of ``input``, ``classes``, ``input_name`` and ``target`` follows from the pipeline's data set.
    settings, candidate, output, choice
        As for :class:`~nnpipe.workflows.search.searched_pipeline.SearchedPipeline`; the model's network and the
        path of its weights are replaced by those of the trial.

    Raises
    ------
    ConfigError
        If the architecture or the model of the pipeline is wrong.
    """

    def __init__(
        self,
        architecture: Mapping[str, Any],
        settings: Mapping[str, Any],
        candidate: str,
        output: Path,
        choice: SearchChoice,
    ) -> None:
        if "models" in settings or not isinstance(settings.get("model", {}), dict):
            raise ConfigError("pipeline: an architecture search has one model, described under model")
        model = {"class": _MODEL, **settings.get("model", {})}
        if model.get("training") is None:
            raise ConfigError("pipeline: model.training is missing: every network is trained before it is measured")
        super().__init__({**settings, "model": model}, candidate, output, choice)
        self.architecture = ArchitectureSpace.from_json({**_of_data(settings, model, architecture), **architecture})
        self._names = frozenset(self.architecture.parameters())

    @classmethod
    def from_settings(cls, data: Mapping[str, Any], constraints: Sequence[str]) -> SearchedArchitecture:
        """Return the subject of a search file, given those of its constraints that are on metrics."""
        return cls(data["architecture"], *pipeline_of(data, constraints))

    def space(self, more: Mapping[str, Any], constraints: list[Any]) -> SearchSpace:
        """Return the parameters of the architecture together with further ones.

        Raises
        ------
        ConfigError
            If one of them has the name of one of the architecture, or is wrong.
        """
        for name in more:
            if name in self._names:
                raise ConfigError(f"space.{name}: is a parameter of the architecture, too")
        own = self.architecture
        return SearchSpace.from_json({**own.parameters(), **more}, [*own.constraints(), *constraints])

    def check(self, space: SearchSpace, objectives: Objectives) -> None:
        """Raise :class:`ConfigError` unless a network of the space can be trained and measured so."""
        example = self.architecture.sample(np.random.default_rng(0))
        with TemporaryDirectory() as folder:
            settings = self._with_network(example, Path(folder))
            others = {name: each for name, each in space.parameters.items() if name not in self._names}
            inner = SearchedPipeline(settings, self.candidate, self.output, self.choice)
            if others:
                inner.check(SearchSpace(others), objectives)
            else:
                inner.check_settings(settings)

    def settings_of(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a trial's pipeline, and write its network."""
        chosen = {name: value for name, value in arguments.items() if name in self._names}
        others = {name: value for name, value in arguments.items() if name not in self._names}
        inner = SearchedPipeline(
            self._with_network(chosen, self.output / "trials" / str(trial.number)),
            self.candidate,
            self.output,
            self.choice,
        )
        return inner.settings_of(trial, others)

    def to_json(self) -> dict[str, Any]:
        """Return the candidate, a digest of the settings, and what of the architecture is not chosen."""
        found = self.architecture.to_json()
        cell = {name: value for name, value in found["cell"].items() if name != "operations"}
        # Choices may grow without making the trials before those of something else.
        chosen = ("channels", "cells")
        return {
            **super().to_json(),
            "architecture": {name: value for name, value in found.items() if name not in chosen} | {"cell": cell},
        }

    def _with_network(self, configuration: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        import yaml

        path = folder / NETWORK
        description = self.architecture.description(configuration)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, yaml.safe_dump(description, sort_keys=False))
        model = dict(self.settings["model"])
        arguments = {**(model.get("arguments") or {}), "network": str(path)}
        return {**self.settings, "model": {**model, "arguments": arguments, "path": str(folder / "model.safetensors")}}


def _of_data(settings: Mapping[str, Any], model: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """Return what a data set says of the networks: the shape of images, the number of classes, and their names."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"architecture: expected an object, found {type(given).__name__}")
    if {"input", "classes", "input_name", "target"} <= set(given):
        return {}
    if "dataset" not in settings:
        raise ConfigError("pipeline: dataset is missing")
    dataset = component_of(settings["dataset"], Dataset, "dataset")
    try:
        spec = dataset.spec
    except NNPipeError as error:
        raise ConfigError(
            f"architecture: give input and classes, for the data set does not tell them: {error}"
        ) from None
    if len(spec.inputs) != 1 or not spec.class_names or not spec.targets:
        raise ConfigError(
            f"architecture: networks of cells classify images, but the task of {type(dataset).__name__} is {spec.task}"
        )
    shape = [*spec.inputs[0].shape[1:]]
    resized = (model.get("arguments") or {}).get("resize")
    if isinstance(resized, list) and len(resized) == 2:
        shape = [*resized, *shape[2:]]
    found = {
        "input": shape, "classes": len(spec.class_names), "input_name": spec.inputs[0].name,
        "target": spec.targets[0].name,
    }  # fmt: skip
    if None in shape and "input" not in given:
        raise ConfigError("architecture: give input, for the images of the data set have no fixed size")
    return found
