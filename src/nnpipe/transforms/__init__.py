"""Input transforms, which compute a model's inputs from raw samples.

This package offers the classes; each is imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.transforms.log_mel import MFCC as MFCC
    from nnpipe.transforms.log_mel import LogMel as LogMel
    from nnpipe.transforms.tabular_encoding import TabularEncoding as TabularEncoding
    from nnpipe.transforms.text_tokens import TextTokens as TextTokens

__getattr__ = lazy_getattr(
    __name__,
    {
        "log_mel": ("LogMel", "MFCC"),
        "tabular_encoding": ("TabularEncoding",),
        "text_tokens": ("TextTokens",),
    },
)
