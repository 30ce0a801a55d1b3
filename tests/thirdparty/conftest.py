"""Makes the third-party package importable, as if it were installed here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "acme_nn" / "src"))
