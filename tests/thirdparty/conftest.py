"""Makes the third-party packages importable, as if they were installed here."""

from __future__ import annotations

import sys
from pathlib import Path

for package in ("acme_nn", "bricks"):
    sys.path.insert(0, str(Path(__file__).parent / package / "src"))
