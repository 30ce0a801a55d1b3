"""A small neural network library, and what joins it to nnpipe.

``network`` and ``files`` are the library: they know nothing of nnpipe's
interfaces.  The other modules each hold one component.
"""

__version__ = "1.2.3"
