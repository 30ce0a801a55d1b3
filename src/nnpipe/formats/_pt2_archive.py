"""The reader of the archive of an exported PyTorch program, and a writer of copies that keeps weights out of memory."""

from __future__ import annotations

import io
import struct
import zipfile
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from nnpipe.core.errors import ArtifactError
from nnpipe.formats._pt2_check import MalformedFile
from nnpipe.formats.file_types import file_type_hint

_RAW = ("data/weights/", "data/constants/")
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # APPNOTE.TXT of PKWARE, 4.3.7: lengths of the name and of the extra field
_BLOCK = 1 << 20


@dataclass(frozen=True)
class StoredPart:
    """The position in the file of the raw bytes of a tensor.

    Attributes
    ----------
    start, length
        Position and length of the bytes in the file, in bytes.
    crc
        CRC-32 of the bytes according to the archive.
    """

    start: int
    length: int
    crc: int

    def __len__(self) -> int:
        return self.length


Entry = bytes | StoredPart
"""The content of one entry of an archive."""

_Piece = bytes | tuple[int, int]
"""Bytes, or the start and end of a part of another file."""


def read_entries(path: Path) -> dict[str, Entry]:
    """Return the entries of an archive by name; the outermost folder is removed from the names.

    Raises
    ------
    MalformedFile
        If the file is not an archive, is damaged, compressed or encrypted.
    """
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as handle:
            infos = archive.infolist()
            names = [info.filename for info in infos]
            if len(set(names)) != len(names):
                raise MalformedFile("two entries of the archive have the same name")
            # PyTorch never compresses, so the unpacked entries are no larger than the file.
            if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos):
                hint = file_type_hint(path, "TorchExportModel")
                raise MalformedFile(f"compressed or encrypted, which exported programs never are{hint}")
            size = path.stat().st_size
            if sum(info.file_size for info in infos) > size:
                raise MalformedFile("damaged: its entries together are larger than the file")
            if len({name.partition("/")[0] for name in names}) == 1:
                names = [name.partition("/")[2] for name in names]
            return {
                name: _stored(info, handle, size)
                if name.startswith(_RAW) and not name.endswith(".json")
                else archive.read(info)
                for name, info in zip(names, infos, strict=True)
            }
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        hint = file_type_hint(path, "TorchExportModel")
        raise MalformedFile(
            f"damaged, or not an exported PyTorch program: {error or type(error).__name__}{hint}"
        ) from None


def _stored(info: zipfile.ZipInfo, handle: BinaryIO, size: int) -> StoredPart:
    """Return the position of an entry's content in the file, which is ``size`` bytes long."""
    handle.seek(info.header_offset)
    header = handle.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
        raise zipfile.BadZipFile(f"{info.filename} is not where the archive says it is")
    _, name, extra = _LOCAL_HEADER.unpack(header)
    start = info.header_offset + _LOCAL_HEADER.size + name + extra
    if info.compress_size != info.file_size or start + info.file_size > size:
        raise zipfile.BadZipFile(f"{info.filename} reaches beyond the end of the file")
    return StoredPart(start, info.file_size, info.CRC)


def open_packed(path: Path, entries: Mapping[str, Entry]) -> BinaryIO:
    """Return a readable archive of these entries; the raw tensors are read from ``path`` when they are needed.

    Raises
    ------
    ArtifactError
        If raw tensors are damaged, or if the file has been replaced since the entries were read.
    """
    try:
        with ExitStack() as stack:
            handle = stack.enter_context(open(path, "rb"))
            archive = _PackedArchive(handle, _packed(handle, entries))
            stack.pop_all()  # the archive closes the file
            return cast("BinaryIO", archive)
    except (zipfile.BadZipFile, OSError) as error:
        raise ArtifactError(f"{path}: damaged, or replaced while it was read: {error}") from None


def _packed(handle: BinaryIO, entries: Mapping[str, Entry]) -> list[_Piece]:
    """Return the pieces of a zip archive of these entries, after checking the CRC-32 of every raw tensor."""
    pieces = _Pieces()
    with zipfile.ZipFile(cast("BinaryIO", pieces), "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo("archive/" + name)
            info.file_size = len(content)  # decides whether lengths need 64 bits
            with archive.open(info, "w") as entry:
                if isinstance(content, bytes):
                    entry.write(content)
                    continue
                handle.seek(content.start)
                left = content.length
                while left and (block := handle.read(min(left, _BLOCK))):
                    pieces.source = content.start + content.length - left
                    entry.write(block)
                    pieces.source = None
                    left -= len(block)
            if content.crc != info.CRC:
                raise zipfile.BadZipFile(f"Bad CRC-32 for {name}")
    return pieces.found


class _Pieces:
    """A file object that collects the written bytes as pieces; bytes copied from another file are kept as a position.

    It cannot seek, so ``zipfile`` does not overwrite earlier bytes.
    """

    def __init__(self) -> None:
        self.found: list[_Piece] = []
        self.source: int | None = None  # the position of the next bytes in the other file

    def write(self, data: bytes) -> int:
        last = self.found[-1] if self.found else None
        if self.source is None:
            self.found.append(bytes(data))
        elif isinstance(last, tuple) and last[1] == self.source:
            self.found[-1] = (last[0], self.source + len(data))
        else:
            self.found.append((self.source, self.source + len(data)))
        return len(data)

    def flush(self) -> None:
        """Do nothing, because nothing is buffered."""


class _PackedArchive(io.RawIOBase):
    """A read-only file that consists of bytes and of parts of a source file, which it closes."""

    def __init__(self, source: BinaryIO, pieces: Sequence[_Piece]) -> None:
        self._source, self._pieces = source, pieces
        self._starts: list[int] = []
        self._size = self._at = 0
        for piece in pieces:
            self._starts.append(self._size)
            self._size += len(piece) if isinstance(piece, bytes) else piece[1] - piece[0]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer and return the number of bytes read, which is less than its size only at the file's end."""
        wanted = memoryview(buffer).cast("B")
        done = 0
        while done < len(wanted) and self._at < self._size:
            number = bisect_right(self._starts, self._at) - 1
            piece, within = self._pieces[number], self._at - self._starts[number]
            rest = wanted[done:]
            if isinstance(piece, bytes):
                part = piece[within : within + len(rest)]
                rest[: len(part)] = part
                got = len(part)
            else:
                self._source.seek(piece[0] + within)
                got = self._source.readinto(rest[: piece[1] - piece[0] - within])  # type: ignore[attr-defined]
                if not got:
                    raise OSError("the file became shorter while it was read")
            done += got
            self._at += got
        return done

    def close(self) -> None:
        self._source.close()
        super().close()
