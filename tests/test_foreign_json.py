"""JSON from outside is read by the one reader that has bounds; other readers are of what nnpipe
wrote a moment ago.
"""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "nnpipe"

OTHERS = {
    "core/bounded_json.py": "it is that reader",
    "core/progress.py": "single lines of bounded length, whose numbers may be beyond all bounds",
    "jobs/agent": "sent to other machines alone, with the standard library only",
    "workflows/boards/agent": "sent to other machines alone, with the standard library only",
    "codegen/runtime/common.py": "copied into scripts that stand alone",
    "testing": "contracts that write and read again what a component says of itself",
    "experiment/settings.py": "a copy of settings, written in the same line",
    "training/run_settings.py": "a copy of settings, written in the same line",
    "workflows/pipeline/entries.py": "a copy of settings, written in the same line",
    "layers/vocabulary/field_table.py": "a text that the same class has written",
    "experiment/state_file.py": "states hold any whole numbers and texts; a checksum comes before",
    "training/checkpoints.py": "rows hold any whole numbers and texts",
    "workflows/isolation/subprocess_guard.py": "a pipe from the command's own process",
    "workflows/isolation/subprocess_worker.py": "a pipe from the command's own worker",
    "workflows/candidates/deployment.py": "a pipe between a command and the server that it starts",
    "workflows/workers/worker_process.py": "what a command gives its own workers",
    "workflows/reduction/subprocess_tasks.py": "what the command's own worker answers",
    "compilers/_tvm_search.py": "the request of the process that starts it",
    "frameworks/iree.py": "printed by IREE's own tool",
    "frameworks/onnxruntime_profile.py": "written by ONNX Runtime a moment ago",
}
"""The modules and packages that call the standard library's reader, and why they may."""


def readers() -> set[str]:
    """Return the modules that call ``json.load`` or ``json.loads``."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.load", "json.loads"):
                found.add(path.relative_to(SOURCE).as_posix())
    return found


def test_json_from_outside_is_read_with_bounds() -> None:
    unknown = [
        module for module in readers() if not any(module.startswith(each) for each in OTHERS)
    ]
    assert unknown == [], "use nnpipe.core.bounded_json"


def test_every_exception_is_still_needed() -> None:
    found = readers()
    assert [each for each in OTHERS if not any(module.startswith(each) for module in found)] == []
