"""The interface of runtimes, which run compiled models."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.session import InferenceSession


class Runtime(Component):
    """Loads artifacts of the formats it accepts.

    Authors set ``accepts`` and write ``_load``; callers use :meth:`load`.

    Attributes
    ----------
    accepts
        Formats that can be loaded, such as ``("onnx",)``.
    native_code
        Those of the formats whose files contain machine code that is run (a
        shared library); servers refuse these by default.
    unsupported_types
        Element types of weights and values with which it runs no model, such as ``("bfloat16",)``.
    unsupported_io
        Element types of inputs and outputs that cannot be put and got.
    target_packages
        Those packages of the extra ``install`` that a server on a board needs; all of them by
        default.

    Examples
    --------
    >>> from nnpipe import IOSpec, TensorSpec
    >>> from nnpipe.testing.fakes import FakeSession
    >>> class EchoRuntime(Runtime):
    ...     accepts = ("echo",)
    ...     def _load(self, artifact):
    ...         return FakeSession(artifact.io)
    >>> io = IOSpec((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
    >>> with open("model.echo", "w") as file:
    ...     print("echo", file=file)
    >>> with EchoRuntime().load(Artifact.create("model.echo", "echo", io)) as session:
    ...     [spec.name for spec in session.io.outputs]
    ['y']
    """

    accepts: ClassVar[tuple[str, ...]] = ()
    native_code: ClassVar[tuple[str, ...]] = ()
    unsupported_types: ClassVar[tuple[str, ...]] = ()
    unsupported_io: ClassVar[tuple[str, ...]] = ()
    target_packages: ClassVar[tuple[str, ...]] = ()

    def load(self, artifact: Artifact) -> InferenceSession:
        """Load a model and return the session that runs it.

        Raises
        ------
        ConfigError
            If this runtime does not accept the format.
        MissingDependency
            If a package or program that the runtime needs is not installed.
        ArtifactError
            If the file is damaged; the message names it.
        """
        if artifact.format not in self.accepts:
            raise ConfigError(
                f"{type(self).__name__} runs {' or '.join(self.accepts)}, {artifact.path} is "
                f"{artifact.format}"
            )
        self.check_ready()
        return self._load(artifact)

    @abstractmethod
    def _load(self, artifact: Artifact) -> InferenceSession:
        """Load an artifact whose format has been checked."""
