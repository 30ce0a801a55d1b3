"""A public class name stands for one class: whoever reads it in a message or searches for it
finds one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "nnpipe"

COPIED = SOURCE / "codegen" / "runtime"
"""What is copied into generated scripts; a class is called there as the task is that asks for
it.
"""

OF_KERAS = {
    "Identity": "Keras has an initialiser and a layer of that name, and files of networks name both",
    "UnitNorm": "Keras has a constraint of that name, and PyTorch calls the operation of the layer normalisation too",
}


def public_classes(modules: Iterable[Path]) -> dict[str, list[str]]:
    """Return where each public class is defined, by its name; those of private modules as well."""
    found: dict[str, list[str]] = {}
    for path in modules:
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text("utf-8"), re.MULTILINE):
            found.setdefault(name, []).append(path.name)
    return found


def test_a_public_class_name_is_defined_once() -> None:
    found = public_classes(
        path for path in sorted(SOURCE.rglob("*.py")) if COPIED not in path.parents
    )
    assert len(found) > 500
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in OF_KERAS} == {}
    assert twice.keys() == OF_KERAS.keys()  # none is excused that need not be


def test_a_second_class_would_be_noticed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(
            "class Line:\n    pass\n\n\nclass _Own:\n    pass\n", "utf-8"
        )
    assert public_classes(sorted(tmp_path.glob("*.py"))) == {"Line": ["one.py", "two.py"]}
