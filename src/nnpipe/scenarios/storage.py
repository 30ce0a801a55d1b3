"""Keep models, data and results in a folder or in S3: list, put, get, remove.

  nnpipe storage list                            what is on each shelf
  nnpipe storage list datasets/digits            the files of a shelf, or of a folder in it
  nnpipe storage put lenet.pt untrained-models   a file under its own name, or under SHELF/NAME
  nnpipe storage put scans datasets/digits       a folder, file by file
  nnpipe storage get untrained-models/lenet.pt   into this folder, or to a path that follows
  nnpipe storage get datasets/digits/ scans      a folder: it ends in /
  nnpipe storage remove test-data/old.npz --yes  without --yes it only lists what would be removed

The storage is a folder or s3://BUCKET/PREFIX, named by --at or by the variable
NNPIPE_STORAGE; S3 needs pip install 'nnpipe[s3]' and credentials, as for the aws
command.  The shelves are

{shelves}

A file is published atomically; put and get replace files only with --replace.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nnpipe.core.arguments import Kind
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import clean
from nnpipe.report.writers.tables import to_text
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.storage.storage import Storage, open_storage
from nnpipe.storage.store import SHELVES, Entry
from nnpipe.storage.transfers import get, put, remove, split_address
from nnpipe.workflows.progress import show_byte_bar

_NO_CACHE = "none"


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe storage ACTION ...``."""
    return execute(_run_action, argv, "storage")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", metavar="ACTION", choices=tuple(_ACTIONS), help=", ".join(_ACTIONS)
    )
    parser.add_argument(
        "places",
        metavar="PLACE",
        nargs="*",
        help="paths here, and SHELF/NAME there, as shown above",
    )
    parser.add_argument(
        "--at",
        default=os.environ.get("NNPIPE_STORAGE"),
        metavar="ADDRESS",
        help="a folder or s3://BUCKET/PREFIX (default: the variable NNPIPE_STORAGE)",
    )
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="server with S3's interface (default: AWS_ENDPOINT_URL, else Amazon's)",
    )
    parser.add_argument(
        "--cache",
        default=os.environ.get("NNPIPE_STORAGE_CACHE"),
        metavar="FOLDER",
        help="keep copies of what is read here, or 'none' (default: the variable "
        "NNPIPE_STORAGE_CACHE, else ~/.cache/nnpipe/storage for S3 and none for a folder)",
    )
    parser.add_argument(
        "--replace", action="store_true", help="put, get: replace files that are there"
    )
    parser.add_argument(
        "--max-bytes",
        type=Kind(int, minimum=1),
        metavar="N",
        help="get: refuse a larger file (default: by shelf)",
    )
    parser.add_argument(
        "--json", type=output_file, metavar="OUT.json", help="list: also write the list here"
    )
    parser.add_argument("--yes", action="store_true", help="remove: do it")


def _run_action(argv: Sequence[str] | None) -> None:
    width = max(len(shelf.name) for shelf in SHELVES)
    shelves = "\n".join(f"  {shelf.name:<{width}}  {shelf.holds}" for shelf in SHELVES)
    options = parse(
        argv, "storage", (__doc__ or "").format(shelves=shelves), (), _add_options
    ).options
    if not options.at:
        raise ConfigError(
            "which storage? give --at ADDRESS or set NNPIPE_STORAGE: a folder or s3://BUCKET/PREFIX"
        )
    storage = open_storage(options.at, endpoint=options.endpoint, cache=_get_cache_folder(options))
    _ACTIONS[options.action](storage, options)


def _get_cache_folder(options: argparse.Namespace) -> Path | None:
    if options.cache:
        return None if options.cache == _NO_CACHE else Path(options.cache).expanduser()
    return Path.home() / ".cache" / "nnpipe" / "storage" if options.at.startswith("s3://") else None


def _list(storage: Storage, options: argparse.Namespace) -> None:
    places = _require_arguments(options, 0, 1, "list [SHELF[/FOLDER]]")
    chosen = [split_address(place) for place in places] or [(shelf.name, "") for shelf in SHELVES]
    found = {shelf: storage.entries(shelf, below.rstrip("/")) for shelf, below in chosen}
    print(_format_files_table(found[chosen[0][0]]) if places else _format_shelves_table(found))
    if options.json is not None:
        write_text(
            options.json,
            json.dumps({s: [vars(e) for e in es] for s, es in found.items()}, indent=2) + "\n",
        )


def _put(storage: Storage, options: argparse.Namespace) -> None:
    source, place = _require_arguments(options, 2, 2, "put FILE SHELF[/NAME]")
    names = put(storage, source, place, replace=options.replace, progress=show_byte_bar)
    print(
        f"put {_format_file_count(names)} into "
        f"{storage.store.location}/{clean(names[0] if len(names) == 1 else place)}"
    )


def _get(storage: Storage, options: argparse.Namespace) -> None:
    place, *target = _require_arguments(options, 1, 2, "get SHELF/NAME [PATH]")
    paths = get(
        storage,
        place,
        *target,
        replace=options.replace,
        limit=options.max_bytes,
        progress=show_byte_bar,
    )
    print(
        f"got {_format_file_count(paths)}: "
        f"{paths[0] if len(paths) == 1 else os.path.commonpath(paths)}"
    )


def _remove(storage: Storage, options: argparse.Namespace) -> None:
    places = _require_arguments(options, 1, None, "remove SHELF/NAME ...")
    for address in remove(storage, places, dry_run=not options.yes):
        print(f"{'remove' if options.yes else 'would remove'} {clean(address)}")
    if not options.yes:
        raise ConfigError("remove: nothing has been removed; --yes removes")


def _require_arguments(
    options: argparse.Namespace, least: int, most: int | None, usage: str
) -> list[str]:
    places: list[str] = options.places
    if len(places) < least or (most is not None and len(places) > most):
        raise ConfigError(
            f"{options.action}: expected nnpipe storage {usage} (nnpipe storage -h explains)"
        )
    return places


def _format_file_count(found: Sequence[object]) -> str:
    return "one file" if len(found) == 1 else f"{len(found):,} files"


_ACTIONS: dict[str, Callable[[Storage, argparse.Namespace], None]] = {
    "list": _list,
    "put": _put,
    "get": _get,
    "remove": _remove,
}


def _format_shelves_table(entries: Mapping[str, Sequence[Entry]]) -> str:
    """Return a table of the number of files and bytes on each shelf."""
    rows = [
        (name, f"{len(found):,}", f"{sum(each.size for each in found):,}")
        for name, found in entries.items()
    ]
    return _format_table(("shelf", "files", "bytes"), rows)


def _format_files_table(entries: Sequence[Entry]) -> str:
    """Return a table of files with their sizes and times of publication, or a line if there are
    none.
    """
    if not entries:
        return "no files"
    rows = [(clean(each.name), f"{each.size:,}", _format_time(each.changed)) for each in entries]
    return _format_table(("name", "bytes", "published (UTC)"), rows)


def _format_time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(
        "%Y-%m-%d %H:%M:%S"
    )


def _format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return to_text(Table(tuple(header), tuple(tuple(Cell(text) for text in row) for row in rows)))


if __name__ == "__main__":
    sys.exit(main())
