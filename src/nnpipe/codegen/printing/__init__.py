"""Python code from syntax trees, laid out as ``ruff format`` lays it out, without ruff.

:func:`source_of` is the way in.  Only what scripts are made of is provided for;
anything else is refused, never printed wrongly: what was printed is parsed
again and must give the same tree.
"""

from nnpipe.codegen.printing.statements import source_of

__all__ = ["source_of"]
