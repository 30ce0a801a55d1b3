"""The folder that a testrun writes: a page, a record, and the plugin's files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.plugins.plugin import OUTPUT
from nnpipe.report.inputs.plugin_files import Budget, output_files
from nnpipe.report.writers.plugin_page import OutputSection, write_output_page
from nnpipe.workflows.testrun.run import Tried

PAGE = "index.html"
_RECORD, _KIND = "testrun.json", "nnpipe testrun"


def check_free(folder: Path) -> None:
    """Check that writing a folder replaces only an earlier testrun.

    Raises
    ------
    ConfigError
        If the folder holds other files.
    """
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        return
    try:
        with open(folder / _RECORD, encoding="utf-8") as handle:
            if parse_json(handle.read(1 << 26))["kind"] == _KIND and not folder.is_symlink():
                return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ConfigError(
        f"{folder} holds something else than an earlier testrun, which would be replaced: give a new folder"
    )


def write_folder(
    folder: Path, title: str, facts: Mapping[str, str], tried: Sequence[Tried], command: Sequence[str]
) -> int:
    """Write the page and the record beside the plugin's files, and return the number of these files."""
    budget = Budget()
    sections = [_section(folder, each, budget) for each in tried]
    write_output_page(folder / PAGE, title, dict(facts), sections, _warnings(tried))
    record: dict[str, Any] = {
        "kind": _KIND, "schema": 1, "command": list(command), "facts": dict(facts),
        "steps": [each.to_json() for each in tried],
    }  # fmt: skip
    write_text(folder / _RECORD, json.dumps(record, indent=2) + "\n")
    return sum(len(section.files) + section.more for section in sections)


def _section(folder: Path, tried: Tried, budget: Budget) -> OutputSection:
    place = folder / tried.folder
    files, more = output_files(place, budget) if place.is_dir() else ([], 0)
    return OutputSection(tried.title.capitalize(), files, tried.folder, more, tried.failure)


def _warnings(tried: Sequence[Tried]) -> list[str]:
    lost = list(dict.fromkeys(name for each in tried for name in each.lost))
    return [f"Written beside {OUTPUT}/, and not kept: {', '.join(lost[:20])}"] if lost else []
