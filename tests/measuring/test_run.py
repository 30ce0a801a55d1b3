from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series


def a_run(samples: int = 20, classes: int = 5) -> Run:
    """A run as a real machine would give it: latencies with noise and a long tail, one
    prediction in five wrong.
    """
    random = np.random.default_rng(0)
    latency = random.lognormal(np.log(20_000), 0.2, samples).astype(np.int64)
    latency[random.random(samples) < 0.01] *= 50
    truth = random.integers(0, classes, samples)
    rank = np.where(random.random(samples) < 0.2, random.integers(0, classes, samples), 0)
    start = np.cumsum(latency + random.integers(500, 5000, samples))
    seen = np.arange(max(samples // 100, 2))
    return Run(
        title="ONNX int8",
        command=("nnpipe", "inference_tester", "--verbosity", "INFO"),
        components={"dataset": {"class": "a.B", "arguments": {"split_seed": 0}}, "compilers": []},
        artifact={"format": "onnx", "size": 1234},
        frameworks={"onnxruntime": "1.31.1"},
        host={"cpu": {"model": "Ångström", "governor": None}},
        timing={"load_ns": 5, "first_ns": 7, "warmup": 10, "batch_size": 1},
        series={
            "inference": Series(
                {"start_ns": start, "latency_ns": latency, "samples": np.ones(samples, np.int64)}
            ),
            "resources": Series(
                {
                    "time_ns": seen * 50_000_000 + random.integers(0, 100_000, len(seen)),
                    "cpu_percent": random.random(len(seen)) * 100,
                    "process_bytes": 10**9 + seen * 4096,
                }
            ),
        },
        evaluation=Evaluation(
            "classification",
            {"truth": truth, "predicted": (truth + rank) % classes, "rank": rank},
            tuple(f"class {i}" for i in range(classes)),
        ),
        created="2026-01-01T00:00:00+00:00",
    )


def test_a_verification_is_kept_and_old_files_have_none() -> None:
    told = {"verdict": "close", "reason": "rounding", "samples": 64}
    data = dataclasses.replace(a_run(), verification=told).to_json()
    assert Run.from_json(json.loads(json.dumps(data))).verification == told
    del data["verification"]
    assert Run.from_json(data).verification == {}
    with pytest.raises(ArtifactError, match="'verification' should be an object"):
        Run.from_json({**data, "verification": "fine"})


LATENCY = a_run().series["inference"]["latency_ns"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    a_run().write(path)
    return path


def same(one: Run, other: Run) -> bool:
    return one.to_json() == other.to_json()


def test_a_result_file_gives_the_run_back(path: Path) -> None:
    run, again = a_run(), Run.read(path)
    assert same(run, again)
    assert again.command == run.command
    assert again.evaluation is not None
    assert again.evaluation.class_names == run.evaluation.class_names  # type: ignore[union-attr]
    for name, series in run.series.items():
        for column, values in series.columns.items():
            np.testing.assert_array_equal(again.series[name][column], values, strict=True)


def test_a_run_without_quality_or_samples_comes_back_too(tmp_path: Path) -> None:
    run = dataclasses.replace(a_run(), evaluation=None, series={})
    run.write(tmp_path / "r.json")
    assert same(run, Run.read(tmp_path / "r.json"))
    assert run.summary() == {}


def test_a_person_can_read_the_file(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.count("\n") > 30
    assert json.loads(text)["summary"] == a_run().summary()
    assert a_run().summary()["inferences"] == 20
    assert a_run().summary()["evaluated_samples"] == 20


def test_the_summary_is_not_believed_when_read(path: Path) -> None:
    data = json.loads(path.read_text())
    data["summary"] = {"latency_median": {"value": 0.0, "unit": "s"}}
    path.write_text(json.dumps(data))
    assert Run.read(path).summary() == a_run().summary()


def test_a_large_result_takes_at_most_24_bytes_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    a_run(samples=100_000, classes=1000).write(path)
    assert path.stat().st_size <= 24 * 100_000
    assert len(Run.read(path).series["inference"]) == 100_000


def test_results_for_the_same_samples_hold_their_truth_once(path: Path, tmp_path: Path) -> None:
    one = Run.read(path)
    assert one.evaluation is not None
    wrong = {**one.evaluation.arrays, "predicted": np.zeros(20, np.int64)}
    changed = dataclasses.replace(one.evaluation, arrays=wrong)
    dataclasses.replace(one, evaluation=changed).write(tmp_path / "other.json")
    other = Run.read(tmp_path / "other.json").evaluation
    assert other is not None
    assert other.arrays["truth"] is one.evaluation.arrays["truth"]
    assert not other.arrays["truth"].flags.writeable
    assert not other.arrays["predicted"].any()


def test_columns_of_a_series_are_of_one_length_and_numbers() -> None:
    with pytest.raises(ArtifactError, match="differ in length"):
        Series({"a": np.zeros(2), "b": np.zeros(3)})
    for wrong in (np.zeros((2, 2)), np.array(0), np.array(["a"])):
        with pytest.raises(ArtifactError, match="no column"):
            Series({"a": wrong})
    with pytest.raises(ArtifactError, match="time_ns"):
        Series({"time_ns": np.zeros(2)})


# -- damage -----------------------------------------------------------------------------------


def refused(path: Path) -> str:
    """Read a file that must be refused: by one line of moderate length that names it."""
    with pytest.raises(ArtifactError) as caught:
        Run.read(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 500 + len(str(path))
    return message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "no such result file" in refused(tmp_path / "none.json")
    assert "no such result file" in refused(tmp_path)


def test_a_file_cut_short_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes().rstrip()
    for length in np.linspace(0, len(whole) - 1, examples(len(whole))).astype(int):
        path.write_bytes(whole[:length])
        refused(path)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=examples(300),
    deadline=None,
)
@given(data=st.data())
def test_a_file_with_any_change_is_read_or_refused_but_never_crashes(
    path: Path, data: st.DataObject
) -> None:
    content = bytearray(a_run_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        piece = data.draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from([b"[", b"{}", b'"', b"null", b"-1", b"9" * 30]),
            )
        )
        content[at : at + data.draw(st.integers(0, 40))] = piece
    path.write_bytes(content)
    read_or_refuse(path)


@pytest.mark.slow
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=examples(500),
    deadline=None,
)
@given(data=st.data())
def test_a_value_of_any_other_kind_is_read_or_refused_but_never_crashes(
    path: Path, data: st.DataObject
) -> None:
    tree = json.loads(a_run_bytes())
    node: Any = tree
    while True:
        keys = sorted(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if (
            not node[key]
            or not isinstance(node[key], (dict, list))
            or data.draw(st.integers(0, 3)) == 0
        ):
            break
        node = node[key]
    if isinstance(node, dict) and data.draw(st.integers(0, 4)) == 0:
        del node[key]
    else:
        node[key] = data.draw(JSON)
    path.write_text(json.dumps(tree))
    read_or_refuse(path)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def test_a_change_in_a_stored_array_never_goes_unnoticed(path: Path) -> None:
    tree = json.loads(path.read_text())
    packed = tree["series"]["inference"]["latency_ns"]
    good, unnoticed = packed["data"], 0
    for at in range(len(good)):
        packed["data"] = good[:at] + ("B" if good[at] == "A" else "A") + good[at + 1 :]
        path.write_text(json.dumps(tree))
        if found := read_or_refuse(path):
            unnoticed += 1  # base64 has bits that mean nothing before its closing "="
            np.testing.assert_array_equal(found.series["inference"]["latency_ns"], LATENCY)
    assert unnoticed <= 1


def a_run_bytes() -> bytes:
    return json.dumps(a_run().to_json()).encode()


def read_or_refuse(path: Path) -> Run | None:
    try:
        run = Run.read(path)
    except ArtifactError:
        refused(path)
        return None
    assert same(run, Run.from_json(json.loads(json.dumps(run.to_json(), allow_nan=False))))
    return run


def changed(path: Path, change: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 2 is unknown"),
        ({"title": 3}, "'title' should be a text"),
        ({"command": "ls"}, "'command' should be a list"),
        ({"host": [["a", 1]]}, "'host' should be an object"),
        ({"timing": None}, "'timing' should be an object"),
        ({"series": {"inference": {}}}, "no column 'start_ns'"),
        ({"series": {"inference": [1]}}, "'inference' should be an object"),
        ({"evaluation": "good"}, "'evaluation' should be an object"),
        ({"evaluation": {"task": "t", "arrays": {}}}, "'class_names' is missing"),
    ],
)
def test_the_part_that_is_wrong_is_named(
    path: Path, change: Mapping[str, Any], message: str
) -> None:
    assert message in refused(changed(path, change))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"3",
        b'"text"',
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema": NaN}',
        b'{"schema": 1e999}',
        b'{"schema": ' + b"9" * 10_000 + b"}",
        b"\x00" * 100,
        b'{"schema": 1}',
    ],
)
def test_what_is_no_result_file_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refused(path)


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no limit of a process's memory to set"
)
def test_many_small_values_cannot_exhaust_the_memory(path: Path) -> None:
    path.write_bytes(b'{"schema": [' + b"[]," * 20_000_000 + b"[]]}")
    code = (
        "import resource, sys\n"
        "from nnpipe.core.errors import ArtifactError\n"
        "from nnpipe.measuring.run import Run\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try: Run.read(sys.argv[1])\n"
        "except ArtifactError as error: print(error)\n"
    )
    # its threads' stacks count as memory too
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, env=environment
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"{path}: not a result file: too many values\n"


def test_many_large_arrays_cannot_exhaust_the_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nnpipe.measuring.result_json._ARRAYS_LIMIT", 20 * 8 * 3 - 1
    )  # the first series has three columns of 20
    assert "bytes are too many" in refused(path)


def test_a_file_that_is_too_large_is_not_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnpipe.measuring.result_json._FILE_LIMIT", path.stat().st_size)
    Run.read(path)
    monkeypatch.setattr("nnpipe.measuring.result_json._FILE_LIMIT", path.stat().st_size - 1)
    assert "too large" in refused(path)


def test_a_failed_write_leaves_the_old_file_whole(path: Path) -> None:
    old = path.read_bytes()
    with pytest.raises(ValueError):
        dataclasses.replace(a_run(), host={"load": float("nan")}).write(path)
    assert path.read_bytes() == old
    assert [p.name for p in path.parent.iterdir()] == [path.name]
