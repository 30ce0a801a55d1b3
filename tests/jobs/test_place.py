"""What is told of a job by its own folder, or by another machine, is read with care."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.status import look
from nnpipe.jobs.agent.supervisor import build_end_record
from nnpipe.jobs.place import JobError, Look

END = build_end_record({}, status=1, outputs=[{"path": "a", "size": 1, "sha256": "b", "fault": ""}])
TOLD = {
    "state": "failed",
    "reason": "",
    "ended": END,
    "processes": {"supervisor": {"pid": 1}, "script": None},
    "progress": base64.b64encode(b"{}\n").decode(),
    "progress_size": 3,
    "log": "",
    "log_size": 0,
}

LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20)
VALUES = st.recursive(
    LEAVES, lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=8), part)
)


def test_what_an_agent_says_is_read() -> None:
    found = Look.from_json(json.loads(json.dumps(TOLD)), "box")
    assert (found.state, found.reason, found.progress, found.ended) == (
        "failed",
        END["reason"],
        b"{}\n",
        END,
    )
    assert found.processes == {"supervisor": {"pid": 1}}


@given(st.sampled_from([*TOLD]), VALUES)
def test_one_thing_amiss_is_read_or_one_line(name: str, value: object) -> None:
    with contextlib.suppress(JobError):
        assert Look.from_json({**TOLD, name: value}, "box").state


@given(st.sampled_from([*END]), VALUES)
def test_a_job_of_whose_end_something_is_damaged_failed(name: str, value: object) -> None:
    found = Look.from_json({**TOLD, "ended": {**END, name: value}}, "box")
    assert found.state == "failed"
    assert found.ended is not None
    assert found.reason == found.ended["reason"]
    assert len(found.reason) <= 500


@given(VALUES)
def test_anything_else_is_one_line(value: object) -> None:
    if not isinstance(value, dict):
        value = {"state": value}
    with pytest.raises(JobError, match=r"^box: "):
        Look.from_json(value, "box")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"state": 1}', b'{"attempt": "x"}']
)
@pytest.mark.parametrize(
    "name", [files.ENDED, files.PROCESSES, files.CANCEL, files.BEFORE, files.JOB]
)
def test_damaged_files_of_a_folder_raise_nothing_but_one_line(
    tmp_path: Path, name: str, content: bytes
) -> None:
    files.write(tmp_path, files.JOB, {"id": "x", "attempt": 1})
    (tmp_path / name).write_bytes(content)
    found = Look.from_json(look(tmp_path), "here")
    assert found.state in ("failed", "cancelled", "absent")
    assert (found.state == "absent") == (name == files.JOB and not content.startswith(b'{"'))
