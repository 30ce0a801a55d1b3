"""Compilers: what converts, optimises and quantises models.

For authors, the base of compilers whose result is one file is here, imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy import lazily

if TYPE_CHECKING:
    from nnpipe.compilers.writing_compiler import WritingCompiler as WritingCompiler

__getattr__ = lazily(__name__, {"writing_compiler": ("WritingCompiler",)})
