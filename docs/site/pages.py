"""The table of contents, and links that leave the folder.

The pages are written to be read on GitHub, too: there they have no directives, and may link to
files beside ``docs``."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SITE_ONLY = {"Look up": ["api/index", "changes"]}
"""Pages that are written for the site alone, by the heading that they stand under."""
_HEADING = re.compile(r"^### (.+)$")
_ENTRY = re.compile(r"^- \[[^\]]+\]\(([\w/-]+)\.md\)")
_OUTWARDS = re.compile(r"\]\((\.\./[^)#\s]+)")


def repository() -> str:
    """Return the address of the sources, as ``pyproject.toml`` has it."""
    found = re.search(
        r'^Repository = "([^"]+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
    )
    assert found is not None
    return found[1]


def contents() -> dict[str, list[str]]:
    """Return the pages by heading, as the first page lists them under "All pages"."""
    text = (ROOT / "docs" / "index.md").read_text("utf-8").partition("\n## All pages\n")[2]
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            pages = found.setdefault(heading[1], SITE_ONLY.get(heading[1], []).copy())
        elif entry := _ENTRY.match(line):
            pages.append(entry[1])
    return found


def read(app: Any, docname: str, source: list[str]) -> None:
    """Add the contents to the first page, and let links to files outside lead to the repository."""
    folder = (Path(app.srcdir) / docname).parent

    def outward(found: re.Match[str]) -> str:
        target = (folder / found[1]).resolve()
        if target == ROOT / "CHANGELOG.md":
            return "](changes.md"
        if target.is_relative_to(Path(app.srcdir)) or not target.exists():
            return found[0]  # a page of the site, or a fault that Sphinx is to find
        kind = "tree" if target.is_dir() else "blob"
        return f"]({repository()}/{kind}/main/{target.relative_to(ROOT).as_posix()}"

    source[0] = _OUTWARDS.sub(outward, source[0])
    if docname == "index":
        source[0] += "".join(
            f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
            for caption, pages in contents().items()
        )


def changes(app: Any) -> None:
    """Bring the list of changes, which stands beside the folder, into the site."""
    written(
        Path(app.srcdir) / "changes.md",
        (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](docs/", "]("),
    )


def written(path: Path, text: str) -> None:
    """Write a generated page, unless it is so already: what is unchanged is not read again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Join the build."""
    app.connect("builder-inited", changes)
    app.connect("source-read", read)
    return {
        "version": metadata.version("sphinx"),
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
