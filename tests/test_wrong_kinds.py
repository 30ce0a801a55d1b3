"""A value of a wrong kind, for each argument of each component, is refused in one line that
names the argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from nnpipe.core.arguments import Argument, list_arguments
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.registry import FAMILIES, components
from nnpipe.core.runtime_protocol import RemoteOptions, ServerOptions
from nnpipe.core.training import TrainingOptions
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.training.options import TrainerOptions

OPTIONS = (
    MeasureOptions,
    LoadOptions,
    TrainingOptions,
    TrainerOptions,
    RemoteOptions,
    ServerOptions,
)
WRONG: dict[str, Any] = {
    "bool": True,
    "int": 3,
    "float": 2.5,
    "text": "text",
    "list": [1],
    "texts": ["a", "b"],
    "empty": [],
    "object": {"x": 1},
    "nan": math.nan,
    "infinite": math.inf,
    "bytes": b"x",
    "class": int,
    "function": len,
    "object itself": object(),
}
FITS: dict[type, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (float, int), str: (str,)}


def wrong_for(declared: Argument) -> Iterator[tuple[str, Any]]:
    """List values whose kind is not the one declared; whether a value of the right kind will do
    is not asked.
    """
    kind = declared.kind
    for name, value in WRONG.items():
        if kind.many is None:
            fits = isinstance(value, FITS.get(kind.item, (str,))) and isinstance(value, bool) == (
                kind.item is bool
            )
        else:
            fits = isinstance(value, list)
        if not fits or (isinstance(value, float) and not math.isfinite(value)):
            yield name, value


def cases() -> Iterator[Any]:
    known = [cls for base in FAMILIES.values() for cls in components(base)]
    for cls in sorted({*known, *OPTIONS}, key=lambda cls: cls.get_dotted_path()):
        for declared in list_arguments(cls):
            yield pytest.param(cls, declared, id=f"{cls.__name__}.{declared.name}")


@pytest.mark.parametrize(("cls", "declared"), [*cases()])
def test_a_wrong_kind_is_refused_by_name(cls: type[Component], declared: Argument) -> None:
    others = {a.name: "x" for a in list_arguments(cls) if a.required and a.name != declared.name}
    for name, value in wrong_for(declared):
        with pytest.raises(ConfigError) as error:
            cls.from_json({**others, declared.name: value})
        said = str(error.value)
        assert declared.name in said.replace("-", "_"), (name, said)
        assert len(said.splitlines()) == 1
