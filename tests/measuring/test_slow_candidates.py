"""A candidate far slower than the best float one of its model is marked, with the cause where
one is known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnpipe.measuring.comparison import check_slow_candidates
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series


def run(
    title: str,
    milliseconds: int,
    *claims: str,
    model: str = "a",
    runtime: bool = True,
    **timing: object,
) -> Run:
    inference = Series({"latency_ns": np.full(5, milliseconds * 1_000_000)})
    artifact = {"claims": ["float"], "parent": {"claims": list(claims), "parent": None}}
    components = {"wrapper": {"class": model}, **({"runtime": {}} if runtime else {})}
    return Run(
        title, (), components, {}, {}, dict(timing), {"inference": inference}, artifact=artifact
    )


def test_the_cause_is_told_where_it_is_known() -> None:
    runs = [
        run("ort", 10),
        run("tvm", 100, settings=["TVM without tuning"]),
        run("dynamic", 40, "int8-weights"),
    ]
    runs.append(run("as it is", 50, runtime=False))
    runs.append(run("unrolled", 60))
    runs[-1].artifact["outcome"] = {
        "slow_parts": ["recurrent layers are unrolled into their steps"]
    }
    found = check_slow_candidates(runs)
    assert {title: doubt.reason for title, doubt in found.items()} == {
        "tvm": "10.0 times slower than 'ort' in floats: TVM without tuning",
        "dynamic": "4.0 times slower than 'ort' in floats: no cause is known",
        "unrolled": "6.0 times slower than 'ort' in floats: recurrent layers are unrolled into their steps",
        "as it is": "5.0 times slower than 'ort' in floats: it runs uncompiled, in its own framework",
    }


def test_only_float_candidates_of_the_same_model_are_a_measure() -> None:
    assert not check_slow_candidates([run("float", 30), run("int8", 2, "int8"), run("limit", 90)])
    assert not check_slow_candidates([run("one", 1), run("other", 100, model="b")])
    assert not check_slow_candidates([Run("none", (), {}, {}, {}, {}, {}), run("one", 1)])


def test_a_slow_device_makes_no_candidate_slow() -> None:
    here, there, slow = run("here", 1), run("there", 10), run("slow there", 40)
    board = {"class": "NetworkProtocol", "arguments": {"host": "board"}}
    there, slow = (
        replace(each, components={**each.components, "protocol": board}) for each in (there, slow)
    )
    found = check_slow_candidates([here, there, slow])
    assert list(found) == ["slow there"]
    assert "than 'there' in floats" in found["slow there"].reason
