"""The result of reducing a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.foreign_text import show_text
from nnpipe.workflows.reduction.symptom import Symptom


@dataclass(frozen=True)
class ReduceResult:
    """The few nodes of a model that still show what is wrong with it.

    Parameters
    ----------
    path
        The folder with the reproducer.
    symptom
        What is wrong.
    nodes
        The types of the nodes that are left, in order.
    nodes_before
        The number of nodes of the whole model.
    tries
        How many parts were tried.
    seconds
        How long it took.
    ended
        What ended the search early; empty if no node can be left out any more.

    Examples
    --------
    >>> symptom = Symptom("crash", "loading", "SIGSEGV")
    >>> print(ReduceResult(Path("reduced"), symptom, ("Conv", "Relu"), 120, tries=34, seconds=21.4))
    2 of 120 nodes are left: Conv, Relu
    symptom: the process crashed (SIGSEGV) while loading
    34 tries in 21 s
    reproducer: reduced (issue.md says how to report it)
    """

    path: Path
    symptom: Symptom
    nodes: tuple[str, ...]
    nodes_before: int
    tries: int
    seconds: float
    ended: str = ""

    def __str__(self) -> str:
        kinds = ", ".join(name if n == 1 else f"{n} {name}" for name, n in Counter(self.nodes).most_common(8))
        more = ", ..." if len(set(self.nodes)) > 8 else ""
        early = f"\nended early by {self.ended}: fewer nodes may do" if self.ended else ""
        return (
            f"{len(self.nodes)} of {self.nodes_before} nodes are left: {kinds}{more}\n"
            f"symptom: {self.symptom}\n"
            f"{self.tries} tries in {self.seconds:.0f} s{early}\n"
            f"reproducer: {self.path} (issue.md says how to report it)"
        )

    def show(self) -> None:
        """Print the result."""
        show_text(str(self))
