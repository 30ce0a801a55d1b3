"""The steps of a search for mixed precision: compiling, running, ranking, and the models of the final comparison."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.plan import Plan
from nnpipe.core.progress import Progress
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import suffix
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.mixing.float_search import MixStep, search_floats
from nnpipe.workflows.mixing.mix_result import FLOATS, INTEGERS, MIXED
from nnpipe.workflows.ways import Planned, Way, planned

log = logging.getLogger("nnpipe")

_RANKED_ON = 32  # samples


@dataclass(frozen=True)
class MixingChain:
    """A way, the place of its quantiser, and the way to the same runtime in floats."""

    way: Planned
    place: int
    floats: Planned

    @classmethod
    def of(cls, way: Planned, named: str | Way) -> MixingChain:
        title = named if isinstance(named, str) else named.title
        place = next((n for n, each in enumerate(way.compilers) if _keeps(each)), None)
        if place is None or way.runtime is None or way.plan is None:
            raise ConfigError(f"{title}: none of its compilers quantises and keeps tensors in floats (keep_float)")
        compilers = [*way.compilers[:place], *_in_floats(way.compilers[place]), *way.compilers[place + 1 :]]
        floats = Way(FLOATS, tuple(compilers), way.runtime, way.plan.export)
        return cls(way, place, planned(floats, [(way.wrapper, way.path)]))

    def keeping(self, kept: Sequence[str]) -> tuple[ModelCompiler, ...]:
        """Return the compilers of a model that keeps some tensors in floats, beside those that the way keeps."""
        made = list(self.way.compilers)
        own: Any = made[self.place]
        made[self.place] = replace(own, keep_float=(*own.keep_float, *kept))
        return tuple(made)


def _keeps(compiler: ModelCompiler) -> bool:
    return hasattr(compiler, "keep_float") and compiler.needs_calibration()


def _in_floats(compiler: Any) -> tuple[ModelCompiler, ...]:
    """Return the compilers that do without quantisation what a quantiser does."""
    for name, floats in (("precision", "fp32"), ("target", "default")):
        if hasattr(compiler, name):
            return (replace(compiler, **{name: floats}, keep_float=()),)
    return ()


@dataclass(frozen=True)
class MixingSteps:
    """What the steps of a search have in common."""

    chain: MixingChain
    dataset: Dataset
    metric: QualityMetric
    place: Path
    calibration_samples: int
    limit: float
    source: ModelProcess
    worker: Worker

    def searched(
        self, samples: np.ndarray[Any, Any], allowed: float, evaluations: int, progress: Progress
    ) -> tuple[list[tuple[str, float]], list[MixStep]]:
        """Return the ranking of the tensors, and the models that were tried."""
        request = {"indices": samples.tolist(), "metric": self.metric.name}
        plain = self._spec(FLOATS, *self._floats(), self.chain.floats)
        self._do("running the model in floats", {"do": "open", **request, "candidate": plain.to_json()})
        ranking: list[tuple[str, float]] = []
        number = itertools.count()
        turns = iter(progress(range(evaluations), "trying", evaluations))

        def evaluate(kept: tuple[str, ...]) -> MixStep:
            next(turns, None)
            made = self._spec(MIXED, *self._made(kept, self.place / f"tried{next(number)}"))
            found = self._do("running it", {"do": "try", **request, "candidate": made.to_json()})
            ratio, *interval = found["times"]
            step = MixStep(kept, found["loss"], found["low"], found["high"], ratio, (interval[0], interval[1]))
            log.info("%d tensors in floats: loss %.4g, %.2f times the time", len(kept), step.loss, step.time)
            return step

        first = evaluate(())
        if first.loss <= allowed or evaluations == 1:
            return ranking, [first]
        ranking = self._ranking(samples)
        names = [name for name, _ in ranking]
        return ranking, search_floats(names, lambda kept: evaluate(kept) if kept else first, allowed, evaluations)

    def _ranking(self, samples: np.ndarray[Any, Any]) -> list[tuple[str, float]]:
        quantised, _ = self._made((), self.place / "integers")
        source = self._named_alike(quantised)
        spec = self._spec(INTEGERS, quantised, self.chain.way.compilers)
        request = {
            "do": "rank", "source": str(source.path), "quantised": str(quantised.path), "candidate": spec.to_json(),
            "indices": samples[:_RANKED_ON].tolist(),
        }  # fmt: skip
        found = [(str(name), float(level)) for name, level in self._do("ranking the tensors", request)]
        if not found:
            raise ConfigError("none of the tensors that the quantiser rounds is known by its name in the source")
        return found

    def _named_alike(self, quantised: Artifact) -> Artifact:
        """Return the model in floats whose tensors have the names to keep: what the quantiser takes, or converts to."""
        place, count = self.chain.place, len(self.chain.way.compilers)
        quantiser: Any = self.chain.way.compilers[place]
        if quantiser.names_from_result:
            return _history(self._floats()[0])[count - 1 - place]
        return _history(quantised)[count - place]

    def finalists(self, best: MixStep | None, to: Path) -> list[CandidateSpec]:
        """Return the model in floats, that in integers, and the chosen one, which is written to its place."""
        floats = self._spec(FLOATS, *self._floats(), self.chain.floats)
        if best is not None and not best.kept:
            return [floats, self._spec(INTEGERS, *self._made((), to))]
        integers = self._spec(INTEGERS, *self._made((), self.place / "integers"))
        return [floats, integers] if best is None else [floats, integers, self._spec(MIXED, *self._made(best.kept, to))]

    def check_destination(self, to: Path) -> None:
        """Raise :class:`ConfigError` if writing the chosen model would replace the one that it is made from."""
        way = self.chain.way
        assert way.plan is not None
        path = _with_suffix(to, way.plan, way.compilers)
        self.source.destinations(way.plan, way.compilers, path)

    def _floats(self) -> tuple[Artifact, tuple[ModelCompiler, ...]]:
        return self._compiled(self.chain.floats, self.chain.floats.compilers, self.place / "floats")

    def _made(self, kept: Sequence[str], to: Path) -> tuple[Artifact, tuple[ModelCompiler, ...]]:
        return self._compiled(self.chain.way, self.chain.keeping(kept), to)

    def _compiled(
        self, way: Planned, compilers: tuple[ModelCompiler, ...], to: Path
    ) -> tuple[Artifact, tuple[ModelCompiler, ...]]:
        assert way.plan is not None
        path = _with_suffix(to, way.plan, compilers)
        return self.source.compile(way.plan, compilers, path, self.calibration_samples, self.limit), compilers

    def _spec(
        self, title: str, artifact: Artifact, compilers: tuple[ModelCompiler, ...], way: Planned | None = None
    ) -> CandidateSpec:
        way = way or self.chain.way
        return CandidateSpec(title, way.wrapper, way.path, compilers, way.runtime, artifact, dataset=self.dataset)

    def _do(self, what: str, request: Mapping[str, Any]) -> Any:
        return self.worker.attempt(what, request, self.limit)


def _with_suffix(path: Path, way: Plan, compilers: Sequence[ModelCompiler]) -> Path:
    return path if path.suffix else path.with_suffix(suffix(way, compilers))


def _history(artifact: Artifact) -> list[Artifact]:
    """Return an artifact, what it was made from, what that was made from, and so on."""
    found, parent = [artifact], artifact.parent
    while parent is not None:
        found.append(parent)
        parent = parent.parent
    return found
