"""What a search file searches: the interface, and Python functions."""

from __future__ import annotations

import importlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.searching.engine import SearchEngine
from nnpipe.searching.objectives import Objectives, require_finite
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import SearchTrial, TrialLease


class TrialPruned(Exception):
    """A trial is not worth going on with; the function that is being searched need not catch
    this.
    """


class TrialReport:
    """Takes the intermediate values of a trial: a searched function with the argument ``report``
    is given one.
    """

    def __init__(self, engine: SearchEngine, lease: TrialLease) -> None:
        self._engine, self._lease = engine, lease
        self.last: float | None = None
        """The last value."""
        self.values: dict[int, float] = {}
        """All values by step."""
        self.objectives: tuple[str, ...] = engine.objectives.names
        """The names of the objectives."""

    def __call__(self, step: int, value: float) -> None:
        """Report the objective's value after a number of steps, such as epochs.

        Parameters
        ----------
        step
            How many steps have been done, from 1.
        value
            The value of the objective by which trials are pruned.

        Raises
        ------
        TrialPruned
            If the trial is not worth going on with.
        ConfigError
            If the value is no finite number, or the step is below 1.
        """
        check_call(TrialReport.__call__, {"step": step})
        if step < 1:
            raise ConfigError(f"report: steps count from 1, found {step}")
        self.last = self.values[step] = require_finite(value, "report")
        if self._engine.report(self._lease, step, self.last):
            raise TrialPruned(f"pruned at step {step}")


REPORT = "report"


class SearchSubject(ABC):
    """Something with arguments that a search chooses."""

    @abstractmethod
    def check(self, space: SearchSpace, objectives: Objectives) -> None:
        """Raise :class:`ConfigError` unless it has the parameters of a space and the objectives."""

    @abstractmethod
    def evaluate(
        self, trial: SearchTrial, arguments: Mapping[str, Any], report: TrialReport
    ) -> Any:
        """Carry out a trial; return the value of the objective, or values by name."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return what it is; two that differ cannot share trials."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, str]:
        """What it is, by name, for reports."""


class SearchedFunction(SearchSubject):
    """A Python function.

    Parameters
    ----------
    function
        Takes the parameters by name, and a report if it has an argument ``report``.
    fixed
        Arguments that are the same in all trials.
    path
        The import path, if it came from one.
    """

    def __init__(
        self, function: Callable[..., Any], fixed: Mapping[str, Any] | None = None, path: str = ""
    ) -> None:
        self.function, self.fixed, self.path = function, dict(fixed or {}), path
        self._reports = False

    @classmethod
    def from_path(cls, path: str, fixed: Mapping[str, Any]) -> SearchedFunction:
        """Return the function of an import path such as ``package.module.function``.

        Raises
        ------
        ConfigError
            If it cannot be imported, or is no function.
        """
        module, _, name = path.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"function: {path} cannot be imported ({error})") from None
        if not callable(found):
            raise ConfigError(f"function: {path} is no function, but {type(found).__name__}")
        return cls(found, fixed, path)

    def check(self, space: SearchSpace, objectives: Objectives) -> None:
        """Raise :class:`ConfigError` unless it takes every parameter, and needs no other one."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        try:
            declared = inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            return
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        by_name = {key: each for key, each in declared.items() if each.kind in kinds}
        takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in declared.values())
        for where, given in (("space", space.parameters), ("arguments", self.fixed)):
            for parameter in given:
                if parameter not in by_name and not takes_all:
                    hint = (
                        suggest_name(parameter, by_name)
                        or f"; it takes: {', '.join(by_name) or 'nothing'}"
                    )
                    raise ConfigError(f"{where}: {name} takes no argument {parameter!r}{hint}")
        for parameter in self.fixed:
            if parameter in space.parameters:
                raise ConfigError(f"arguments: {parameter!r} is a parameter of the space, too")
        for key, each in by_name.items():
            known = key in space.parameters or key in self.fixed or key == REPORT
            if each.default is inspect.Parameter.empty and not known:
                raise ConfigError(
                    f"space: {name} needs the argument {key!r}, which is no parameter"
                )
        self._reports = REPORT in by_name and REPORT not in {*space.parameters, *self.fixed}

    def evaluate(
        self, trial: SearchTrial, arguments: Mapping[str, Any], report: TrialReport
    ) -> Any:
        """Call the function."""
        return self.function(
            **self.fixed, **arguments, **({REPORT: report} if self._reports else {})
        )

    def to_json(self) -> dict[str, Any]:
        """Return the import path and the fixed arguments."""
        return {"function": self.path, "arguments": hide_settings_secrets(self.fixed)}

    @property
    def facts(self) -> dict[str, str]:
        """The function and its fixed arguments."""
        name = self.path or str(getattr(self.function, "__name__", type(self.function).__name__))
        fixed = (
            {"Fixed arguments": json.dumps(hide_settings_secrets(self.fixed), default=str)}
            if self.fixed
            else {}
        )
        return {"Function": name, **fixed}
