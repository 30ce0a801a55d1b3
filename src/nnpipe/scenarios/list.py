"""Show which data sets, models, compilers, runtimes, tasks and other classes there are, and
which are ready to use.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.registry import FAMILIES, PARTS, components, list_broken_plugins
from nnpipe.scenarios._cli.command import execute, parse

_ALL = (*FAMILIES, *PARTS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe list [FAMILY ...]``."""
    return execute(_list, argv, "list")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "families",
        metavar="FAMILY",
        nargs="*",
        help=f"what to list: {', '.join(_ALL)} (default: all)",
    )


def _list(argv: Sequence[str] | None) -> None:
    options = parse(argv, "list", __doc__ or "", (), _add_options).options
    for name in options.families:
        if name not in _ALL:
            from nnpipe.core.errors import ConfigError
            from nnpipe.core.messages import suggest_name

            raise ConfigError(
                f"there is no family {name!r}{suggest_name(name, _ALL)}; known: {', '.join(_ALL)}"
            )
    for family in options.families or _ALL:
        base: type[Discoverable] = FAMILIES[family] if family in FAMILIES else PARTS[family]
        found = components(base)
        if not found:
            continue
        print(f"{family}:")
        for cls in found:
            lacking = [name.replace("|", " or ") for name in cls.missing()]
            lacking += [f"{tool.name} ({tool.install})" for tool in cls.missing_tools()]
            state = f"needs {', '.join(lacking)}" if lacking else "ready"
            called = "" if cls.short_name() == cls.__name__ else f"  ({cls.short_name()})"
            print(f"  {cls.get_dotted_path()}{called}\n      {cls.summary()} [{state}]")
        print()
    for plugin in list_broken_plugins():
        print(f"plugin {plugin.module} cannot be imported: {plugin.cause}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
