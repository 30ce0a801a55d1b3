"""The combinations of a sweep: models, compilers, runtimes, batch sizes and devices, as far as
they fit together.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.batching import set_batch_size, set_batch_sizes
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency
from nnpipe.core.model import ModelWrapper
from nnpipe.core.plan import Plan
from nnpipe.core.runtime import Runtime
from nnpipe.core.training import TrainingOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.candidates.stages import check_plan
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.journal import compute_digest
from nnpipe.workflows.sweep.grid import describe_component
from nnpipe.workflows.verification.compare_outputs import VerifyOptions

_MOST_POINTS = 100_000


@dataclass(frozen=True)
class Model:
    """A model to start from."""

    title: str
    wrapper: ModelWrapper
    path: Path
    training: TrainingOptions | None
    makes_weights: bool = False


@dataclass(frozen=True)
class Point:
    """One combination of a model, compilers, a runtime, a batch size, and possibly a device.

    The title names the arguments that differ from their defaults.
    """

    title: str
    model: Model
    compilers: tuple[ModelCompiler, ...]
    runtime: Runtime | None
    way: Plan | None
    measure: MeasureOptions
    deployment: Deployment | None = None
    device: Device | None = None

    @property
    def remote(self) -> bool:
        """Whether it is measured on a device other than this machine."""
        return self.device is not None and not self.device.here

    @property
    def combination(self) -> str:
        """The title without the device."""
        return self.title.removeprefix(_on(self.device))

    def key(
        self, weights: str, dataset: Dataset, calibration_samples: int, verify: VerifyOptions
    ) -> str:
        """Return a key that is equal only for the same work: a digest of the weights' SHA-256 and
        every argument.

        Of a device it has the name: its address may change.  What was measured on this machine has
        the same key, whether the machine is called a device or not.
        """
        place: dict[str, Any] = (
            {"device": self.device.name} if self.device is not None and self.remote else {}
        )
        if not place and self.deployment:
            place = {"deployment": self.deployment.to_json()}
        return compute_digest(
            {
                **self.describe_inputs(weights, dataset, calibration_samples),
                "runtime": self.runtime.describe() if self.runtime else None,
                "measure": self.measure.to_json(),
                "verify": verify.to_json(),
                **place,
            }
        )

    def describe_inputs(
        self, weights: str, dataset: Dataset, calibration_samples: int
    ) -> dict[str, Any]:
        """Return everything on which the compiled model depends."""
        return {
            "model": self.model.wrapper.describe(),
            "weights": weights,
            "dataset": dataset.describe(),
            "calibration_samples": calibration_samples,
            "compilers": [compiler.describe() for compiler in self.compilers],
            "export": self.way.export if self.way else None,
        }


def build_combinations(
    models: Sequence[Model],
    chains: Sequence[tuple[ModelCompiler, ...]],
    runtimes: Sequence[Runtime],
    measures: Sequence[MeasureOptions],
    devices: Sequence[Device],
    as_trained: bool,
) -> tuple[tuple[Point, ...], dict[str, str]]:
    """Return all combinations, and the reasons why others are not possible, by title.

    Parameters
    ----------
    models, chains, runtimes, measures
        The models, chains of compilers and runtimes, and how each is measured.
    devices
        The devices; without any, everything is measured on this machine.
    as_trained
        Whether each model is also measured in its own framework, on this machine.

    Raises
    ------
    ConfigError
        If there are too many combinations, or none is possible.
    ArtifactError
        If a file of a model is missing or damaged.
    """
    places: Sequence[Device | None] = devices or [None]
    number = len(models) * (as_trained + len(chains) * len(runtimes) * len(places)) * len(measures)
    if number > _MOST_POINTS:
        raise ConfigError(
            f"sweep: {number:,} combinations are more than the {_MOST_POINTS:,} that one sweep "
            f"takes"
        )
    here = next((each for each in devices if each.here), None)
    ways: list[tuple[tuple[ModelCompiler, ...], Runtime | None, Device | None]] = []
    ways += [((), None, here)] if as_trained else []
    ways += [
        (chain, _on_device(runtime, device), device)
        for chain, runtime, device in itertools.product(chains, runtimes, places)
    ]
    points: dict[str, Point] = {}
    impossible: dict[str, str] = {}
    found: dict[tuple[object, ...], tuple[Plan | None, str]] = {}
    for model, (chain, runtime, device) in itertools.product(models, ways):
        parts = (*chain, runtime) if runtime else ()
        # Arguments do not affect the formats, only which programs are needed.
        remote = device is not None and not device.here
        classes = (type(model.wrapper), remote, *((type(part), part.tools()) for part in parts))
        if classes not in found:
            found[classes] = _find_plan(model, chain, runtime, remote)
        way, reason = found[classes]
        if device is not None and runtime is not None:
            reason = device.explain_refusal(type(runtime)) or reason
        for measure in measures:
            point = _build_point(model, chain, runtime, way, measure, device)
            if reason:
                impossible[point.title] = reason
            else:
                points.setdefault(point.title, point)
    if not points:
        reason = next(iter(impossible.values()))
        raise ConfigError(
            f"sweep: not one of the {number} combinations can be; for example: {reason}"
        )
    return tuple(points.values()), impossible


def _on_device(runtime: Runtime, device: Device | None) -> Runtime:
    """Return a runtime without the arguments that do not matter on a device: there those of its
    server apply.
    """
    if device is None or device.here:
        return runtime
    try:
        return type(runtime)()
    except ConfigError:  # it has arguments without defaults
        return runtime


def _find_plan(
    model: Model, chain: Sequence[ModelCompiler], runtime: Runtime | None, remote: bool
) -> tuple[Plan | None, str]:
    """Return the formats from a model to a runtime, or else the reason why there are none."""
    try:
        if runtime is not None:
            return check_plan(model.wrapper, chain, runtime, remote=remote), ""
        model.wrapper.check_installed()
    except MissingDependency as error:
        return None, f"not installed: {error}"
    except ConfigError as error:
        return None, str(error)
    except ArtifactError as error:  # a missing or damaged file makes all combinations impossible
        raise ArtifactError(f"{model.title}: {error}") from None
    return None, ""


def _build_point(
    model: Model,
    chain: Sequence[ModelCompiler],
    runtime: Runtime | None,
    way: Plan | None,
    measure: MeasureOptions,
    device: Device | None,
) -> Point:
    """Return a point, whose compilers and runtime are set to the batch size."""
    size = measure.inference_batch_size
    parts = [
        model.title,
        *map(describe_component, chain),
        "as trained" if runtime is None else describe_component(runtime),
    ]
    if size != 1:
        parts.append(f"batch {size}")
    fitted = None if runtime is None else set_batch_size(runtime, size)
    deployment = None if runtime is None or device is None else device.get_deployment(type(runtime))
    title = ("" if runtime is None else _on(device)) + " · ".join(parts)
    return Point(
        title, model, set_batch_sizes(chain, size), fitted, way, measure, deployment, device
    )


def _on(device: Device | None) -> str:
    return "" if device is None else f"{device.name}: "
