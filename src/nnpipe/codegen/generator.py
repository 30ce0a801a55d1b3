"""The description of a script as a value, and the script that is generated from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnpipe.codegen.graph import Checked, check
from nnpipe.codegen.script_task import ScriptTask
from nnpipe.codegen.variables import Variable
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import Weights


@dataclass(frozen=True, kw_only=True)
class ScriptGenerator:
    """The description of a script.  Nothing is checked on creation; :meth:`check` returns everything that is wrong.

    Parameters
    ----------
    name
        Name of the script.
    framework
        ``pytorch`` or ``keras``.
    variables
        Values that tasks pass to each other.
    tasks
        The steps of the script.  Their order matters only where dependencies do not fix it.
    networks
        Networks by the names that tasks use.
    stored
        Stored weights by the names of the networks.
    last
        The last task of the script; by default the last one listed.
    seed
        Seed of the initial weights, the split of the samples, and the order of the samples.
    """

    name: str
    framework: str
    variables: tuple[Variable, ...]
    tasks: tuple[ScriptTask, ...]
    networks: Mapping[str, NetworkGraph] = field(default_factory=dict)
    stored: Mapping[str, Weights] = field(default_factory=dict, compare=False)
    last: str | None = None
    seed: int = 0

    def check(self) -> Checked:
        """Return the graph of the tasks, or all problems of the description."""
        return check(self)

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of variables by their names."""
        return {variable.name: variable.kind for variable in self.variables}


@dataclass(frozen=True)
class Generated:
    """A generated script and its files.

    Attributes
    ----------
    text
        The source code of the script.
    files
        Content of the files that the script reads from its own folder, such as weights, by name.
    """

    text: str
    files: Mapping[str, bytes] = field(default_factory=dict)
