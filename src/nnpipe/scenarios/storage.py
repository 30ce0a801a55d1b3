"""Keep models, data and results in a folder or in S3: list, put, get, remove.

  nnpipe storage list                            what is on each shelf
  nnpipe storage list datasets/digits            the files of a shelf, or of a folder in it
  nnpipe storage put lenet.pt untrained-models   a file under its own name, or under SHELF/NAME
  nnpipe storage put scans datasets/digits       a folder, file by file
  nnpipe storage get untrained-models/lenet.pt   into this folder, or to a path that follows
  nnpipe storage get datasets/digits/ scans      a folder: it ends in /
  nnpipe storage remove test-data/old.npz --yes  without --yes it only tells what would go

The storage is a folder or s3://BUCKET/PREFIX, named by --at or by the variable
NNPIPE_STORAGE; S3 takes pip install 'nnpipe[s3]' and credentials as the aws
command does.  The shelves are

{shelves}

A file is published whole or not at all; put and get replace nothing unless
--replace says so.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nnpipe.core.errors import ConfigError, StorageError
from nnpipe.core.files import write_text
from nnpipe.core.kinds import Kind
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import clean
from nnpipe.report.writers.terminal import to_text
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.storage.folders import to_fetch, to_publish
from nnpipe.storage.names import checked_name
from nnpipe.storage.shelves import SHELVES, shelf_of
from nnpipe.storage.storage import Storage, open_storage
from nnpipe.workflows.progress import byte_bar

_NO_CACHE = "none"


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe storage ACTION ...``."""
    return execute(_storage, argv, "storage")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=tuple(_ACTIONS), help=", ".join(_ACTIONS))
    parser.add_argument("places", metavar="PLACE", nargs="*", help="paths here, and SHELF/NAME there, as shown above")
    parser.add_argument(
        "--at", default=os.environ.get("NNPIPE_STORAGE"), metavar="ADDRESS",
        help="a folder or s3://BUCKET/PREFIX (default: the variable NNPIPE_STORAGE)",
    )  # fmt: skip
    parser.add_argument(
        "--endpoint", metavar="URL", help="server that speaks S3's language (default: AWS_ENDPOINT_URL, else Amazon's)"
    )
    parser.add_argument(
        "--cache", default=os.environ.get("NNPIPE_STORAGE_CACHE"), metavar="FOLDER",
        help="keep copies of what is read here, or 'none' (default: the variable NNPIPE_STORAGE_CACHE, else "
        "~/.cache/nnpipe/storage for S3 and none for a folder)",
    )  # fmt: skip
    parser.add_argument("--replace", action="store_true", help="put, get: replace files that are there")
    parser.add_argument(
        "--max-bytes", type=Kind(int, minimum=1), metavar="N", help="get: refuse a larger file (default: by shelf)"
    )
    parser.add_argument("--json", type=output_file, metavar="OUT.json", help="list: also write the list here")
    parser.add_argument("--yes", action="store_true", help="remove: do it")


def _storage(argv: Sequence[str] | None) -> None:
    width = max(len(shelf.name) for shelf in SHELVES)
    shelves = "\n".join(f"  {shelf.name:<{width}}  {shelf.holds}" for shelf in SHELVES)
    options = parse(argv, "storage", (__doc__ or "").format(shelves=shelves), (), _options).options
    if not options.at:
        raise ConfigError("which storage? give --at ADDRESS or set NNPIPE_STORAGE: a folder or s3://BUCKET/PREFIX")
    storage = open_storage(options.at, endpoint=options.endpoint, cache=_cache(options))
    _ACTIONS[options.action](storage, options)


def _cache(options: argparse.Namespace) -> Path | None:
    if options.cache:
        return None if options.cache == _NO_CACHE else Path(options.cache).expanduser()
    return Path.home() / ".cache" / "nnpipe" / "storage" if options.at.startswith("s3://") else None


def _list(storage: Storage, options: argparse.Namespace) -> None:
    places = _count(options, 0, 1, "list [SHELF[/FOLDER]]")
    shelves = [shelf.name for shelf in SHELVES]
    below = ""
    if places:
        shelf, below = _address(places[0])
        shelves = [shelf]
    found = {shelf: storage.entries(shelf, below.rstrip("/")) for shelf in shelves}
    if places:
        rows = [(clean(e.name), f"{e.size:,}", _when(e.changed)) for e in found[shelves[0]]]
        print(_table(("name", "bytes", "published (UTC)"), rows) if rows else "no files")
    else:
        rows = [(n, f"{len(e):,}", f"{sum(one.size for one in e):,}") for n, e in found.items()]
        print(_table(("shelf", "files", "bytes"), rows))
    if options.json is not None:
        write_text(options.json, json.dumps({s: [vars(e) for e in es] for s, es in found.items()}, indent=2) + "\n")


def _put(storage: Storage, options: argparse.Namespace) -> None:
    source, place = _count(options, 2, 2, "put FILE SHELF[/NAME]")
    path = Path(source)
    shelf, name = _address(place)
    if not name or name.endswith("/"):
        name += path.resolve().name
    if not path.exists():
        raise StorageError(f"{source}: no such file")
    jobs = to_publish(path, checked_name(name)) if path.is_dir() else [(path, checked_name(name))]
    if not options.replace:
        present = storage.entries(shelf, name) if path.is_dir() else filter(None, [storage.find(shelf, name)])
        taken = {entry.name for entry in present}.intersection(name for _, name in jobs)
        if taken:
            raise StorageError(
                f"{storage.store.location}/{shelf}/{min(taken)}: the name is taken; nothing was put, --replace replaces"
            )
    with byte_bar("put", sum(path.stat().st_size for path, _ in jobs)) as advance:
        for path, name in jobs:
            storage.put(shelf, name, path, replace=options.replace, advance=advance)
    print(f"put {_files(len(jobs))} into {storage.store.location}/{shelf}/{clean(name if len(jobs) == 1 else place)}")


def _get(storage: Storage, options: argparse.Namespace) -> None:
    place, *rest = _count(options, 1, 2, "get SHELF/NAME [PATH]")
    shelf, name = _address(place)
    folder = not name or name.endswith("/")
    name = name.rstrip("/")
    own = Path((name or shelf).rpartition("/")[2])
    target = Path(rest[0]) if rest else own
    if folder:
        jobs = to_fetch(storage, shelf, name, target)
    else:
        checked_name(name)
        target = target / own if rest and target.is_dir() else target
        entry = storage.find(shelf, name)
        jobs = [(name, target, entry.size if entry else 0)]
    taken = [path for _, path, _ in jobs if path.exists()]
    if taken and not options.replace:
        raise StorageError(f"{taken[0]}: there is such a file; nothing was fetched, --replace replaces it")
    with byte_bar("get", sum(size for _, _, size in jobs)) as advance:
        for name, path, _ in jobs:
            storage.get(shelf, name, path, limit=options.max_bytes, advance=advance)
    print(f"got {_files(len(jobs))}: {target}")


def _remove(storage: Storage, options: argparse.Namespace) -> None:
    doomed: list[tuple[str, str]] = []
    for place in _count(options, 1, None, "remove SHELF/NAME ..."):
        shelf, name = _address(place)
        if not name or name.endswith("/"):
            doomed += [(shelf, name) for name, _, _ in to_fetch(storage, shelf, name.rstrip("/"), Path())]
        elif storage.find(shelf, name) is None:
            raise StorageError(f"{storage.store.location}/{shelf} has no file {name!r}; nothing was removed")
        else:
            doomed.append((shelf, name))
    for shelf, name in doomed:
        print(f"{'remove' if options.yes else 'would remove'} {shelf}/{clean(name)}")
    if not options.yes:
        raise ConfigError("remove: nothing has been removed; --yes removes")
    for shelf, name in doomed:
        storage.remove(shelf, name)


def _count(options: argparse.Namespace, least: int, most: int | None, usage: str) -> list[str]:
    places: list[str] = options.places
    if len(places) < least or (most is not None and len(places) > most):
        raise ConfigError(f"{options.action}: expected nnpipe storage {usage} (nnpipe storage -h explains)")
    return places


def _address(place: str) -> tuple[str, str]:
    shelf, _, name = place.partition("/")
    return shelf_of(shelf).name, name


def _files(count: int) -> str:
    return "one file" if count == 1 else f"{count:,} files"


def _when(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return to_text(Table(tuple(header), tuple(tuple(Cell(text) for text in row) for row in rows)))


_ACTIONS: dict[str, Callable[[Storage, argparse.Namespace], None]] = {
    "list": _list, "put": _put, "get": _get, "remove": _remove,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
