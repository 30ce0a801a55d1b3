"""The writer of PyTorch code for networks, by partial evaluation of their layers.

Each layer defines its computation in PyTorch once, as a function (``Layer._build_torch``).
This package does not define it again.  It takes the source code of those functions,
evaluates everything that is known when the script is written (arguments, shapes,
which branch is taken), and writes the remaining code.  This is partial evaluation,
Futamura 1971 (https://doi.org/10.1023/A:1010095604496).
"""
