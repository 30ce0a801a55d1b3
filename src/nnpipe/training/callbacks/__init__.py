"""Callbacks, which observe a training, each in a module of its own.

The base classes, for authors of callbacks, can be imported from here; each is loaded when it is
first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.training.callbacks.callback import Callback as Callback
    from nnpipe.training.callbacks.callback import WritingCallback as WritingCallback

__getattr__ = lazy_getattr(
    __name__,
    {
        "callback": ("Callback", "WritingCallback"),
    },
)
