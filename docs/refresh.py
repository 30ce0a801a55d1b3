"""Bring into the pages what comes from the code, so that they cannot drift apart.

    python docs/refresh.py            rewrites the pages
    python docs/refresh.py --check    only says which are out of date

A fenced block whose first line ends in ``source=PATH`` or ``source=PATH#NAME`` holds that file, or
that class, function or method of it; ``NAME:head`` is a class down to its first method.  What
stands between ``<!-- table: FAMILY -->`` and ``<!-- end -->`` is the table of a family's
components, or of all callbacks, layers or tasks. ``<!-- protocol: NAME -->`` does the same for the
tables of the wire protocol: see ``PROTOCOL`` for the names; ``<!-- quantities -->`` for what is
measured.

``docs/*.schema.json``, for editors of files of devices, pipelines, searches and sweeps, and the
headers for targets in C, ``nnpipe_protocol.h`` and ``nnpipe_rules.h`` in
``src/nnpipe/protocols/target_c``, are written too."""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import c_headers

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.registry import FAMILIES, PARTS, components
from nnpipe.core.task import list_installed_tasks
from nnpipe.measuring.quantities import QUANTITIES, quality_of
from nnpipe.protocols.conversation.frame import CHECKS, CODES, HEADER_FIELDS, FrameKind, HeaderField
from nnpipe.protocols.conversation.handshake import HELLO_FIELDS, WELCOME_FIELDS
from nnpipe.protocols.conversation.packets import PACKET_FIELDS, TYPES
from nnpipe.protocols.conversation.payloads import (
    ERROR_FIELDS,
    LOG_FIELDS,
    MODEL_FIELDS,
    ROW_FIELDS,
    STAMP_FIELDS,
    STATS_FIELDS,
)
from nnpipe.protocols.conversation.rules import (
    AGREED_BOUNDS,
    EXTENSIONS,
    FIXED_BOUNDS,
    RULES,
    STATES,
    Bound,
    Rule,
)
from nnpipe.workflows.devices import schema as devices_schema
from nnpipe.workflows.pipeline import schema as pipeline_schema
from nnpipe.workflows.search import file as search_file
from nnpipe.workflows.sweep import schema as sweep_schema

ROOT = Path(__file__).resolve().parents[1]
SCHEMAS = {
    ROOT / "docs" / "devices.schema.json": devices_schema.build_devices_schema,
    ROOT / "docs" / "pipeline.schema.json": pipeline_schema.build_pipeline_schema,
    ROOT / "docs" / "search.schema.json": lambda of_plugins: search_file.build_search_schema(),
    ROOT / "docs" / "sweep.schema.json": sweep_schema.build_sweep_schema,
}
TARGET_C = ROOT / "src" / "nnpipe" / "protocols" / "target_c"
_COUNTING = bytes(range(251)) * 4000
VECTORS = {
    "`123456789` in ASCII": b"123456789",
    "byte *i* is *i* mod 251": _COUNTING[:8192],
    "the same, 240 bytes": _COUNTING[:240],
    "the same, 241 bytes": _COUNTING[:241],
    "the same, a million": _COUNTING[:1_000_000],
}
"""Payloads to test a check with, by what the page says of them."""
_SOURCE = re.compile(r"^(```\w+ source=(\S+))\n.*?^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^(<!-- table: (\w+) -->)\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
_PROTOCOL = re.compile(
    r"^(<!-- protocol: ([\w-]+) -->)\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
_QUANTITIES = re.compile(r"^(<!-- quantities -->)\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Find all pages: the README and those in ``docs``."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def refreshed(text: str) -> str:
    """Give a page's text with its sources and tables as the code has them now."""
    text = _SOURCE.sub(lambda found: f"{found[1]}\n{excerpt(found[2])}```", text)
    text = _TABLE.sub(lambda found: f"{found[1]}\n{table(found[2])}<!-- end -->", text)
    text = _QUANTITIES.sub(lambda found: f"{found[1]}\n{quantities()}<!-- end -->", text)
    return _PROTOCOL.sub(lambda found: f"{found[1]}\n{protocol(found[2])}<!-- end -->", text)


def quantities() -> str:
    """Give the table of all that is measured."""
    rows = [
        "| name | on pages | unit | what it is | computed from |",
        "| --- | --- | --- | --- | --- |",
    ]
    of_tasks = [quality_of(metric) for task in list_installed_tasks() for metric in task.metrics]
    for each in dict.fromkeys((*QUANTITIES.values(), *of_tasks)):  # tasks may share a metric
        judged = "" if not each.judged else "; constraints may name it"
        rows.append(
            f"| `{each.name}` | {each.title} | {each.unit} | {each.meaning}{judged} | "
            f"{each.computed_from} |"
        )
    return "\n".join(rows) + "\n"


def excerpt(reference: str) -> str:
    """Give the part of a file that ``PATH#NAME`` refers to, or all of it."""
    path, _, name = reference.partition("#")
    text = (ROOT / path).read_text("utf-8")
    if not name:
        return text
    name, _, part = name.partition(":")
    node: ast.AST = ast.parse(text)
    for wanted in name.split("."):
        inner = [
            child for child in getattr(node, "body", []) if getattr(child, "name", None) == wanted
        ]
        if not inner:
            raise SystemExit(f"{path} has no {name}")
        node = inner[0]
    assert isinstance(node, (ast.ClassDef, ast.FunctionDef))
    first, last = _first_line(node), node.end_lineno
    if part == "head":
        last = (
            min(_first_line(child) for child in node.body if isinstance(child, ast.FunctionDef)) - 1
        )
    return (
        textwrap.dedent("".join(text.splitlines(keepends=True)[first - 1 : last])).rstrip("\n")
        + "\n"
    )


def table(family: str) -> str:
    """Give a family's components that come with nnpipe as a Markdown table."""
    if family in PARTS:
        rows = ["| name | what it is | options | needs |", "| --- | --- | --- | --- |"]
        for cls in _own(family):
            options = ", ".join(f"`{option.name}`" for option in cls.options()) or "–"
            rows.append(
                f"| `{cls.short_name()}` | {_in_cell(cls.summary())} | {options} | {_needs(cls)} |"
            )
    else:
        rows = ["| class | what it is | needs |", "| --- | --- | --- |"]
        for cls in _own(family):
            rows.append(f"| `{cls.__name__}` | {_in_cell(cls.summary())} | {_needs(cls)} |")
    return "\n".join(rows) + "\n"


def _in_cell(text: str) -> str:
    return text.replace("|", chr(92) + "|")


def protocol(name: str) -> str:
    """Give a table of the wire protocol."""
    if name not in PROTOCOL:
        raise SystemExit(f"the protocol has no table {name}; there are: {', '.join(PROTOCOL)}")
    return PROTOCOL[name]()


def _rows(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def _fields(fields: Sequence[HeaderField]) -> str:
    rows, at = [], 0
    for field in fields:
        rows.append(
            (
                at,
                field.size,
                f"`{field.name}`",
                c_headers.ctype(field)[0] + c_headers.ctype(field)[1],
                field.meaning,
            )
        )
        at += field.size
    return _rows(("offset", "bytes", "field", "type", "meaning"), rows)


def _vectors() -> str:
    rows = []
    for name, data in VECTORS.items():
        rows.append((name, f"{len(data):,}", *(f"`{check.of([data]):016x}`" for check in CHECKS)))
    return _rows(("payload", "bytes", *(f"`{check.name}`" for check in CHECKS)), rows)


def _conversations() -> str:
    rows = []
    for path in sorted((ROOT / "tests" / "data" / "conversations").glob("*.txt")):
        rows.append(
            (
                f"`{path.name}`",
                path.read_text("utf-8").partition("\n")[0].removeprefix("# ").rstrip("."),
            )
        )
    return _rows(("file", "shows"), rows)


def _kinds() -> str:
    rows = []
    for kind in FrameKind:
        rules = [rule for rule in RULES if rule.kind is kind]
        sender = "host" if rules else "target"
        rows.append((kind.value, f"`{kind.name}`", sender))
    return _rows(("number", "kind", "sent by"), rows)


def _rules() -> str:
    rows = [
        (
            f"`{rule.kind.name}`"
            + (f" {rule.step_name} (flags {int(rule.step)})" if rule.step_name else "")
            + (f" (extension `{rule.extension.name}`)" if rule.extension else ""),
            ", ".join(state.value for state in rule.states),
            _bounded(rule.asks, rule.ask_bound),
            _bounded(rule.answers, rule.answer_bound),
            _next(rule),
            "yes" if rule.pipelined else "no",
        )
        for rule in RULES
    ]
    return _rows(
        (
            "request",
            "allowed in",
            "payload",
            "payload of the OK",
            "state after OK / ERROR",
            "ahead",
        ),
        rows,
    )


def _bounded(what: str, bound: Bound) -> str:
    return what if bound is Bound.NOTHING else f"{what} (*{bound.value}*)"


def _next(rule: Rule) -> str:
    return " / ".join(state.value if state else "same" for state in (rule.on_ok, rule.on_error))


def _bounds() -> str:
    sizes = {bound: f"{size:,} bytes" for bound, size in FIXED_BOUNDS.items()} | AGREED_BOUNDS
    return _rows(("bound", "most"), [(bound.value, sizes[bound]) for bound in Bound])


PROTOCOL: dict[str, Callable[[], str]] = {
    "header": lambda: _fields(HEADER_FIELDS),
    "header-in-c": lambda: f"```c\n{c_headers.frame()}```\n",
    "kinds": _kinds,
    "codes": lambda: _rows(
        ("code", "name", "meaning"),
        [(code.value, f"`{code.name}`", meaning) for code, meaning in CODES.items()],
    ),
    "states": lambda: _rows(
        ("state", "meaning"), [(state.value, meaning) for state, meaning in STATES.items()]
    ),
    "rules": _rules,
    "extensions": lambda: _rows(
        ("bit", "extension", "meaning"),
        [(bit.value, f"`{bit.name}`", meaning) for bit, meaning in EXTENSIONS.items()],
    ),
    "checks": lambda: _rows(("bit", "check"), [(check.bit, f"`{check.name}`") for check in CHECKS]),
    "conversations": _conversations,
    "vectors": _vectors,
    "bounds": _bounds,
    "packets": lambda: _fields(PACKET_FIELDS),
    "types": lambda: _rows(
        ("type", "name", "meaning"),
        [(kind.value, f"`{kind.name}`", meaning) for kind, meaning in TYPES.items()],
    ),
    "handshake": lambda: f"HELLO:\n\n{_fields(HELLO_FIELDS)}\nIts OK:\n\n{_fields(WELCOME_FIELDS)}",
    "error": lambda: _fields(ERROR_FIELDS),
    "model": lambda: _fields(MODEL_FIELDS),
    "stamps": lambda: _fields(STAMP_FIELDS),
    "stats": lambda: f"{_fields(STATS_FIELDS)}\nEach row:\n\n{_fields(ROW_FIELDS)}",
    "log": lambda: _fields(LOG_FIELDS),
}


def _own(family: str) -> list[type[Discoverable]]:
    base: type[Discoverable] = FAMILIES[family] if family in FAMILIES else PARTS[family]
    return [cls for cls in components(base) if cls.__module__.startswith("nnpipe.")]


def _first_line(node: ast.stmt) -> int:
    return min(
        [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))]
    )


def _needs(cls: type[Discoverable]) -> str:
    if not cls.requires:
        return "–"
    return f"`{cls.install or ' '.join(need.split('|')[0] for need in cls.requires)}`"


def contents() -> dict[Path, str]:
    """Give every file that comes from the code, wholly or in part, as it should be."""
    found = {page: refreshed(page.read_text("utf-8")) for page in pages()}
    headers = {
        TARGET_C / "nnpipe_protocol.h": c_headers.protocol_header(),
        TARGET_C / "nnpipe_rules.h": c_headers.rules_header(),
    }
    schemas = {
        path: json.dumps(schema(of_plugins=False), indent=1) + "\n"
        for path, schema in SCHEMAS.items()
    }
    return found | headers | schemas


def main() -> int:
    """Refresh the pages, or with ``--check`` name those that are out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    stale = False
    for page, new in contents().items():
        if not page.is_file() or page.read_text("utf-8") != new:
            stale = True
            sys.stdout.write(
                f"{page.relative_to(ROOT)} {'is out of date' if check else 'refreshed'}\n"
            )
            if not check:
                page.write_text(new, "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
