"""Pack the agent into one file that any Python can run: ``python agent.pyz ...`` (PEP 441)."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

NAME = "agent.pyz"

_MAIN = "import sys\nfrom nnpipe.jobs.agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_BEGINNING = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that the bytes are always the same


def agent() -> bytes:
    """Return the archive: the modules of :mod:`nnpipe.jobs.agent` under their own names, and a start module."""
    folder = Path(__file__).parent / "agent"
    parts = {"__main__.py": _MAIN, "nnpipe/__init__.py": "", "nnpipe/jobs/__init__.py": ""}
    parts |= {f"nnpipe/jobs/agent/{path.name}": path.read_text("utf-8") for path in sorted(folder.glob("*.py"))}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _BEGINNING), text, zipfile.ZIP_DEFLATED)
    return made.getvalue()
