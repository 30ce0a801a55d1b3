"""PyTorch code of a network: what its layers compute, written out.

Layers say once what they are in PyTorch, as functions (``Layer._torch``).  This
package does not say it again: it takes those very functions, puts in what is
known when the script is written (arguments, shapes, which branch is taken), and
prints what is left.  That is partial evaluation, Futamura 1971
(https://doi.org/10.1023/A:1010095604496).
"""
