"""The result of a search."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.report.result_files import read_search_file
from nnpipe.searching.importance import Importance, OptunaMethod, importance_by_optuna, importance_for
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import SearchTrial
from nnpipe.workflows.reporting import report_suffix, write_search_report
from nnpipe.workflows.search.search_file import search_content
from nnpipe.workflows.search.table import trial_table

if TYPE_CHECKING:
    import optuna

    from nnpipe.workflows.sweep.sweep_result import SweepResult

_SHOWN = 10


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Parameters
    ----------
    space
        What was searched.
    objectives
        The objectives with their directions.
    trials
        All trials by number.
    title
        The title of the search.
    facts
        What was searched and how, by name, for reports.
    final
        The measurements in full of the best trials, with the one to ship; only of models.

    Examples
    --------
    >>> import nnpipe
    >>> space = {"n": {"kind": "int", "low": 0, "high": 9}}
    >>> found = nnpipe.search(
    ...     lambda n: (n - 3) ** 2, space, objectives={"value": "minimize"}, sampler="grid", trials=20
    ... )
    >>> len(found.trials), found.best.values, found.arguments
    (5, {'value': 1.0}, {'n': 2})
    """

    space: SearchSpace
    objectives: Objectives
    trials: tuple[SearchTrial, ...]
    title: str = "Search"
    facts: Mapping[str, str] = field(default_factory=dict)
    final: SweepResult | None = None
    _importance: dict[str, Importance] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def finished(self) -> tuple[SearchTrial, ...]:
        """The trials that were carried out to their end."""
        return tuple(trial for trial in self.trials if trial.state == "finished")

    @property
    def eligible(self) -> tuple[SearchTrial, ...]:
        """The trials that may be chosen: those of the space as it is now, which may exclude some that were tried."""
        return tuple(trial for trial in self.trials if self.space.contains(trial.configuration or {}))

    @property
    def best(self) -> SearchTrial:
        """The finished trial of the space with the best value of the only objective.

        Raises
        ------
        ConfigError
            If there are several objectives, or no trial was finished.
        """
        found = self.objectives.best(self.eligible, self.objectives.one(None, "best"))
        if found is None:
            raise ConfigError("no trial was finished")
        return found

    @property
    def front(self) -> tuple[SearchTrial, ...]:
        """The finished trials of the space that no other one beats in every objective (the Pareto front)."""
        return self.objectives.front(self.eligible)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the values of the best trial stand for, by name of the parameter."""
        return self.space.arguments(self.best.configuration or {})

    def importance(self, objective: str | None = None) -> Importance:
        """Return how much each parameter matters for an objective, by an additive model and by PED-ANOVA.

        Parameters
        ----------
        objective
            The name of the objective; needed where there are several.

        Raises
        ------
        ConfigError
            If there is no such objective.
        """
        name = self.objectives.one(objective, "objective")
        if name not in self._importance:
            self._importance[name] = importance_for(self.space, self.objectives, self.trials, name)
        return self._importance[name]

    def importance_by(self, method: OptunaMethod, objective: str | None = None) -> dict[str, float]:
        """Return the share of each parameter by a method of Optuna, greatest first.

        Parameters
        ----------
        method
            ``ped-anova``, or ``fanova``, which is warned of.
        objective
            The name of the objective; needed where there are several.

        Raises
        ------
        ConfigError
            If there is no such objective or method.
        """
        name = self.objectives.one(objective, "objective")
        return importance_by_optuna(self.space, self.objectives, self.finished, name, method)

    def write(self, path: str | Path, *, fanova: bool = False) -> None:
        """Write everything to a JSON file, of which ``nnpipe render_report`` makes a report.

        Parameters
        ----------
        path
            The file.
        fanova
            Whether to compute the importance by fANOVA, too, which reports warn of.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        names = self.objectives.names if len(self.finished) > 1 else ()
        content = search_content(
            self.title, self.space, self.objectives, self.trials, {name: self.importance(name) for name in names},
            {name: self.importance_by("fanova", name) for name in names if fanova}, self.facts,
        )  # fmt: skip
        try:
            write_text(path, json.dumps(content, allow_nan=False) + "\n")
        except OSError as error:
            raise ConfigError(f"the result of the search cannot be written: {error}") from None

    def report(self, path: str | Path, *, fanova: bool = False) -> str:
        """Write a report, and the file that it is made from beside it; return a line with their paths.

        Parameters
        ----------
        path
            The report, which ends in ``.html``, ``.rst`` or ``.md``; the file beside it ends in ``.search.json``.
        fanova
            As for :meth:`write`.

        Raises
        ------
        ConfigError
            If the ending is another one, or a file cannot be written.
        MissingDependency
            If Jinja2 is not installed.
        """
        output = Path(path)
        content = output.with_suffix(".search.json")
        report_suffix(output)
        self.write(content, fanova=fanova)
        return f"{write_search_report(read_search_file(content), output)}, from {content}"

    def to_optuna(self, storage: str | None = None, name: str = "search") -> optuna.Study:
        """Return the search as a study of Optuna, for its own analyses and for optuna-dashboard.

        Parameters
        ----------
        storage
            The URL of a database to write it to, such as ``sqlite:///study.db``; by default it is in memory.
        name
            The name of the study.

        Raises
        ------
        ConfigError
            If there is a study of this name already, or a trial is not of the space.
        MissingDependency
            If Optuna is not installed.
        """
        from nnpipe.searching.optuna_export import exported

        return exported(self.space, self.objectives, self.trials, storage, name)

    def __str__(self) -> str:
        counts = {
            state: sum(trial.state == state for trial in self.trials) for state in ("finished", "pruned", "failed")
        }
        lines = [", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no trials"]
        front = self.front
        if front:
            one = len(self.objectives.names) == 1
            lines.append("best:" if one else f"Pareto front, {len(front)} trials:")
            lines.append(trial_table(front[:_SHOWN], self.space, self.objectives))
        if self.final is not None:
            lines += ["", str(self.final)]
        return "\n".join(lines)
