"""Comparisons of two tensors, and functions of truth values."""

from __future__ import annotations

from nnpipe.compilers._c_code.fixed_point import multiplier_of, scale_of
from nnpipe.compilers._c_code.operators.common_kernels import RESCALE
from nnpipe.compilers._c_code.operators.pairs import PAIRS, SCALES, pairwise, positions, scales
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, Builder, CKernel, CStep, OperatorView


def comparison(name: str, compare: str) -> Builder:
    """Return what makes the step of a comparison, such as ``"LESS"`` and ``"<"``."""

    def build(op: OperatorView) -> CStep:
        kinds = op.types()
        op.expect(len(kinds) == 3 and kinds[0] == kinds[1] and kinds[2] == "bool", str(op.unsupported()))
        scaled = kinds[0] in ("int8", "uint8") and op.input(0).spec.scale is not None
        if not scaled:
            known = kinds[0] in SUFFIXES or (kinds[0] == "bool" and compare in ("==", "!="))
            op.expect(known, str(op.unsupported()))
            return pairwise(op, name.lower(), kinds[0], f"a {compare} b", out="bool")
        factors = [multiplier_of(scale_of(op.input(n))) for n in (0, 1)]
        op.expect(max(shift for _, shift in factors) <= 0, "a scale is 1 or more")
        suffix = f"{name.lower()}_{SUFFIXES[kinds[0]]}"
        words = (("@", suffix), ("IN", C_TYPES[kinds[0]]), ("COMPARE", compare))
        return CStep(
            f"nn_{suffix}({{in0}}, {{in1}}, {{out0}}, &p, &s);",
            (RESCALE, *PAIRS, SCALES, CKernel("compare_q.c", words)), before=[positions(op), scales(op, *factors)],
        )  # fmt: skip

    return build


def logical(name: str, operator: str) -> Builder:
    """Return what makes the step of a function of two truth values, such as ``"LOGICAL_AND"`` and ``"&&"``."""

    def build(op: OperatorView) -> CStep:
        op.expect(op.types() == ("bool",) * 3, str(op.unsupported()))
        return pairwise(op, name.lower(), "bool", f"a {operator} b")

    return build


def logical_not(op: OperatorView) -> CStep:
    """Return the step of LOGICAL_NOT."""
    op.expect_shape(op.input(0).shape)
    op.expect(op.types() == ("bool", "bool"), str(op.unsupported()))
    return CStep(f"nn_logical_not({{in0}}, {{out0}}, {op.output().count});", (CKernel("logical_not.c"),))
