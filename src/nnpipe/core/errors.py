"""Every error that nnpipe raises on purpose.

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
    ├── TransportError (OSError)         the line to the target failed
    │   └── LineTimeout (TimeoutError)   nothing came, or nothing was taken, for too long
    └── ProtocolError                    the line works, but what was said on it does not
        ├── LocalProtocolError           we were about to break the rules
        ├── RemoteProtocolError          the other side broke them
        ├── TargetError                  the target reports a failure of its own
        └── AuthenticationError

A scenario prints an :class:`NNPipeError` as one line and exits with status 2.
Any other exception is a defect of nnpipe and keeps its traceback.  A message
says what is wrong, where, and how to mend it.
"""

from __future__ import annotations


class NNPipeError(Exception):
    """Base of all errors that a user can mend.

    Examples
    --------
    >>> from nnpipe import Dataset, find
    >>> try:
    ...     find("DigitDataset", Dataset)
    ... except NNPipeError as error:
    ...     print("DigitsDataset" in str(error))
    True
    """


class ConfigError(NNPipeError, ValueError):
    """An argument, a configuration file or a combination of them cannot work."""


class ComponentNotFound(NNPipeError, LookupError):
    """A dotted path or class name leads to no component."""


class MissingDependency(NNPipeError, ImportError):
    """A component needs a package that is not installed."""


class MissingTool(MissingDependency):
    """A component needs a program that is not on the search path.

    Attributes
    ----------
    commands
        Names that the program may bear.
    """

    commands: tuple[str, ...] = ()


class SpecMismatch(NNPipeError, ValueError):
    """A tensor does not agree with its :class:`~nnpipe.core.tensors.TensorSpec`."""


class ArtifactError(NNPipeError):
    """A model file or result file is missing, damaged, or of another kind."""


class StorageError(NNPipeError):
    """A store of files cannot be reached, refuses, or lacks what was asked for."""


class DatasetError(NNPipeError):
    """Data cannot be had, or are not what they should be."""


class ConversionError(NNPipeError):
    """A model cannot be exported to, or imported from, an exchange format."""


class CompileError(NNPipeError):
    """A compiler could not make an artifact."""


class TrainingError(NNPipeError):
    """A training cannot go on: its loss is no number, or a callback or transform failed."""


class NotSupported(NNPipeError, NotImplementedError):
    """A component does not offer an optional method, or not in this case."""


class TransportError(NNPipeError, OSError):
    """The line to a target could not be opened, broke off, or was silent for too long."""


class LineTimeout(TransportError, TimeoutError):
    """The line was silent for as long as one waits; it may still be whole."""


class ProtocolError(NNPipeError):
    """Something was said, or about to be said, that the protocol forbids."""


class LocalProtocolError(ProtocolError):
    """This side was about to break the protocol's rules; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol's rules; the conversation is over."""


class TargetError(ProtocolError):
    """The target understood the request and reports that it failed; ``code`` is the protocol's number for why."""

    code: int = 0


class AuthenticationError(ProtocolError):
    """The other side could not prove that it knows the shared token."""
