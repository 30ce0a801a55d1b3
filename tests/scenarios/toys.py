"""Component classes that tests name on command lines; nothing in them runs."""

from __future__ import annotations

from typing import Any

from nnpipe.core.arguments import argument
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.runtime import Runtime


class Halver(ModelCompiler):
    """Halves."""

    accepts, produces = ("onnx",), "onnx"
    strength: int = argument(1, help="how much")
    mode: str = argument("fast", help="how")

    def _compile(self, artifact: Any, path: Any, calibration: Any) -> Any:
        raise AssertionError


class Doubler(ModelCompiler):
    """Doubles."""

    accepts, produces = ("onnx",), "onnx"
    strength: int = argument(1, help="how much, in other words")
    mode: str = argument("safe", help="how")

    def _compile(self, artifact: Any, path: Any, calibration: Any) -> Any:
        raise AssertionError


class Runner(Runtime):
    """Runs."""

    accepts = ("onnx",)
    requires = ("surely_not_installed_anywhere",)
    install = "runner"
    threads: int = argument(1, help="threads to use", minimum=1)

    def _load(self, artifact: Any) -> Any:
        raise AssertionError


class Reader(Runtime):
    """Wants another format."""

    accepts = ("papyrus",)

    def _load(self, artifact: Any) -> Any:
        raise AssertionError


class OwnWay(Runtime):
    """Builds its parser by hand."""

    accepts = ("onnx",)
    special: str = argument("", help="a thing")

    @classmethod
    def form_argparse(cls) -> Any:
        """Declare an option of another shape."""
        parser = super().form_argparse()
        parser.add_argument("--very-special", dest="special", help="the same thing")
        return parser

    def _load(self, artifact: Any) -> Any:
        raise AssertionError


class Overwriter(Runtime):
    """Has an option with the name of the scenario's positional."""

    accepts = ("onnx",)
    output: str = argument("", help="a thing")

    def _load(self, artifact: Any) -> Any:
        raise AssertionError
