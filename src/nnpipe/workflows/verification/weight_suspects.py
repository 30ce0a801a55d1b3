"""Sorting suspects: operations with wrong weights come before those that only compute other values."""

from __future__ import annotations

from dataclasses import replace

from nnpipe.analysis.suspect_operations import Level, Suspect
from nnpipe.analysis.weight_changes import Weighing
from nnpipe.core.graph import Graph, Operation
from nnpipe.workflows.verification.first_difference import Divergence
from nnpipe.workflows.verification.graph_order import varying


def led_by_weights(where: Divergence, source: Graph, other: Graph, weights: Weighing) -> Divergence:
    """Return a divergence whose suspects begin with the operations that have wrong weights.

    A fault changes the values of later operations, too, sometimes more than its own (before a normalisation).  Wrong
    weights show its exact place.

    Parameters
    ----------
    where
        The comparison of values.
    source, other
        The graphs of the two models.
    weights
        The comparison of weights, by the names of these graphs.

    Returns
    -------
    Divergence
        Each operation with wrong weights once, the most changed first, then the other suspects in their order.
    """
    by_values = {suspect.name: suspect for suspect in where.suspects}
    found: dict[str, Suspect] = {}
    here_live, there_live = varying(source), varying(other)
    for change in weights.wrong:
        there = tuple(operation.name for operation in computing_with(other, there_live, change.other))
        for operation in computing_with(source, here_live, change.name):
            known = found.get(operation.name) or by_values.get(operation.name)
            if known is None:
                level = Level(operation.outputs[0], operation.name, operation.kind, operation.layer, "", 0, 0, 0, 0)
                found[operation.name] = Suspect(operation.name, level, (operation.name,), there, change.wrong)
            else:
                told = f"{known.told}; {change.wrong}"
                found[operation.name] = replace(known, there=tuple({*known.there, *there}), told=told)
    rest = tuple(suspect for suspect in where.suspects if suspect.name not in found)
    return replace(where, suspects=(*found.values(), *rest))


def computing_with(graph: Graph, live: set[str], weight: str) -> list[Operation]:
    """Return the operations that compute with a weight, also after its conversion or reshaping by others."""
    waiting, found = [weight], []
    while waiting:
        name = waiting.pop()
        for operation in graph.operations:
            if name in operation.inputs:
                if live.issuperset(operation.outputs):
                    found.append(operation)
                else:
                    waiting += operation.outputs
    return found
