"""The target's side of the protocol in C99 without a library, for firmware and for the server in
C.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
"""The folder with the sources, for the compiler's ``-I``."""
CORE = tuple(
    FOLDER / name
    for name in ("nnpipe_frames.c", "nnpipe_target.c", "nnpipe_sending.c", "nnpipe_answers.c")
)
"""The conversation without I/O: needs neither memory of its own nor a library."""
PROOF = FOLDER / "nnpipe_sha256.c"
"""SHA-256, and the proof of the token; programs without a token do not need it."""
SERVER = tuple(sorted((FOLDER / "server").glob("*.c")))
"""The rest of a server for Linux; a table of models (``models.h``) is still missing."""
