"""A file of somebody else's that crashes, computes without end or fills the memory costs one
line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.workflows.isolation.limits import call_limited

SHORT = -(11 << 20)  # a size at which the limit is a second


@pytest.fixture(autouse=True)
def found_by_the_subprocess(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(request.path.parent))


def test_what_goes_well_is_returned_and_errors_come_through() -> None:
    assert (
        call_limited("chores:carry_out_limited", Path("m.onnx"), {"do": "double", "number": 4}, 0)
        == 8
    )
    with pytest.raises(ConfigError, match="no such chore"):
        call_limited("chores:carry_out_limited", Path("m.onnx"), {"do": "dance"}, 0)


@pytest.mark.skipif(
    sys.platform != "linux", reason="memory and processor time are limited on Linux"
)
@pytest.mark.parametrize(
    ("chore", "cause"),
    [("crash", "crashed its process"), ("compute", "takes more than 1 s"), ("fill", "more memory")],
)
def test_a_crash_and_each_limit_are_told_with_the_name_of_the_file(chore: str, cause: str) -> None:
    with pytest.raises(ArtifactError, match=f"^m.onnx: opening it .*{cause}") as caught:
        call_limited("chores:carry_out_limited", Path("m.onnx"), {"do": chore}, SHORT)
    assert "\n" not in str(caught.value)
