"""The reader of the archive of an exported PyTorch program, and a writer of copies that keeps
weights out of memory.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError
from nnpipe.formats.file_types import describe_file_type

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN = re.compile(r"[A-Za-z0-9_.+-]*")
_OPERATOR = re.compile(r"torch\.ops\.(?:aten|quantized_decomposed)\.([A-Za-z0-9_]+)\.[A-Za-z0-9_]+")
_ARITHMETIC = frozenset(
    "_operator.getitem _operator.add _operator.sub _operator.mul _operator.floordiv "
    "_operator.truediv _operator.mod _operator.neg _operator.eq _operator.ne _operator.lt "
    "_operator.le _operator.gt _operator.ge _operator.and_ _operator.or_ _operator.not_ "
    "torch.sym_int torch.sym_float torch.sym_not torch.sym_max torch.sym_min "
    "torch.sym_ite torch.sym_sum math.floor math.ceil math.trunc".split()
)
# Operators that reach beyond tensors: to files, to the screen, or to foreign memory.  Of the
# operators named like Python's special methods only the bitwise ones are allowed: they compute on
# tensors.
_REACHING_OUT = re.compile(
    r"from_file|save|load|_print|set_|set_data|_test_.*|__(?!i?(?:and|or|xor|lshift|rshift)__$).*"
)
# PyTorch writes the lengths of axes as sympy expressions and evaluates them when it loads the file.
_LENGTH = re.compile(
    r"(?:Symbol\('[a-z]{1,4}\d{1,9}'|(?:positive|nonnegative|integer)=True|-?\d{1,19}|[(), ]"
    r"|Integer|Rational|Add|Mul|Max|Min|Mod|PythonMod|ModularIndexing|FloorDiv|CeilDiv|CleanDiv"
    r"|Pow(?=\(Symbol\([^()]*\), Integer\(\d\)\)))*"
)
_LONGEST_LENGTH = 500
_FORBIDDEN = frozenset({"as_graph", "as_operator", "as_custom_obj", "as_string_to_argument"})
_FREE_TEXT = frozenset({"as_string", "as_strings"})  # passed on as values, never as source code
_NAMES = frozenset({"name", "as_name"})


class MalformedFile(Exception):
    """An error that says what is wrong with a file, without the file's name."""


def check_target(target: Any) -> None:
    """Raise :class:`MalformedFile` unless ``target`` is an operator on tensors or arithmetic on
    lengths.
    """
    found = _OPERATOR.fullmatch(str(target))
    if (found and not _REACHING_OUT.fullmatch(found[1])) or target in _ARITHMETIC:
        return
    raise MalformedFile(
        f"calls {str(target)[:80]!r}, which is not an operator on tensors alone; it is not loaded"
    )


def check_strings(value: Any, key: str = "") -> None:
    """Raise :class:`MalformedFile` for a string that PyTorch would not write and that may end up
    in source code.
    """
    if isinstance(value, Mapping):
        for inner, part in value.items():
            if inner in _FORBIDDEN:
                raise MalformedFile(f"uses {inner}, which is more than operators on tensors")
            if not PLAIN.fullmatch(inner):
                raise MalformedFile(f"holds the name {inner[:80]!r}, which PyTorch would not give")
            check_strings(part, inner)
    elif isinstance(value, (list, tuple)):
        for part in value:
            check_strings(part, key)
    elif isinstance(value, str) and key not in _FREE_TEXT:
        if key == "expr_str":
            fine = len(value) <= _LONGEST_LENGTH and _LENGTH.fullmatch(value)
        elif key in _NAMES:
            fine = IDENTIFIER.fullmatch(value)
        else:
            fine = PLAIN.fullmatch(value)
        if not fine:
            raise MalformedFile(f"holds {value[:80]!r} as {key}, which PyTorch would not write")


_RAW = ("data/weights/", "data/constants/")
# APPNOTE.TXT of PKWARE, 4.3.7: lengths of the name and of the extra field
_LOCAL_HEADER = struct.Struct("<4s22xHH")
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
            if any(
                info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos
            ):
                hint = describe_file_type(path, "TorchExportModel")
                raise MalformedFile(
                    f"compressed or encrypted, which exported programs never are{hint}"
                )
            size = path.stat().st_size
            if sum(info.file_size for info in infos) > size:
                raise MalformedFile("damaged: its entries together are larger than the file")
            if len({name.partition("/")[0] for name in names}) == 1:
                names = [name.partition("/")[2] for name in names]
            return {
                name: _find_entry(info, handle, size)
                if name.startswith(_RAW) and not name.endswith(".json")
                else archive.read(info)
                for name, info in zip(names, infos, strict=True)
            }
    except (
        zipfile.BadZipFile,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
        ValueError,
    ) as error:
        hint = describe_file_type(path, "TorchExportModel")
        raise MalformedFile(
            f"damaged, or not an exported PyTorch program: {error or type(error).__name__}{hint}"
        ) from None


def _find_entry(info: zipfile.ZipInfo, handle: BinaryIO, size: int) -> StoredPart:
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
    """Return a readable archive of these entries; the raw tensors are read from ``path`` when they
    are needed.

    Raises
    ------
    ArtifactError
        If raw tensors are damaged, or if the file has been replaced since the entries were read.
    """
    try:
        with ExitStack() as stack:
            handle = stack.enter_context(open(path, "rb"))
            archive = _PackedArchive(handle, _pack_entries(handle, entries))
            stack.pop_all()  # the archive closes the file
            return cast("BinaryIO", archive)
    except (zipfile.BadZipFile, OSError) as error:
        raise ArtifactError(f"{path}: damaged, or replaced while it was read: {error}") from None


def _pack_entries(handle: BinaryIO, entries: Mapping[str, Entry]) -> list[_Piece]:
    """Return the pieces of a zip archive of these entries, after checking the CRC-32 of every
    raw tensor.
    """
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
    """A file object that collects the written bytes as pieces; bytes copied from another file are
    kept as a position.

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
        self._at = max(
            0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        )
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer and return the number of bytes read, which is less than its size only at
        the file's end.
        """
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


# ScalarType in torch/_export/serde/schema.py.
_BFLOAT16, _FLOAT32 = 13, 7
_OF_BITS = ("torch.ops.aten.view.dtype", "torch.ops.aten.view_copy.dtype")


def has_bfloat16(program: Mapping[str, Any]) -> bool:
    """Return whether any tensor of a program's graph, a weight or an intermediate value, is
    bfloat16.
    """
    values = program["graph_module"]["graph"]["tensor_values"]
    return any(meta["dtype"] == _BFLOAT16 for meta in values.values())


def convert_to_float32(path: Path, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the entries of a checked program with float32 for bfloat16, in weights, values and
    casts.

    Every bfloat16 number is a float32 number with 16 more bits of zeros, so the weights are
    unchanged; results are rounded less than before.

    Raises
    ------
    ArtifactError
        If the program reads the bits of numbers, or its weights are damaged.
    """
    found = dict(entries)
    for name, content in entries.items():
        if name.startswith("models/") and isinstance(content, bytes):
            program = parse_json(content)
            if any(
                node["target"] in _OF_BITS for node in program["graph_module"]["graph"]["nodes"]
            ):
                raise ArtifactError(
                    f"{path}: reads the bits of numbers (view.dtype); it has no form in float32"
                )
            found[name] = json.dumps(_replace_bfloat16(program)).encode()
        elif name.endswith("_config.json") and isinstance(content, bytes):
            found |= _convert_tensors(path, entries, name, parse_json(content))
    return found


def _replace_bfloat16(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _FLOAT32
            if key in ("dtype", "as_scalar_type") and part == _BFLOAT16
            else _replace_bfloat16(part)
            for key, part in value.items()
        }
    return [_replace_bfloat16(part) for part in value] if isinstance(value, list) else value


def _convert_tensors(
    path: Path, entries: Mapping[str, Entry], name: str, table: Any
) -> dict[str, Entry]:
    """Return a table of weights or constants with the tensors that it names."""
    folder = name.rpartition("/")[0] + "/"
    types: dict[str, set[int]] = {}
    for entry in table["config"].values():
        types.setdefault(folder + entry["path_name"], set()).add(entry["tensor_meta"]["dtype"])
    found: dict[str, Entry] = {name: json.dumps(_replace_bfloat16(table)).encode()}
    for file, dtypes in types.items():
        if _BFLOAT16 not in dtypes:
            continue
        if len(dtypes) > 1:
            raise ArtifactError(
                f"{path}: weights of several element types share memory; it has no form in float32"
            )
        stored = np.frombuffer(_read_bytes(path, entries[file]), "<u2")
        found[file] = (stored.astype("<u4") << np.uint32(16)).tobytes()
    return found


def _read_bytes(path: Path, entry: Entry) -> bytes:
    if not isinstance(entry, StoredPart):
        return entry
    try:
        with path.open("rb") as stream:
            stream.seek(entry.start)
            content = stream.read(entry.length)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot read it: {error.strerror or error}") from None
    if zlib.crc32(content) != entry.crc or len(content) % 2:
        raise ArtifactError(f"{path}: damaged, or replaced while it was read")
    return content
