"""The stack is that of the deepest chain of calls, assembly included."""

from __future__ import annotations

from nnpipe.frameworks.cortex_m.image import compute_stack_depth

GRAPH = """
node: { title: "m.c:a" label: "a\\nm.c:1:1\\n16 bytes (static)" }
node: { title: "m.c:b" label: "b\\nm.c:2:1\\n24 bytes (static)" }
edge: { sourcename: "m.c:b" targetname: "m.c:nn_add_rows" label: "m.c:3:1" }
node: { title: "nn_run" label: "nn_run\\nm.c:4:1\\n8 bytes (static)" }
edge: { sourcename: "nn_run" targetname: "m.c:a" label: "m.c:5:1" }
edge: { sourcename: "nn_run" targetname: "m.c:b" label: "m.c:6:1" }
edge: { sourcename: "m.c:a" targetname: "memcpy" label: "m.c:7:1" }
"""


def test_the_deepest_chain_of_calls_is_the_predicted_stack() -> None:
    assert compute_stack_depth([GRAPH]) == 8 + 24 + 40


def test_functions_of_other_files_count_too() -> None:
    other = 'node: { title: "memcpy" label: "memcpy\\nl.c:1:1\\n100 bytes (static)" }'
    assert compute_stack_depth([GRAPH, other]) == 8 + 16 + 100


def test_comparisons_of_floats_by_gccs_library_count_too() -> None:
    call = 'edge: { sourcename: "m.c:a" targetname: "__aeabi_fcmplt" label: "m.c:9:1" }'
    one = 'edge: { sourcename: "m.c:a" targetname: "__aeabi_fadd" label: "m.c:9:1" }'
    assert compute_stack_depth([GRAPH.replace("24 bytes", "0 bytes"), call]) == 8 + 16 + 32
    assert compute_stack_depth([GRAPH, one]) == compute_stack_depth([GRAPH])


def test_a_function_that_calls_itself_counts_once() -> None:
    again = 'edge: { sourcename: "m.c:b" targetname: "nn_run" label: "m.c:8:1" }'
    assert compute_stack_depth([GRAPH, again]) == 8 + 24 + 40
