"""Downloads end with the right file in place or one clear line, whatever the server does."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.datasets._download import RemoteFile, fetch

CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)
NOWHERE = "http://127.0.0.1:9/data.bin"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def remote(
    *urls: str, content: bytes = CONTENT, size: int | None = -1, **settings: Any
) -> RemoteFile:
    return RemoteFile(
        "data.bin", urls, sha256(content), len(content) if size == -1 else size, **settings
    )


class Pauses(list[float]):
    """Stands for ``time.sleep`` and notes what it was asked."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def get(file: RemoteFile, folder: Path, **settings: Any) -> Path:
    return fetch(
        file,
        folder,
        **{"timeout": 5.0, "progress": False, "sleep": Pauses(), "seed": 0, **settings},
    )


def hidden(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith(".")}


def put_partial(folder: Path, data: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / ".data.bin.partial").write_bytes(data)


# -- the plain case ---------------------------------------------------------------------------


def test_a_file_is_brought_whole_and_nothing_else_is_left(new_server, tmp_path):
    server = new_server(CONTENT)
    path = get(remote(server.url()), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "data.bin"
    assert path.read_bytes() == CONTENT
    assert server.bytes_sent == len(CONTENT)
    assert hidden(path.parent) == set()


def test_a_file_that_is_there_costs_no_network(new_server, tmp_path):
    server = new_server(CONTENT)
    (tmp_path / "data.bin").write_bytes(CONTENT)
    get(remote(server.url()), tmp_path)
    assert server.seen == []


def test_a_checked_file_is_not_read_again_until_it_changes(tmp_path, monkeypatch):
    path = tmp_path / "data.bin"
    path.write_bytes(CONTENT)
    get(remote(NOWHERE), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(
            "nnpipe.datasets._download.compute_sha256", lambda _: pytest.fail("was read again")
        )
        get(remote(NOWHERE), tmp_path)
    changed = bytearray(CONTENT)
    changed[1000] ^= 1
    status = path.stat()
    path.write_bytes(changed)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # same size, same time
    with pytest.raises(DatasetError, match="is not the published"):
        get(remote(NOWHERE), tmp_path)


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b'{"file": 1, "sha256": "x"}', b"\xff\xfe"])
def test_a_damaged_stamp_only_means_reading_again(tmp_path, damage):
    (tmp_path / "data.bin").write_bytes(CONTENT)
    (tmp_path / ".data.bin.checked").write_bytes(damage)
    assert get(remote(NOWHERE), tmp_path).read_bytes() == CONTENT


def test_nothing_is_written_into_a_folder_marked_read_only(tmp_path):
    (tmp_path / "data.bin").write_bytes(CONTENT)
    tmp_path.chmod(0o555)
    try:
        assert get(remote(NOWHERE), tmp_path).read_bytes() == CONTENT
        assert hidden(tmp_path) == set()
    finally:
        tmp_path.chmod(0o755)


def test_a_file_in_a_folder_that_cannot_be_written_is_used(tmp_path, monkeypatch):
    (tmp_path / "data.bin").write_bytes(CONTENT)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("nnpipe.datasets._download.write_text", refuse)
    assert get(remote(NOWHERE), tmp_path).read_bytes() == CONTENT


def test_a_users_other_file_is_named_and_never_touched(new_server, tmp_path):
    server = new_server(CONTENT)
    path = tmp_path / "data.bin"
    path.write_bytes(OTHER)
    before = path.stat()
    with pytest.raises(DatasetError) as raised:
        get(remote(server.url()), tmp_path)
    message = str(raised.value)
    assert str(path) in message
    assert sha256(OTHER) in message
    assert sha256(CONTENT) in message
    assert "move it away" in message
    assert "\n" not in message
    assert path.read_bytes() == OTHER
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert server.seen == []


def test_a_users_file_that_appears_during_the_download_is_not_replaced(new_server, tmp_path):
    def put_one(handler: Any) -> None:
        (tmp_path / "data.bin").write_bytes(OTHER)
        handler.head(200, Content_Length=len(CONTENT))
        handler.body(CONTENT)

    server = new_server(CONTENT, script=[put_one])
    with pytest.raises(DatasetError, match=r"data\.bin is in the way"):
        get(remote(server.url()), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == OTHER


def test_a_gzip_file_packed_otherwise_is_accepted_on_its_content(tmp_path):
    mine = gzip.compress(CONTENT, 1, mtime=1)
    (tmp_path / "data.bin").write_bytes(mine)
    published = remote(
        NOWHERE, content=gzip.compress(CONTENT, 9, mtime=2), content_sha256=sha256(CONTENT)
    )
    assert get(published, tmp_path).read_bytes() == mine
    (tmp_path / "data.bin").write_bytes(mine[:-9])
    with pytest.raises(DatasetError, match="is not the published"):
        get(published, tmp_path)


def test_something_that_is_no_file_is_named(tmp_path):
    (tmp_path / "data.bin").mkdir()
    with pytest.raises(DatasetError, match=r"data\.bin is not a file; move it away"):
        get(remote(NOWHERE), tmp_path)


def test_a_file_where_the_folder_should_be_is_named(tmp_path):
    (tmp_path / "root").write_text("mine")
    with pytest.raises(DatasetError, match="root"):
        get(remote(NOWHERE), tmp_path / "root")
    assert (tmp_path / "root").read_text() == "mine"


def test_a_full_disk_is_one_line_and_not_tried_again(new_server, tmp_path, monkeypatch):
    server = new_server(CONTENT)

    class FullDisk(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("nnpipe.datasets._transfer.PartialFile.open", lambda _: FullDisk())
    with pytest.raises(DatasetError, match=r"cannot save .*: No space left on device; make room"):
        get(remote(server.url()), tmp_path)
    assert len(server.seen) == 1


def test_a_local_address_works_and_resumes(tmp_path):
    source = tmp_path / "source file"
    source.write_bytes(CONTENT)
    put_partial(tmp_path / "a", CONTENT[:1000])
    for folder in ("a", "b"):
        assert get(remote(source.as_uri()), tmp_path / folder).read_bytes() == CONTENT
    with pytest.raises(DatasetError, match="No such file"):
        get(remote((tmp_path / "absent").as_uri()), tmp_path / "c")


@pytest.mark.parametrize(
    "values",
    [
        {"name": "../data.bin"},
        {"name": "a/b"},
        {"name": ".hidden"},
        {"name": ""},
        {"urls": ()},
        {"urls": ("ftp://host/file",)},
        {"urls": ("data:,x",)},
        {"sha256": "abc"},
        {"sha256": "G" * 64},
        {"content_sha256": "abc"},
        {"size": 0},
    ],
)
def test_a_description_that_cannot_be_right_is_refused(values):
    good = remote(NOWHERE)
    with pytest.raises(ConfigError):
        dataclasses.replace(good, **values)


# -- resuming ---------------------------------------------------------------------------------


def test_a_broken_off_download_is_resumed_where_it_ended(new_server, misbehaving, tmp_path):
    server = new_server(
        CONTENT, script=[misbehaving.break_after(100_000), misbehaving.break_after(50_000)]
    )
    assert get(remote(server.url()), tmp_path).read_bytes() == CONTENT
    assert [seen.headers.get("Range") for seen in server.seen] == [
        None,
        "bytes=100000-",
        "bytes=150000-",
    ]
    assert [seen.headers.get("If-Range") for seen in server.seen] == [None, '"v1"', '"v1"']
    assert server.bytes_sent == len(CONTENT)


def test_the_next_run_resumes_what_the_last_one_left(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, script=[misbehaving.break_after(123_456)])
    with pytest.raises(DatasetError):
        get(remote(server.url()), tmp_path, attempts=1)
    assert hidden(tmp_path) == {".data.bin.partial", ".data.bin.partial.json"}
    assert not (tmp_path / "data.bin").exists()
    get(remote(server.url()), tmp_path)
    assert server.seen[-1].headers["Range"] == "bytes=123456-"
    assert server.bytes_sent == len(CONTENT)
    assert hidden(tmp_path) == set()


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    cuts=st.lists(st.integers(0, len(CONTENT)), max_size=6), known=st.booleans(), etag=st.booleans()
)
def test_any_cut_points_give_the_same_bytes(
    new_server, misbehaving, tmp_path_factory, cuts, known, etag
):
    server = new_server(
        CONTENT,
        etag='"v1"' if etag else None,
        script=[misbehaving.break_after(cut) for cut in cuts],
    )
    file = remote(server.url(), size=-1 if known else None)
    path = get(file, tmp_path_factory.mktemp("cut"), attempts=20)
    assert path.read_bytes() == CONTENT
    assert server.bytes_sent == len(CONTENT)


def test_a_file_that_changed_on_the_server_is_begun_again(new_server, misbehaving, tmp_path):
    server = new_server(OTHER, script=[misbehaving.break_after(100_000)])
    with pytest.raises(DatasetError):
        get(remote(server.url()), tmp_path, attempts=1)
    server.content, server.etag = CONTENT, '"v2"'
    assert get(remote(server.url()), tmp_path).read_bytes() == CONTENT
    assert server.seen[-1].headers["If-Range"] == '"v1"'
    assert server.seen[-1].body_bytes == len(CONTENT)


def test_a_file_that_changed_without_a_new_etag_is_begun_again(new_server, tmp_path):
    server = new_server(CONTENT)
    put_partial(tmp_path, OTHER[:100_000])
    assert get(remote(server.url()), tmp_path, attempts=1).read_bytes() == CONTENT
    assert [seen.headers.get("Range") for seen in server.seen] == ["bytes=100000-", None]


def test_a_weak_etag_is_not_sent_back(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, etag='W/"v1"', script=[misbehaving.break_after(100_000)])
    assert get(remote(server.url()), tmp_path).read_bytes() == CONTENT
    assert "If-Range" not in server.seen[1].headers
    assert server.bytes_sent == len(CONTENT)


def test_a_server_that_ignores_the_range_makes_it_begin_again(new_server, misbehaving, tmp_path):
    server = new_server(
        CONTENT, script=[misbehaving.break_after(100_000), misbehaving.ignore_range]
    )
    assert get(remote(server.url()), tmp_path).read_bytes() == CONTENT
    assert server.seen[1].body_bytes == len(CONTENT)


@pytest.mark.parametrize(
    "text",
    [
        "bytes 0-299999/300000",
        "bytes 99999-299999/300000",
        "bytes 100001-299999/300000",
        "bytes 100000-99999/300000",
        "bytes 100000-200000/300000",
        "bytes */300000",
        "items 100000-299999/300000",
        "bytes 100000-299999/" + "9" * 40,
        "",
    ],
)
def test_a_wrong_content_range_makes_it_begin_again(new_server, misbehaving, tmp_path, text):
    server = new_server(CONTENT, script=[misbehaving.content_range(text)])
    put_partial(tmp_path, CONTENT[:100_000])
    assert get(remote(server.url()), tmp_path, attempts=1).read_bytes() == CONTENT
    assert server.seen[-1].headers.get("Range") is None


def test_a_part_that_lacks_only_its_renaming_costs_no_network(tmp_path):
    put_partial(tmp_path, CONTENT)
    assert get(remote(NOWHERE), tmp_path).read_bytes() == CONTENT
    assert hidden(tmp_path) == set()


def test_a_whole_part_of_a_file_of_unknown_size_is_known_by_status_416(new_server, tmp_path):
    server = new_server(CONTENT)
    put_partial(tmp_path, CONTENT)
    assert get(remote(server.url(), size=None), tmp_path).read_bytes() == CONTENT
    assert server.bytes_sent == 0


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_part_that_is_too_long_is_thrown_away(new_server, tmp_path, size):
    server = new_server(CONTENT)
    put_partial(tmp_path, CONTENT + b"more")
    assert get(remote(server.url(), size=size), tmp_path, attempts=1).read_bytes() == CONTENT


def test_status_416_to_a_plain_request_ends_the_attempt(new_server, misbehaving, tmp_path):
    server = new_server(
        CONTENT,
        script=[misbehaving.status(416), misbehaving.status(206, Content_Range="bytes 0-0/1")],
    )
    assert get(remote(server.url()), tmp_path).read_bytes() == CONTENT
    assert len(server.seen) == 3


# -- lies, silence and noise ------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 299_999, 300_001, 10**15])
def test_a_wrong_content_length_is_not_believed(new_server, misbehaving, tmp_path, length):
    server = new_server(CONTENT, script=[misbehaving.announce(length)])
    assert get(remote(server.url()), tmp_path).read_bytes() == CONTENT
    server.script[:] = [misbehaving.announce(length)] * 2
    with pytest.raises(DatasetError, match=f"announces {length} bytes instead of 300000"):
        get(remote(server.url()), tmp_path / "b", attempts=2)


@pytest.mark.parametrize("length", [1, 299_999, 300_001])
def test_a_wrong_content_length_spoils_no_file_of_unknown_size(
    new_server, misbehaving, tmp_path, length
):
    server = new_server(CONTENT, script=[misbehaving.announce(length)])
    good = new_server(CONTENT)
    path = get(remote(server.url(), good.url(), size=None), tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("text", ["-5", "abc", "1e3", "9" * 30])
def test_a_content_length_that_is_no_number_is_passed_over(new_server, misbehaving, tmp_path, text):
    server = new_server(CONTENT, default=misbehaving.announce(text))
    assert get(remote(server.url()), tmp_path).read_bytes() == CONTENT


def test_no_content_length_is_fine(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, default=misbehaving.announce(None))
    assert get(remote(server.url(), size=None), tmp_path).read_bytes() == CONTENT


def test_a_body_without_a_length_that_breaks_off_is_not_taken_for_wrong(
    new_server, misbehaving, tmp_path
):
    server = new_server(CONTENT, script=[misbehaving.announce(None, CONTENT[:1000])])
    assert get(remote(server.url(), size=None), tmp_path).read_bytes() == CONTENT
    assert len(server.seen) == 2


def test_chunks_are_fine(new_server, misbehaving, tmp_path):
    pieces = [CONTENT[i : i + 7_777] for i in range(0, len(CONTENT), 7_777)]
    server = new_server(CONTENT, default=misbehaving.chunked(pieces))
    assert get(remote(server.url()), tmp_path / "a").read_bytes() == CONTENT
    assert get(remote(server.url(), size=None), tmp_path / "b").read_bytes() == CONTENT


@pytest.mark.parametrize("end", [b"", b"zz\r\nrubbish", b"5\r\nab"])
def test_broken_chunks_are_resumed(new_server, misbehaving, tmp_path, end):
    server = new_server(CONTENT, script=[misbehaving.chunked([CONTENT[:100_000]], last=end)])
    assert get(remote(server.url()), tmp_path).read_bytes() == CONTENT


def test_wrong_content_is_thrown_away_and_the_next_mirror_asked(new_server, tmp_path):
    bad, good = new_server(OTHER), new_server(CONTENT)
    assert get(remote(bad.url(), good.url()), tmp_path).read_bytes() == CONTENT
    assert len(bad.seen) == len(good.seen) == 1
    assert good.seen[0].headers.get("Range") is None


def test_wrong_content_everywhere_leaves_nothing(new_server, tmp_path):
    bad = new_server(OTHER)
    pauses = Pauses()
    with pytest.raises(DatasetError, match="sends other content than the published") as raised:
        get(remote(bad.url("/a"), bad.url("/b")), tmp_path, sleep=pauses)
    assert list(tmp_path.iterdir()) == []
    assert bad.url("/a") in str(raised.value)
    assert bad.url("/b") in str(raised.value)
    assert pauses == []  # asking again would bring the same


def test_an_endless_body_is_cut_at_the_size(new_server, misbehaving, tmp_path):
    zeros = bytes(500_000)
    server = new_server(zeros, default=misbehaving.endless)
    assert get(remote(server.url(), content=zeros), tmp_path).read_bytes() == zeros


def test_an_endless_body_of_unknown_size_is_cut_at_the_limit(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, default=misbehaving.endless)
    with pytest.raises(DatasetError, match="sends more than the limit of 1000000 bytes"):
        get(remote(server.url(), size=None), tmp_path, limit=1_000_000)
    assert list(tmp_path.iterdir()) == []
    server.default = None
    with pytest.raises(DatasetError, match="announces 300000 bytes, more than the limit of 1000"):
        get(remote(server.url(), size=None), tmp_path, limit=1_000)


def test_silence_ends_the_attempt_and_the_next_resumes(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, script=[misbehaving.stall_after(100_000)])
    assert get(remote(server.url()), tmp_path, timeout=0.3).read_bytes() == CONTENT
    assert server.seen[1].headers["Range"] == "bytes=100000-"


def test_silence_before_the_answer_is_named(new_server, tmp_path):
    server = new_server(CONTENT, default=lambda handler: handler.server.released.wait(5))
    with pytest.raises(DatasetError, match=r"silent for 0\.2 s"):
        get(remote(server.url()), tmp_path, timeout=0.2, attempts=1)


def test_a_trickle_does_not_hold_us_for_ever(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, script=[misbehaving.trickle])
    with pytest.raises(DatasetError, match=r"sends only .* bytes in"):
        get(remote(server.url()), tmp_path, timeout=0.3, attempts=1)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"rubbish\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:99999/\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:port/\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://\xff\xfe\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http:///\r\n\r\n",
        b"HTTP/1.1 302 Found\r\n\r\n",
        b"HTTP/1.1 300 Choices\r\n\r\n",
    ],
)
def test_an_answer_that_is_no_http_ends_the_attempt(new_server, misbehaving, tmp_path, answer):
    server, good = new_server(CONTENT, default=misbehaving.raw(answer)), new_server(CONTENT)
    assert get(remote(server.url(), good.url()), tmp_path / "a").read_bytes() == CONTENT
    with pytest.raises(DatasetError) as raised:
        get(remote(server.url()), tmp_path / "b", attempts=2, timeout=1.0)
    assert str(raised.value).isprintable()


# -- statuses, pauses, mirrors ----------------------------------------------------------------


def test_a_server_that_is_busy_is_asked_again_after_the_time_it_names(
    new_server, misbehaving, tmp_path
):
    server = new_server(
        CONTENT, script=[misbehaving.status(503, Retry_After=7), misbehaving.status(500)]
    )
    pauses = Pauses()
    assert get(remote(server.url()), tmp_path, sleep=pauses).read_bytes() == CONTENT
    assert pauses[0] == 7
    assert 0 < pauses[1] <= 2


@pytest.mark.parametrize("text", ["999999999", "Fri, 31 Dec 2999 23:59:59 GMT"])
def test_no_server_makes_us_wait_for_longer_than_a_minute(new_server, misbehaving, tmp_path, text):
    server = new_server(CONTENT, script=[misbehaving.status(503, Retry_After=text)])
    pauses = Pauses()
    get(remote(server.url()), tmp_path, sleep=pauses)
    assert pauses == [60]


@pytest.mark.parametrize("text", ["-5", "soon", "nan", "Fri, 31 Dec 1999 23:59:59 GMT", "1" * 40])
def test_a_senseless_retry_after_is_passed_over(new_server, misbehaving, tmp_path, text):
    server = new_server(CONTENT, script=[misbehaving.status(503, Retry_After=text)])
    pauses = Pauses()
    get(remote(server.url()), tmp_path, sleep=pauses)
    assert 0 < pauses[0] <= 1


def test_pauses_grow_and_end(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, default=misbehaving.status(503))
    pauses = Pauses()
    with pytest.raises(DatasetError, match="503"):
        get(remote(server.url()), tmp_path, attempts=10, sleep=pauses)
    assert len(server.seen) == 10
    for number, pause in enumerate(pauses, 1):
        assert min(60, 0.5 * 2**number) / 2 <= pause <= min(60, 0.5 * 2**number)


def test_news_bring_new_patience(new_server, misbehaving, tmp_path):
    content = random.Random(2).randbytes(3_000_000)
    server = new_server(content, default=misbehaving.break_after(300_000))
    assert get(remote(server.url(), content=content), tmp_path, attempts=2).read_bytes() == content
    assert len(server.seen) == 10


def test_a_missing_file_is_not_asked_for_twice(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, default=misbehaving.status(404))
    with pytest.raises(DatasetError) as raised:
        get(remote(server.url(), NOWHERE), tmp_path, attempts=3)
    message = str(raised.value)
    assert len(server.seen) == 1
    assert f"{server.url()}: 404 Not Found" in message
    assert f"{NOWHERE}: Connection refused" in message
    assert (
        f"put the file at {tmp_path / 'data.bin'} by hand (sha256 {sha256(CONTENT)}, 300000 bytes)"
        in message
    )
    assert "\n" not in message


def test_a_mirror_goes_on_where_another_broke_off(new_server, misbehaving, tmp_path):
    first = new_server(CONTENT, script=[misbehaving.break_after(100_000)])
    second = new_server(CONTENT, etag='"other"')
    assert get(remote(first.url(), second.url()), tmp_path).read_bytes() == CONTENT
    assert second.seen[0].headers["Range"] == "bytes=100000-"
    assert "If-Range" not in second.seen[0].headers  # its validators are its own
    assert first.bytes_sent + second.bytes_sent == len(CONTENT)


def test_a_mirror_does_not_suffer_from_what_another_sent(new_server, misbehaving, tmp_path):
    bad = new_server(OTHER, script=[misbehaving.break_after(100_000)])
    good = new_server(CONTENT)
    assert get(remote(bad.url(), good.url()), tmp_path, attempts=1).read_bytes() == CONTENT


# -- redirects --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_with_its_range(new_server, misbehaving, tmp_path, status):
    server = new_server(CONTENT, scripts={"/old": [misbehaving.status(status, Location="/new")]})
    put_partial(tmp_path, CONTENT[:100_000])
    assert get(remote(server.url("/old")), tmp_path).read_bytes() == CONTENT
    assert [seen.path for seen in server.seen] == ["/old", "/new"]
    assert server.seen[1].headers["Range"] == "bytes=100000-"


def test_redirects_in_a_circle_end(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, default=misbehaving.status(302, Location="/data.bin"))
    with pytest.raises(DatasetError, match="redirects more than 5 times"):
        get(remote(server.url()), tmp_path)
    assert len(server.seen) == 6


def test_the_endless_body_of_a_redirect_is_not_read(new_server, tmp_path):
    def endless_redirect(handler: Any) -> None:
        handler.head(302, Location="/new")
        while True:
            handler.body(bytes(1 << 16))

    server = new_server(CONTENT, scripts={"/data.bin": [endless_redirect]})
    assert get(remote(server.url()), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "javascript:x"]
)
def test_a_redirect_to_something_else_is_refused(new_server, misbehaving, tmp_path, target):
    server = new_server(CONTENT, default=misbehaving.status(302, Location=target))
    with pytest.raises(DatasetError, match=r"redirects from http to .*, which is refused"):
        get(remote(server.url()), tmp_path)


def test_a_redirect_from_https_to_http_is_refused():
    from email.message import Message
    from urllib.request import Request

    from nnpipe.datasets._transfer import PermanentFailure, _Redirects

    headers = Message()
    headers["Location"] = "http://example.org/data.bin"
    with pytest.raises(PermanentFailure, match="redirects from https to http, which is refused"):
        _Redirects().http_error_302(
            Request("https://example.org/"), io.BytesIO(), 302, "Found", headers
        )


# -- what is shown ----------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_line_says_what_is_brought_from_where_and_how_large(new_server, tmp_path):
    server, out = new_server(CONTENT), io.StringIO()
    get(remote(server.url()), tmp_path, progress=True, stream=out)
    assert out.getvalue() == f"downloading data.bin (300.0 kB) from {server.url()} to {tmp_path}\n"


def test_a_terminal_sees_a_bar_that_goes_on_where_it_was(new_server, tmp_path):
    server, out = new_server(CONTENT), Terminal()
    put_partial(tmp_path, CONTENT[:150_000])
    get(remote(server.url()), tmp_path, progress=True, stream=out)
    assert "going on at 150.0 kB" in out.getvalue()
    assert "data.bin:  50%" in out.getvalue()
    assert "data.bin: 100%" in out.getvalue()


def test_what_a_server_says_cannot_write_on_the_terminal(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, default=misbehaving.raw(b"HTTP/1.1 404 \x1b[2Jgone\x07\r\n\r\n"))
    out = io.StringIO()
    with pytest.raises(DatasetError) as raised:
        get(remote(server.url()), tmp_path, progress=True, stream=out)
    for text in (str(raised.value), out.getvalue()):
        assert "\x1b" not in text
        assert "gone" in text
