"""Cells and networks of cells: parameters, constraints, and the networks that configurations
stand for.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.architectures.conftest import SMALL

from nnpipe.architectures.architecture_space import ArchitectureSpace
from nnpipe.architectures.cell_space import KNOWN, CellOperation
from nnpipe.core.errors import ConfigError
from nnpipe.layers import from_description
from nnpipe.layers.graph.shape_inference import infer

NASBENCH201 = ["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"]
DARTS = {
    "operations": ["skip_connect", "sep_conv_3x3", "dil_conv_5x5", "max_pool_3x3"],
    "nodes": 3,
    "inputs": 2,
    "keep": 2,
    "output": "concatenate",
}


def test_the_cell_of_nasbench201_has_its_parameters_under_the_names_of_its_table() -> None:
    space = ArchitectureSpace.from_json({**SMALL, "cell": {"operations": NASBENCH201}})
    assert list(space.parameters()) == [
        "edge_0_1",
        "edge_0_2",
        "edge_1_2",
        "edge_0_3",
        "edge_1_3",
        "edge_2_3",
    ]
    assert space.search_space.count == 5**6 == 15_625


def test_constraints_allow_exactly_the_cells_whose_output_depends_on_the_input() -> None:
    space = ArchitectureSpace.from_json(
        {**SMALL, "cell": {"operations": ["none", "skip_connect"], "nodes": 3}}
    )
    names = list(space.parameters())
    allowed = 0
    for values in product(["none", "skip_connect"], repeat=len(names)):
        cell = dict(zip(names, values, strict=True))
        there = {
            tuple(map(int, name.split("_")[1:])) for name, value in cell.items() if value != "none"
        }
        reached = {0}
        for end in (1, 2, 3):
            reached |= {end} if any((start, end) in there for start in reached) else set()
        assert space.search_space.allows(cell) == (3 in reached)
        if 3 in reached:
            allowed += 1
            assert space.network(cell).problems() == ()
        else:
            with pytest.raises(
                ConfigError, match="no path leads from the inputs of this cell to its output"
            ):
                space.network(cell)
    assert 0 < allowed < 64


@pytest.mark.parametrize(
    "cell", [{"operations": NASBENCH201}, {**DARTS}, {"operations": list(KNOWN)[1:], "keep": 1}]
)
def test_every_random_network_can_be_built_and_is_written_and_read_as_any_other(cell: Any) -> None:
    space = ArchitectureSpace.from_json(
        {**SMALL, "cell": cell, "channels": [4, 6], "cells": [1, 2], "stages": 2}
    )
    random = np.random.default_rng(0)
    for _ in range(5):
        configuration = space.sample(random)
        graph = space.network(configuration)
        assert graph.problems() == ()
        read = from_description(json.loads(json.dumps(space.description(configuration))))
        assert read.problems == ()
        assert read.graph is not None
        assert infer(read.graph).shapes[read.graph.outputs[0]] == (None, 2)
        assert {e.layer.name for e in read.graph.entries} == {e.layer.name for e in graph.entries}
    assert ArchitectureSpace.from_json(space.to_json()) == space


def test_a_cell_of_darts_has_two_edges_into_each_node() -> None:
    space = ArchitectureSpace.from_json({**SMALL, "cell": DARTS})
    configuration = space.sample(np.random.default_rng(1))
    operations = space.cell.read_operations(configuration)
    assert [sum(end == node for _, end in operations) for node in space.cell.computed] == [2, 2, 2]
    assert space.cell.configuration(operations) == {
        name: configuration[name] for name in space.cell.configuration(operations)
    }


def test_an_edge_from_a_node_that_nothing_reaches_is_left_out(space: ArchitectureSpace) -> None:
    graph = space.network(
        {"edge_0_1": "none", "edge_0_2": "skip_connect", "edge_1_2": "nor_conv_3x3"}
    )
    assert not any("edge_1_2" in entry.layer.name for entry in graph.entries)


def test_the_extremes_have_the_fewest_and_the_most_weights(space: ArchitectureSpace) -> None:
    space = ArchitectureSpace.from_json({**SMALL, "channels": [4, 8], "cells": [1, 2]})
    assert space.get_extreme(0) == {
        "channels": 4,
        "cells": 1,
        "edge_0_1": "skip_connect",
        "edge_0_2": "skip_connect",
        "edge_1_2": "skip_connect",
    }
    assert set(space.get_extreme(-1).values()) == {8, 2, "nor_conv_3x3"}


def test_an_operation_of_ones_own_is_declared_by_its_layers() -> None:
    own = {
        "name": "bottleneck",
        "layers": [
            {"class": "Conv2d", "filters": 2, "kernel_size": 1, "activation": "relu"},
            {"class": "Conv2d", "filters": "channels", "kernel_size": 3, "padding": "same"},
        ],
    }
    space = ArchitectureSpace.from_json(
        {**SMALL, "cell": {"operations": [own, "skip_connect"], "nodes": 1}}
    )
    graph = space.network({"edge_0_1": "bottleneck"})
    assert infer(graph).problems == ()
    assert [e.layer.name for e in graph.entries if "edge_0_1" in e.layer.name] == [
        "cell_0_0_edge_0_1_bottleneck_0",
        "cell_0_0_edge_0_1_bottleneck_1",
    ]
    assert CellOperation.from_json(own, "x").to_json() == own


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"cell": {"operations": ["skip_conect"]}},
            "cell.operations.0: there is no operation 'skip_conect'",
        ),
        ({"cell": {"operations": ["none"]}}, "none alone connects nothing"),
        (
            {"cell": {"operations": ["none", "skip_connect"], "keep": 2}},
            "with keep, edges are left out already",
        ),
        (
            {"cell": {"operations": ["skip_connect"], "nodes": 9}},
            "architecture.cell.nodes: expected 1 to 6, found 9",
        ),
        (
            {
                "cell": {
                    "operations": [
                        {
                            "name": "wide",
                            "layers": [{"class": "Conv2d", "filters": 3, "kernel_size": 1}],
                        }
                    ]
                }
            },
            "operation wide: an operation keeps height, width and channels",
        ),
        (
            {
                "cell": {
                    "operations": [{"name": "odd", "layers": [{"class": "Conv2d", "filter": 3}]}]
                }
            },
            "operation odd: ",
        ),
        ({"channels": [8, 8]}, "architecture.channels: expected different numbers"),
        ({"stages": 5}, "architecture.stages: images of"),
        ({"colour": 1}, "architecture"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        ArchitectureSpace.from_json({**SMALL, **changes})
    assert "\n" not in str(error.value)


def test_a_configuration_of_another_space_is_refused(space: ArchitectureSpace) -> None:
    with pytest.raises(ConfigError, match="edge_0_2: this configuration has no value of it"):
        space.network({"edge_0_1": "skip_connect"})
