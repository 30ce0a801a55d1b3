"""Explain a class (its arguments, formats and requirements), or describe a model file."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnpipe.core.arguments import encode_argument
from nnpipe.core.component import is_overridden
from nnpipe.core.discoverable import Discoverable, Option
from nnpipe.core.registry import FAMILIES, PARTS, find
from nnpipe.core.task import Task
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.workflows.candidates.model_files import find_file_wrapper
from nnpipe.workflows.file_facts import describe_file

_PARAMETERS = re.compile(r"\n+Parameters\n-+\n.*?(?=\n\n[A-Z]\w+\n-+\n|\Z)", re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe info CLASS`` or ``nnpipe info FILE``."""
    return execute(_show_info, argv, "info")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "component",
        metavar="CLASS",
        help="dotted path or name of a class that nnpipe list shows, or a model file",
    )


def _show_info(argv: Sequence[str] | None) -> None:
    name = parse(argv, "info", __doc__ or "", (), _add_options).options.component
    print(
        describe_file(Path(name)) if find_file_wrapper(name) else describe(find(name, Discoverable))
    )


def describe(cls: type[Discoverable]) -> str:
    """Return the description of a class that is found by name."""
    group: Mapping[str, type[Discoverable]] = (
        FAMILIES if FAMILIES.find_home_families(cls) else PARTS
    )
    family, base = next((f, b) for f, b in group.items() if issubclass(cls, b))
    missing, absent = cls.missing(), cls.missing_tools()
    programs = "".join(f", {tool.name}" for tool in cls.needs_tools)
    installed = "yes" if not missing else f"no: pip install {cls.install or ' '.join(missing)!r}"
    installed += "".join(f"; but not {tool.describe_missing()}" for tool in absent)
    options = cls.options()
    text = inspect.cleandoc(cls.__doc__ or cls.summary())
    lines = [
        f"{cls.get_dotted_path()}  ({family})",
        "",
        (_PARAMETERS.sub("", text) if options else text) if cls.summary() else "(no description)",
        "",
        f"needs      "
        f"{', '.join(cls.requires).replace('|', ' or ') or 'nothing beyond nnpipe'}{programs}",
        f"installed  {installed}",
    ]
    for attribute in ("framework", "frameworks", "exports", "accepts", "produces", "native_code"):
        value = getattr(cls, attribute, None)
        if value:
            lines.append(f"{attribute:<11}{value if isinstance(value, str) else ', '.join(value)}")
    offered = [name for name in _list_optional_methods(base) if is_overridden(cls, name, base)]
    if offered:
        lines.append(f"offers     {', '.join(offered)}")
    if issubclass(cls, Task):
        lines += [
            "",
            "metrics:",
            *(f"  {metric.name}\n      {metric.meaning}" for metric in cls().metrics),
        ]
    lines += ["", "arguments:" if options else "arguments: none"]
    lines += [_describe_option(option) for option in options]
    return "\n".join(lines)


def _describe_option(option: Option) -> str:
    default = "required" if option.required else f"default {encode_argument(option.default)!r}"
    told = f"  {option.name}  ({', '.join(filter(None, (option.kind, default)))})"
    return f"{told}\n      {option.help}" if option.help else told


def _list_optional_methods(base: type[Discoverable]) -> list[str]:
    return [
        name
        for name, member in vars(base).items()
        if inspect.isfunction(member)
        and not name.startswith("_")
        and name not in getattr(base, "__abstractmethods__", ())
    ]


if __name__ == "__main__":
    sys.exit(main())
