"""nnpipe: which model, compiled how, on which runtime and device, and can you trust the numbers?"""

__version__ = "0.1.0"
