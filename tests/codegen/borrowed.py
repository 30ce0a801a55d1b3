"""Other files of tests as modules, for what they hold."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

LAYERS = Path(__file__).parents[1] / "layers"


def loaded(name: str, path: Path) -> ModuleType:
    """Load a file under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
