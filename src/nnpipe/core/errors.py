"""The errors that nnpipe raises.

::

    NNPipeError
    ├── ConfigError (ValueError)         an argument, a file of settings or a combination that cannot work
    ├── ComponentNotFound (LookupError)  no class of that name
    ├── MissingDependency (ImportError)  a framework is not installed
    │   └── MissingTool                  a program, such as a C++ compiler, is not on the search path
    ├── SpecMismatch (ValueError)        a tensor is not what its TensorSpec says
    ├── ArtifactError                    a model or result file is missing, damaged or foreign
    ├── StorageError                     a store of files cannot be reached, or lacks what was asked for
    ├── DatasetError                     data cannot be had, or are damaged
    ├── ConversionError                  a model cannot be exported or imported
    ├── CompileError                     a compiler failed
    ├── TrainingError                    a training cannot go on
    ├── NotSupported (NotImplementedError)
    ├── TransportError (OSError)         the connection to the target failed
    │   └── LineTimeout (TimeoutError)   nothing could be received, or sent, for too long
    └── ProtocolError                    the connection works, but a message breaks the protocol
        ├── LocalProtocolError           this side was about to break the rules
        ├── RemoteProtocolError          the other side broke the rules
        ├── TargetError                  the target reports a failure
        └── AuthenticationError

A scenario prints an :class:`NNPipeError` as one line and exits with status 2.
Any other exception is a defect of nnpipe and keeps its traceback.  A message
says what is wrong, where, and how to correct it.
"""

from __future__ import annotations

from nnpipe.core.foreign_text import sanitize_text


class NNPipeError(Exception):
    """Base of all errors that a user can correct.

    Messages name tensors, files and addresses: without their control characters and passwords,
    wherever they are shown.

    Examples
    --------
    >>> from nnpipe import Dataset, find
    >>> try:
    ...     find("DigitDataset", Dataset)
    ... except NNPipeError as error:
    ...     print("DigitsDataset" in str(error))
    True
    """

    def __str__(self) -> str:
        return sanitize_text(super().__str__())


class ConfigError(NNPipeError, ValueError):
    """An argument, a configuration file or a combination of them cannot work.

    Examples
    --------
    >>> from nnpipe import MeasureOptions
    >>> MeasureOptions(inference_batch_size=0)
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.ConfigError: ...inference_batch_size...
    """


class ComponentNotFound(NNPipeError, LookupError):
    """There is no component with this dotted path or class name.

    Examples
    --------
    >>> from nnpipe import Runtime, find
    >>> find("ONNXRumtime", Runtime)
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.ComponentNotFound: ...ONNXRuntime...
    """


class MissingDependency(NNPipeError, ImportError):
    """A component needs a package that is not installed.

    Examples
    --------
    >>> from nnpipe import Runtime
    >>> class AcmeRuntime(Runtime):
    ...     requires = ("acme_engine",)
    >>> AcmeRuntime.check_installed()
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.MissingDependency: ...acme_engine...
    """


class MissingTool(MissingDependency):
    """A component needs a program that is not on the search path.

    Attributes
    ----------
    commands
        The possible names of the program.

    Examples
    --------
    >>> from nnpipe.core.discoverable import Tool
    >>> Tool("Acme's compiler", ("acme-cc",), "pip install acme-cc").check("AcmeCompiler")
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.MissingTool: AcmeCompiler needs Acme's compiler on the PATH (acme-cc): pip
    install acme-cc
    """

    commands: tuple[str, ...] = ()


class SpecMismatch(NNPipeError, ValueError):
    """A tensor does not agree with its :class:`~nnpipe.core.tensors.TensorSpec`.

    Examples
    --------
    >>> import numpy as np
    >>> from nnpipe import TensorSpec
    >>> TensorSpec("image", (None, 8, 8), "float32").check(np.zeros((1, 8, 9), np.float32))
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.SpecMismatch: ...image...
    """


class ArtifactError(NNPipeError):
    """A model file or result file is missing, damaged, or of another kind.

    Examples
    --------
    >>> from nnpipe import Artifact
    >>> Artifact.read("gone.onnx")
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.ArtifactError: gone.onnx: no such model file
    """


class StorageError(NNPipeError):
    """A store of files cannot be reached, refuses a request, or lacks the file asked for.

    Examples
    --------
    >>> from pathlib import Path
    >>> from nnpipe.storage.storage import open_storage
    >>> open_storage("store").get("untrained-models", "lenet.pt", Path("lenet.pt"))
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.StorageError: ...no file 'lenet.pt'...
    """


class DatasetError(NNPipeError):
    """Data cannot be obtained, or are damaged.

    Examples
    --------
    >>> from nnpipe import ArraysDataset
    >>> ArraysDataset(dataset_root="gone").prepare()
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.DatasetError: gone: ...
    """


class ConversionError(NNPipeError):
    """A model cannot be exported to, or imported from, an exchange format.

    Examples
    --------
    Authors raise it if their framework cannot express a model in ONNX:

    >>> from nnpipe import ONNXConversion
    >>> class AcmeConversion(ONNXConversion):
    ...     def export_model(self, case, path, opset):
    ...         if opset < 13:
    ...             raise ConversionError(f"{case.name}: Acme writes operator sets from 13 on, not {opset}")
    >>> issubclass(ConversionError, NNPipeError)
    True
    """


class CompileError(NNPipeError):
    """A compiler could not make an artifact.

    Examples
    --------
    Authors raise it if a model cannot be compiled:

    >>> from nnpipe import ModelCompiler
    >>> class AcmeCompiler(ModelCompiler):
    ...     accepts, produces, suffix = ("onnx",), "acme", ".acme"
    ...     def _compile(self, artifact, path, calibration):
    ...         if len(artifact.io.inputs) > 1:
    ...             raise CompileError(f"{artifact.path}: Acme takes models of one input")
    >>> issubclass(CompileError, NNPipeError)
    True
    """


class TrainingError(NNPipeError):
    """A training cannot continue: its loss is not finite, or a callback or transform failed.

    Examples
    --------
    >>> import numpy as np
    >>> def check_loss(loss: float, epoch: int) -> None:
    ...     if not np.isfinite(loss):
    ...         raise TrainingError(f"the loss is {loss} in epoch {epoch}; use a smaller learning rate")
    >>> check_loss(np.inf, epoch=3)
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.TrainingError: the loss is inf in epoch 3; use a smaller learning rate
    """


class NotSupported(NNPipeError, NotImplementedError):
    """A component does not offer an optional method, or not for this case.

    Examples
    --------
    >>> from nnpipe import Dataset
    >>> class MyScans(Dataset):
    ...     spec = prepare = __len__ = read = evaluate = None
    >>> MyScans().download()
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.NotSupported: MyScans cannot be downloaded; ...
    """


class TransportError(NNPipeError, OSError):
    """The connection to a target could not be opened, was lost, or timed out.

    Examples
    --------
    >>> from nnpipe.protocols import NetworkProtocol
    >>> NetworkProtocol(host="localhost", port=1).connect()
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.TransportError: ...localhost...
    """


class LineTimeout(TransportError, TimeoutError):
    """The connection made no progress within its time limit; it may still work."""


class ProtocolError(NNPipeError):
    """A message was sent, or was about to be sent, that the protocol forbids.

    Examples
    --------
    >>> from nnpipe.protocols.conversation.frame import FrameKind
    >>> from nnpipe.protocols.conversation.host import HostConversation
    >>> HostConversation().ask(FrameKind.PROCESS)  # nothing has been agreed upon yet
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.LocalProtocolError: ...
    """


class LocalProtocolError(ProtocolError):
    """This side was about to break the protocol's rules; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol's rules; the conversation is over."""


class TargetError(ProtocolError):
    """The target understood the request and reports that it failed; ``code`` is the protocol's
    number of the reason.

    Examples
    --------
    Its ``code`` tells one failure from another:

    >>> error = TargetError("the target has no model: send one first")
    >>> error.code
    0
    >>> isinstance(error, ProtocolError)
    True
    """

    code: int = 0


class AuthenticationError(ProtocolError):
    """The other side could not prove that it knows the shared token.

    Examples
    --------
    The calling code can tell a wrong token from other failures:

    >>> try:
    ...     raise AuthenticationError("the target does not accept the token")
    ... except ProtocolError as error:
    ...     print(f"{error}; see --token-file")
    the target does not accept the token; see --token-file
    """
