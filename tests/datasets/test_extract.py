"""Archives are unpacked whole or not at all, and never outside their folder."""

from __future__ import annotations

import gzip
import io
import os
import random
import stat
import struct
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import DatasetError
from nnpipe.datasets.extract import STAMP, extract

FILES = {
    "images/a.jpg": b"A" * 1000,
    "images/b.jpg": random.Random(0).randbytes(70_000),
    "list.txt": b"a\nb\n",
}


def tar_bytes(*entries: tuple[str, Any], mode: str = "w:gz") -> bytes:
    """A tar archive of ``(name, bytes)`` files or ``(name, TarInfo-changes)``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, what in entries:
            info = tarfile.TarInfo(name)
            if isinstance(what, bytes):
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
            else:
                for key, value in what.items():
                    setattr(info, key, value)
                tar.addfile(info)
    return buffer.getvalue()


def zip_bytes(*entries: tuple[str, bytes], mode: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            packed.writestr(info, data)
    return buffer.getvalue()


def unpack(data: bytes, folder: Path, members: Any = None, **settings: Any) -> Path:
    archive = folder / "archive"
    archive.write_bytes(data)
    return extract(archive, folder / "out", members, progress=False, **settings)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != STAMP
    }


def refused(data: bytes, folder: Path, match: str, **settings: Any) -> None:
    """The archive is refused with that message, in one line, and leaves nothing."""
    with pytest.raises(DatasetError, match=match) as raised:
        unpack(data, folder, **settings)
    assert "\n" not in str(raised.value)
    assert "archive" in str(raised.value)
    assert [path.name for path in folder.iterdir()] == ["archive"]


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_is_unpacked(tmp_path, mode):
    assert contents(unpack(tar_bytes(*FILES.items(), mode=mode), tmp_path)) == FILES


def test_a_zip_is_unpacked(tmp_path):
    assert contents(unpack(zip_bytes(("images/", b""), *FILES.items()), tmp_path)) == FILES


def test_no_lock_or_temporary_folder_is_left(tmp_path):
    unpack(tar_bytes(*FILES.items()), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "out"]


@pytest.mark.parametrize("make", [tar_bytes, zip_bytes])
def test_only_some_members_can_be_asked_for(tmp_path, make):
    assert set(contents(unpack(make(*FILES.items()), tmp_path, ["images"]))) == {
        "images/a.jpg",
        "images/b.jpg",
    }


@pytest.mark.parametrize("make", [tar_bytes, zip_bytes])
def test_a_member_that_is_lacking_is_named(tmp_path, make):
    refused(
        make(*FILES.items()),
        tmp_path,
        r"it lacks annotations, images/c\.jpg",
        members=["images/c.jpg", "annotations", "list.txt"],
    )


def test_a_second_call_does_nothing_even_without_the_archive(tmp_path):
    out = unpack(tar_bytes(*FILES.items()), tmp_path)
    (tmp_path / "archive").unlink()
    (out / "list.txt").write_text("changed by its owner")
    assert extract(tmp_path / "archive", out, progress=False) == out
    assert extract(tmp_path / "archive", out, ["list.txt"], progress=False) == out
    assert (out / "list.txt").read_text() == "changed by its owner"


def test_a_folder_unpacked_in_part_does_not_pass_for_the_whole(tmp_path):
    data = tar_bytes(*FILES.items())
    unpack(data, tmp_path, ["images"])
    assert unpack(data, tmp_path, ["images"]) == tmp_path / "out"
    with pytest.raises(DatasetError, match="is in the way"):
        unpack(data, tmp_path)


@pytest.mark.parametrize("stamp", [None, b"", b"[]", b'{"archive": "other", "members": null}'])
def test_a_users_folder_is_left_alone(tmp_path, stamp):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    if stamp is not None:
        (tmp_path / "out" / STAMP).write_bytes(stamp)
    before = sorted((tmp_path / "out").iterdir())
    with pytest.raises(DatasetError, match=r"out is in the way .* was left as it is; move it away"):
        unpack(tar_bytes(*FILES.items()), tmp_path)
    assert sorted((tmp_path / "out").iterdir()) == before
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


def test_what_a_killed_run_left_is_replaced(tmp_path):
    left = tmp_path / ".out.partial"
    (left / "images").mkdir(parents=True)
    (left / "images" / "stray").write_text("stray")
    assert contents(unpack(tar_bytes(*FILES.items()), tmp_path)) == FILES
    assert not left.exists()


def test_threads_that_unpack_at_once_all_get_the_folder(tmp_path):
    (tmp_path / "archive").write_bytes(tar_bytes(*FILES.items()))
    found: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(
                extract(tmp_path / "archive", tmp_path / "out", progress=False)
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "out"] * 4
    assert contents(tmp_path / "out") == FILES


# -- what must not be unpacked ----------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "images/../../evil",
        "/tmp/evil",
        "..",
        "..\\evil",
        "C:\\evil",
        "C:evil",
        "\\evil",
        "a/..",
    ],
)
@pytest.mark.parametrize("make", [tar_bytes, zip_bytes])
def test_names_that_lead_out_are_refused(tmp_path, make, name):
    (tmp_path / "x").mkdir()
    refused(
        make(("good.txt", b"good"), (name, b"evil")),
        tmp_path / "x",
        "the entry .* (leads out|has no relative)",
    )
    assert [path.name for path in tmp_path.rglob("*")] == ["x", "archive"]


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(tmp_path, kind):
    refused(tar_bytes(("dev", {"type": kind})), tmp_path, "is a device, a pipe")


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFIFO])
def test_devices_and_pipes_in_a_zip_are_refused(tmp_path, kind):
    refused(zip_bytes(("dev", b""), mode=kind | 0o644), tmp_path, "is a device, a pipe")


def symlink(target: str) -> dict[str, Any]:
    return {"type": tarfile.SYMTYPE, "linkname": target}


def hardlink(target: str) -> dict[str, Any]:
    return {"type": tarfile.LNKTYPE, "linkname": target}


def test_links_within_the_folder_are_kept(tmp_path):
    out = unpack(
        tar_bytes(
            ("a/file", b"data"), ("a/link", symlink("../a/file")), ("a/same", hardlink("a/file"))
        ),
        tmp_path,
    )
    assert (out / "a" / "link").is_symlink()
    assert (out / "a" / "link").read_bytes() == (out / "a" / "same").read_bytes() == b"data"


@pytest.mark.parametrize(
    "entries",
    [
        [("link", symlink("/etc/passwd"))],
        [("link", symlink("../evil"))],
        [("a/link", symlink("../../evil"))],
        [("link", symlink("..\\evil"))],
        # Each of these stays inside when read letter by letter, and leaves when followed.
        [("x/up", symlink("..")), ("out", symlink("x/up/../evil"))],
        [("x/file", b""), ("x/y/up", symlink("../..")), ("z", symlink("x/y/up/.."))],
        # Writing through a link.
        [("dir", symlink("/tmp")), ("dir/evil", b"evil")],
        [("dir", symlink("..")), ("dir/evil", b"evil")],
        [("file", symlink("../evil")), ("file", b"evil")],
    ],
)
def test_links_that_leave_the_folder_are_refused(tmp_path, entries):
    (tmp_path / "x").mkdir()
    refused(tar_bytes(*entries), tmp_path / "x", "link|twice|cannot unpack")
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "x" / "evil").exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "../archive", "not-there", "link", "folder"])
def test_hard_links_to_anything_but_a_file_before_them_are_refused(tmp_path, target):
    entries = [
        ("link", symlink(".")),
        ("folder", {"type": tarfile.DIRTYPE}),
        ("hard", hardlink(target)),
    ]
    refused(
        tar_bytes(*entries), tmp_path, "has no relative path|leads out|leads to no file before it"
    )


@pytest.mark.parametrize("target", [b"/etc/passwd", b"../evil", b"a" * 5000])
def test_links_in_a_zip_that_leave_the_folder_are_refused(tmp_path, target):
    refused(
        zip_bytes(("link", target), mode=stat.S_IFLNK | 0o777),
        tmp_path,
        "leaves the folder|too long for a link",
    )


@pytest.mark.parametrize("make", [tar_bytes, zip_bytes])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_entry_that_is_there_twice_is_refused(tmp_path, make):
    refused(make(("a", b"1"), ("a", b"2")), tmp_path, "'a' is there twice")


@pytest.mark.parametrize("make", [tar_bytes, zip_bytes])
def test_a_file_that_is_a_folder_too_is_refused(tmp_path, make):
    refused(make(("a", b"1"), ("a/b", b"2")), tmp_path, "cannot unpack")


@pytest.mark.parametrize("make", [tar_bytes, zip_bytes])
def test_bombs_are_refused(tmp_path, make):
    refused(
        make(("zeros", bytes(5_000_000))),
        tmp_path,
        "unpacks to more than it may",
        max_bytes=4_000_000,
    )
    refused(
        make(*[(str(i), b"") for i in range(11)]),
        tmp_path,
        "more entries than it may",
        max_members=10,
    )


def test_a_zip_that_lies_about_a_size_is_refused(tmp_path):
    data = bytearray(zip_bytes(("zeros", bytes(1_000_000))))
    central = data.index(b"PK\x01\x02")
    for at in (22, central + 24):  # the uncompressed size in both headers
        data[at : at + 4] = struct.pack("<I", 100)
    refused(bytes(data), tmp_path, "damaged", max_bytes=1000)


def test_a_header_that_claims_to_be_huge_takes_no_memory(tmp_path):
    header = bytearray(tarfile.TarInfo("pax").tobuf())
    header[156:157] = tarfile.XHDTYPE
    header[124:136] = b"77777777777\0"  # 8 GiB of extended header
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    data = gzip.compress(bytes(header) + bytes(1 << 20))
    refused(data, tmp_path, "claims to be unreasonably long")


def test_a_skipped_entry_counts_too(tmp_path):
    data = tar_bytes(("zeros", bytes(50_000_000)), ("small", b"x"))
    refused(data, tmp_path, "unpacks to more than it may", members=["small"], max_bytes=1_000_000)


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"\x1f\x8b", b"BZh9", b"no archive at all" * 100, bytes(100)]
)
def test_something_else_is_named(tmp_path, data):
    refused(data, tmp_path, "archive (is damaged|was not unpacked)")


def test_an_encrypted_zip_is_named(tmp_path):
    data = bytearray(zip_bytes(("secret", b"text")))
    for at in (6, data.index(b"PK\x01\x02") + 8):
        data[at] |= 1
    refused(bytes(data), tmp_path, "encrypted")


def test_an_archive_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DatasetError, match="archive: No such file"):
        extract(tmp_path / "archive", tmp_path / "out", progress=False)


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:xz"])
def test_a_truncated_tar_is_never_taken_for_whole(tmp_path, mode):
    data = tar_bytes(*FILES.items(), mode=mode)
    whole = len(data) if mode != "w:" else data.rindex(b"\n", 0, len(data)) + 1
    for cut in (1, 8, whole // 2, whole // 3, whole - 1, 512, 1024, 513, whole - 513):
        refused(data[:cut], tmp_path, "archive (is damaged|was not unpacked)")


ARCHIVES = [
    tar_bytes(("a/b", b"text" * 100), ("link", symlink("a/b")), mode="w:"),
    tar_bytes(("a/b", b"text" * 100), ("c", b"")),
    zip_bytes(("a/b", b"text" * 100), ("c", b"")),
]


@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    archive=st.sampled_from(ARCHIVES),
    changes=st.lists(
        st.tuples(st.integers(0, 10_239), st.integers(0, 255)), min_size=1, max_size=4
    ),
)
def test_a_damaged_archive_is_refused_or_stays_in_its_folder(tmp_path_factory, archive, changes):
    folder = tmp_path_factory.mktemp("fuzz")
    data = bytearray(archive)
    for at, value in changes:
        data[at % len(data)] = value
    message = ""
    try:
        unpack(bytes(data), folder, max_bytes=100_000)
    except DatasetError as error:
        message = str(error)
    if message:
        assert "\n" not in message
        assert [path.name for path in folder.iterdir()] == ["archive"]
    else:
        assert sorted(path.name for path in folder.iterdir()) == ["archive", "out"]
        inside = os.path.realpath(folder / "out")
        assert all(
            os.path.realpath(path).startswith(inside) for path in (folder / "out").rglob("*")
        )
