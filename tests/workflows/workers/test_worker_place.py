"""Where workers run, as users write it."""

from __future__ import annotations

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.workflows.workers.worker_options import WorkerPlace, parse_places


@pytest.mark.parametrize(
    ("text", "address", "count"),
    [
        ("here", "here", 3),
        ("here=2", "here", 2),
        ("ssh:box", "ssh://box", 3),
        ("ssh:me@box=5", "ssh://me@box", 5),
        ("ssh://me@box:2222", "ssh://me@box:2222", 3),
        ("ray://head", "ray+http://head:8265", 3),
        ("ray://head:9000/=4", "ray+http://head:9000", 4),
        ("ray://[::1]", "ray+http://[::1]:8265", 3),
        ("ray+https://head:443", "ray+https://head:443", 3),
    ],
)
def test_a_place_has_an_address_and_a_number_of_workers(
    text: str, address: str, count: int
) -> None:
    assert WorkerPlace.parse(text, 3) == WorkerPlace(address, count)


def test_without_places_workers_are_here_and_each_has_a_name_of_its_own() -> None:
    (here,) = parse_places([], 2)
    assert here.here
    names = [name for place in (here, WorkerPlace("ssh://box", 2)) for name in place.names()]
    assert len(set(names)) == 4


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["here=0"], "a number of workers from 1 to 256"),
        (["ssh:box=many"], "a number of workers"),
        (["kubernetes://x"], "expected here, ssh:HOST, ssh://"),
        (["ray://a b"], "Ray's dashboard"),
        (["ssh:box", "ssh://box=2"], r"ssh://box stands there twice; write ssh://box=2"),
    ],
)
def test_what_is_no_place_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_places(texts, 1)
