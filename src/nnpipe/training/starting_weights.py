"""The weights of a recorded run, from which another training starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.checkpoints import load_weights, read_weights

if TYPE_CHECKING:
    from nnpipe.experiment.database.database import RunDatabase


@dataclass(frozen=True, kw_only=True)
class StartingWeights:
    """Gives a model the best weights of a run of the same database, which becomes a parent.

    In a configuration::

        start:
          - class: nnpipe.training.starting_weights.StartingWeights
            arguments: {run: digits_before, model: {reference: network}, names: {layers.: layers.}}

    Parameters
    ----------
    run
        The run's identity, or the name of its experiment.
    model
        A module, or an object with one as its attribute ``module``.
    names
        Prefixes of names of weights in the run, and what replaces them in the model.  If there are any, only weights
        with one of these prefixes are loaded, and others stay as they are.
    artifact
        The file of weights.
    """

    run: str
    model: Any
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    artifact: str = "checkpoints/best.state"

    def __post_init__(self) -> None:
        check_call(StartingWeights, vars(self))

    def load(self, database: RunDatabase) -> str:
        """Load the weights, and return the identity of the run.

        Raises
        ------
        ConfigError
            If there is no such run, it is not completed, it has no such file, or its weights do not fit the model.
        ArtifactError
            If all weights are to be loaded and do not fit the model.
        """
        run = database.runs.get(self.run)
        if run.status != "completed":
            raise ConfigError(f"{self.run}: run {run.id[:12]} is {run.status}; complete it first")
        if self.artifact not in {artifact.name for artifact in database.artifacts.list(run.id)}:
            raise ConfigError(
                f"{self.run}: run {run.id[:12]} has no {self.artifact}; a training that evaluates a split "
                "keeps its best weights"
            )
        path = database.artifacts.path(run.id, self.artifact)
        model = getattr(self.model, "module", self.model)
        if not self.names:
            load_weights(path, model)
            return run.id
        chosen = {
            new + name[len(old) :]: value
            for name, value in read_weights(path).items()
            for old, new in self.names.items()
            if name.startswith(old)
        }
        own = model.state_dict()
        wrong = [
            n for n, v in chosen.items() if n not in own or getattr(own[n], "shape", None) != getattr(v, "shape", None)
        ]
        if wrong or not chosen:
            what = (
                f"{', '.join(wrong[:5])} of it do not fit the model"
                if wrong
                else f"nothing in it begins with {', '.join(self.names)}"
            )
            raise ConfigError(f"{self.run}: {self.artifact} of run {run.id[:12]}: {what}")
        model.load_state_dict({**own, **chosen})
        return run.id
