"""Bring into the pages what comes from the code, so that they cannot drift apart.

    python docs/refresh.py            rewrites the pages
    python docs/refresh.py --check    only says which are out of date

A fenced block whose first line ends in ``source=PATH`` or ``source=PATH#NAME``
holds that file, or that class, function or method of it; ``NAME:head`` is a
class down to its first method.  What stands between ``<!-- table: FAMILY -->``
and ``<!-- end -->`` is the table of a family's components; with ``overview``
for a family, that of all families.

``docs/pipeline.schema.json``, for editors of pipeline files, is written too.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import textwrap
from pathlib import Path

from nnpipe.core.component import Component
from nnpipe.core.registry import FAMILIES, components
from nnpipe.scenarios._pipelineschema import schema

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "docs" / "pipeline.schema.json"
_SOURCE = re.compile(r"^(```\w+ source=(\S+))\n.*?^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^(<!-- table: (\w+) -->)\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Find all pages: the README and those in ``docs``."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def refreshed(text: str) -> str:
    """Give a page's text with its sources and tables as the code has them now."""
    text = _SOURCE.sub(lambda found: f"{found[1]}\n{excerpt(found[2])}```", text)
    return _TABLE.sub(lambda found: f"{found[1]}\n{table(found[2])}<!-- end -->", text)


def excerpt(reference: str) -> str:
    """Give the part of a file that ``PATH#NAME`` refers to, or all of it."""
    path, _, name = reference.partition("#")
    text = (ROOT / path).read_text("utf-8")
    if not name:
        return text
    name, _, part = name.partition(":")
    node: ast.AST = ast.parse(text)
    for wanted in name.split("."):
        inner = [child for child in getattr(node, "body", []) if getattr(child, "name", None) == wanted]
        if not inner:
            raise SystemExit(f"{path} has no {name}")
        node = inner[0]
    assert isinstance(node, (ast.ClassDef, ast.FunctionDef))
    first, last = _first_line(node), node.end_lineno
    if part == "head":
        last = min(_first_line(child) for child in node.body if isinstance(child, ast.FunctionDef)) - 1
    return textwrap.dedent("".join(text.splitlines(keepends=True)[first - 1 : last])).rstrip("\n") + "\n"


def table(family: str) -> str:
    """Give a family's components that come with nnpipe as a Markdown table."""
    if family == "overview":
        rows = ["| family | classes |", "| --- | --- |"]
        for name in FAMILIES:
            if names := ", ".join(f"`{cls.__name__}`" for cls in _own(name)):
                rows.append(f"| {name} | {names} |")
    else:
        rows = ["| class | what it is | needs |", "| --- | --- | --- |"]
        for cls in _own(family):
            rows.append(f"| `{cls.__name__}` | {cls.summary().replace('|', chr(92) + '|')} | {_needs(cls)} |")
    return "\n".join(rows) + "\n"


def _own(family: str) -> list[type[Component]]:
    return [cls for cls in components(FAMILIES[family]) if cls.__module__.startswith("nnpipe.")]


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])


def _needs(cls: type[Component]) -> str:
    if not cls.requires:
        return "–"
    return f"`{cls.install or ' '.join(need.split('|')[0] for need in cls.requires)}`"


def contents() -> dict[Path, str]:
    """Give every file that comes from the code, wholly or in part, as it should be."""
    found = {page: refreshed(page.read_text("utf-8")) for page in pages()}
    return found | {SCHEMA: json.dumps(schema(of_plugins=False), indent=1) + "\n"}


def main() -> int:
    """Refresh the pages, or with ``--check`` name those that are out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    stale = False
    for page, new in contents().items():
        if not page.is_file() or page.read_text("utf-8") != new:
            stale = True
            sys.stdout.write(f"{page.relative_to(ROOT)} {'is out of date' if check else 'refreshed'}\n")
            if not check:
                page.write_text(new, "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
