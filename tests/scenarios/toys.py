"""Component classes that tests name on command lines; most have nothing in them that runs."""

from __future__ import annotations

import os
import signal
from typing import Any, ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import NotSupported
from nnpipe.core.live_model import LiveModel
from nnpipe.core.runtime import Runtime
from nnpipe.modelwrappers.files.onnx import ONNXModel


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


class _Rewriter(ModelCompiler):
    requires = ("onnx",)
    accepts, produces, suffix = ("onnx",), "onnx", ".onnx"
    target: ClassVar[str] = "cpu"

    def _compile(self, artifact: Any, path: Any, calibration: Any) -> Any:
        import onnx

        model = onnx.load_model(str(artifact.path))
        self.rewrite(model.graph)
        onnx.save_model(model, str(path))
        target = type(self).target
        return Artifact.create(
            path, "onnx", artifact.io, target=target, producer=self.describe(), parent=artifact
        )

    def rewrite(self, graph: Any) -> None:
        raise NotImplementedError


class Swapper(_Rewriter):
    """Exchanges the classes; every shape stays right."""

    def rewrite(self, graph: Any) -> None:
        import onnx

        weights = onnx.numpy_helper.to_array(graph.initializer[0])[:, ::-1]
        graph.initializer[0].CopyFrom(
            onnx.numpy_helper.from_array(weights.copy(), graph.initializer[0].name)
        )


class Breaker(_Rewriter):
    """Writes a file that no runtime loads: its first node has an operator that does not exist."""

    def rewrite(self, graph: Any) -> None:
        graph.node[0].op_type = "Surprise"


class Abroad(Breaker):
    """Writes a file for another machine."""

    target: ClassVar[str] = "edgetpu"


class Crasher(Runtime):
    """Crashes while it loads a model."""

    accepts = ("onnx",)

    def _load(self, artifact: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)


class Mute(ONNXModel):
    """Can be exported, but not run."""

    def session(self, live: LiveModel) -> Any:
        """Refuse."""
        raise NotSupported("it does not run today")
