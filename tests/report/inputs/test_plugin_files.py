"""Whatever somebody's code leaves in a folder is read within bounds, and nothing outside the
folder is.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from nnpipe.report.inputs.plugin_files import ReadBudget, read_output_files

PNG = b"\x89PNG\r\n\x1a\n" + bytes(30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "output").mkdir()
    return tmp_path / "output"


def read(folder: Path, budget: ReadBudget | None = None):
    files, more = read_output_files(folder, budget or ReadBudget())
    assert more == 0
    return {file.name: file for file in files}


@pytest.mark.parametrize(
    ("name", "content", "kind", "mime"),
    [
        ("a.png", PNG, "picture", "image/png"),
        ("a.PNG", PNG, "picture", "image/png"),
        ("a.jpg", b"\xff\xd8\xff\xe0", "picture", "image/jpeg"),
        ("a.svg", b"<svg/>", "picture", "image/svg+xml"),
        ("fake.png", b"<html>", "other", ""),
        ("a.wav", b"RIFF", "audio", "audio/wav"),
        ("a.mp4", b"ftyp", "video", "video/mp4"),
        ("a.csv", b"a,b", "table", ""),
        ("a.json", b"{}", "json", ""),
        ("a.html", b"<script>", "text", ""),
        ("noext", "grün".encode(), "text", ""),
        ("noext", b"\xff\xfe", "other", ""),
        ("noext", b"a\0b", "other", ""),
        ("a.npy", b"\x93NUMPY", "other", ""),
        ("empty", b"", "text", ""),
    ],
)
def test_files_are_told_apart_by_name_and_content(folder, name, content, kind, mime):
    (folder / name).write_bytes(content)
    file = read(folder)[name]
    assert (file.kind, file.mime, file.content, file.size) == (kind, mime, content, len(content))


def test_links_devices_and_pipes_are_named_and_never_opened(folder):
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "up").symlink_to(folder.parent)
    (folder / "round").symlink_to(folder)
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.txt")  # reading it would wait for ever
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        found = read(folder)
    assert {name: file.remark for name, file in found.items()} == {
        "link.txt": "a link, not followed",
        "up": "a link, not followed",
        "round": "a link, not followed",
        "dangling": "a link, not followed",
        "pipe.txt": "a pipe, not followed",
        "socket": "a socket, not followed",
    }
    assert all(
        file.content is None and file.address is None and file.refused for file in found.values()
    )


def test_a_device_is_not_opened(folder):
    try:
        os.mknod(folder / "zero.txt", 0o666 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root can make devices")
    assert read(folder)["zero.txt"].remark == "a device, not followed"


def test_only_so_much_is_read(folder):
    (folder / "a.txt").write_text("x" * 1_000_000)
    with open(folder / "b.bin", "wb") as file:
        file.truncate(1 << 33)
    (folder / "c.png").write_bytes(PNG + bytes(5_000_000))
    (folder / "d.png").write_bytes(PNG + bytes(5_000_000))
    found = read(folder, ReadBudget(left=6_000_000))
    assert (len(found["a.txt"].content), found["a.txt"].remark) == (
        1 << 18,
        "the first 262,144 of 1,000,000 bytes",
    )
    assert (found["b.bin"].content, found["b.bin"].remark) == (
        None,
        "larger than the 16 MiB of a file on this page",
    )
    assert len(found["c.png"].content) == 5_000_038
    assert (found["d.png"].content, found["d.png"].remark) == (None, "the page is full")


def test_a_text_is_not_taken_for_another_where_it_is_cut_within_a_letter(folder):
    (folder / "a").write_text("x" + "ü" * (1 << 18))
    assert read(folder)["a"].kind == "text"


def test_so_many_files_are_read_and_the_others_counted(folder):
    for n in range(1003):
        (folder / f"{n:04}.txt").touch()
    files, more = read_output_files(folder, ReadBudget())
    assert ([file.name for file in files[:2]], len(files), more) == (
        ["0000.txt", "0001.txt"],
        1000,
        3,
    )
    budget = ReadBudget(files=1005)
    assert [len(read_output_files(folder, budget)[0]) for _ in range(3)] == [1003, 2, 0]


def test_folders_are_looked_into_until_they_are_too_deep(folder):
    deep = folder.joinpath(*"d" * 30)
    deep.mkdir(parents=True)
    (deep / "x.txt").touch()
    (folder / "d" / "y.txt").touch()
    found = read(folder)
    assert list(found) == ["d/y.txt", "/".join("d" * 21)]
    assert found["/".join("d" * 21)].remark == "a folder too deep, not followed"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_told(folder):
    (folder / "a.txt").write_text("x")
    (folder / "a.txt").chmod(0)
    (folder / "b").mkdir(mode=0)
    assert {file.remark for file in read(folder).values()} == {"cannot be read: Permission denied"}


def test_only_what_a_browser_runs_nothing_of_gets_an_address(folder):
    for name in ("a b%.csv", "x.html", "x.svg", "x.xyz", "noext", "d.HTML"):
        (folder / name).touch()
    (folder / os.fsdecode(b"bad\xff#?.npz")).touch()
    addresses = {name: file.address for name, file in read(folder).items()}
    assert {name for name, address in addresses.items() if address} == {
        "a b%.csv",
        os.fsdecode(b"bad\xff#?.npz"),
    }
    assert addresses["a b%.csv"] == "a%20b%25.csv"
    assert addresses[os.fsdecode(b"bad\xff#?.npz")] == "bad%FF%23%3F.npz"
