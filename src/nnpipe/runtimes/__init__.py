"""Runtimes: what runs compiled models.

For authors, the base of runtimes of sealed models is here, imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy import lazily

if TYPE_CHECKING:
    from nnpipe.runtimes.sealed_runtime import SealedRuntime as SealedRuntime

__getattr__ = lazily(__name__, {"sealed_runtime": ("SealedRuntime",)})
