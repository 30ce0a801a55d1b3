"""What a signature says is what a call may give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from nnpipe.core.argument_checks import check_call
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError

if TYPE_CHECKING:
    from nowhere import Unknown


def function(
    whole: int = 1,
    real: float = 1.0,
    text: str = "",
    flag: bool = False,
    path: str | Path = ".",
    choice: Literal["a", "b"] = "a",
    names: Sequence[str] = (),
    pair: tuple[int, int] = (1, 2),
    table: Mapping[str, int] | None = None,
    action: Callable[[], object] | None = None,
    array: npt.NDArray[Any] | None = None,
    cls: type[Dataset] = Dataset,
    anything: Any = None,
    once: Iterable[int] = (),
    later: Unknown | None = None,
) -> None:
    check_call(function, locals())


@pytest.mark.parametrize(
    "given",
    [
        {"whole": np.int64(3)},
        {"real": 3},
        {"real": np.float32(3)},
        {"path": Path("x")},
        {"choice": "b"},
        {"names": ["a", "b"]},
        {"names": ()},
        {"pair": (3, 4)},
        {"table": {"x": 1}},
        {"action": print},
        {"array": np.zeros(3)},
        {"anything": object()},
        {"once": iter([1, 2])},
        {"once": np.arange(3)},
        {"later": 7},
    ],
)
def test_what_the_signature_names_is_taken(given: dict[str, Any]) -> None:
    function(**given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"whole": "3"}, "whole takes a whole number, not '3'"),
        ({"whole": True}, "whole takes a whole number, not True"),
        ({"whole": 2.5}, "whole takes a whole number, not 2.5"),
        ({"real": "fast"}, "real takes a number, not 'fast'"),
        ({"text": 7}, "text takes a text, not 7"),
        ({"flag": 1}, "flag takes True or False, not 1"),
        ({"path": 7}, "path takes a text or a path, not 7"),
        ({"choice": "c"}, "choice takes 'a' or 'b', not 'c'"),
        ({"names": "abc"}, "names takes a sequence of a text, not 'abc'"),
        ({"names": ["a", 7]}, "names takes a sequence of a text, not a list"),
        ({"pair": (1, 2, 3)}, "pair takes a tuple of a whole number"),
        ({"table": {"x": "y"}}, "table takes a mapping or None, not a dict"),
        ({"action": 7}, "action takes a function or None, not 7"),
        ({"array": [1, 2]}, "array takes a numpy array or None, not a list"),
        ({"cls": int}, "cls takes a subclass of Dataset, not the class int"),
        ({"cls": "Dataset"}, "cls takes a subclass of Dataset, not 'Dataset'"),
        ({"once": 7}, "once takes an iterable of a whole number, not 7"),
    ],
)
def test_anything_else_is_refused_in_one_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        function(**given)
    assert f"function: {told}" in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_an_object_whose_text_is_long_is_named_by_its_class() -> None:
    with pytest.raises(ConfigError, match=r"not a str$"):
        function(whole="x" * 100)  # type: ignore[arg-type]
