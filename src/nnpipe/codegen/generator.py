"""The description of a script as a value, and what it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnpipe.codegen.graph import Checked, check
from nnpipe.codegen.task import Task
from nnpipe.codegen.variables import Variable
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import Weights


@dataclass(frozen=True, kw_only=True)
class ScriptGenerator:
    """A script by its parts.  Nothing is checked here: :meth:`check` tells all that is wrong.

    Parameters
    ----------
    name
        What the script is called.
    framework
        ``pytorch`` or ``keras``.
    variables
        What tasks hand to each other.
    tasks
        What is to be done.  The order counts only where nothing else decides.
    networks
        Networks by the names that tasks know them by.
    stored
        Weights of networks that have some, by the networks' names.
    last
        The task that the script ends with; by default the last one that is listed.
    seed
        For first weights, the split of samples and their order.
    """

    name: str
    framework: str
    variables: tuple[Variable, ...]
    tasks: tuple[Task, ...]
    networks: Mapping[str, NetworkGraph] = field(default_factory=dict)
    stored: Mapping[str, Weights] = field(default_factory=dict, compare=False)
    last: str | None = None
    seed: int = 0

    def check(self) -> Checked:
        """Return the graph of the tasks, or everything that keeps it from being one."""
        return check(self)

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of variables by their names."""
        return {variable.name: variable.kind for variable in self.variables}


@dataclass(frozen=True)
class Generated:
    """A script, and the files that lie beside it.

    Attributes
    ----------
    text
        The script.
    files
        The content of files by their names, such as weights.
    """

    text: str
    files: Mapping[str, bytes] = field(default_factory=dict)
