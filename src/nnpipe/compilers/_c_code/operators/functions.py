"""Functions of real numbers, element by element."""

from __future__ import annotations

from collections.abc import Callable

from nnpipe.compilers._c_code.operators.common_kernels import CLAMP
from nnpipe.compilers._c_code.step import CKernel, CStep, OperatorView

_EXP, _FLOOR, _SINE, _SQRT = (CKernel(f"{name}.c") for name in ("exp", "floor", "sine", "sqrt"))


def _kernels(name: str, value: str, *needed: CKernel) -> tuple[CKernel, ...]:
    """Return the kernels of a function; ``value`` computes it in C from ``x``."""
    return (*needed, CKernel("function_f.c", (("@", name), ("VALUE", value))))


LOGISTIC = _kernels("logistic", "1 / (1 + nn_exp(-x))", _EXP)
TANH = _kernels("tanh", "nn_tanh(x)", _EXP, CKernel("tanh.c"))


def _builder(kernels: tuple[CKernel, ...]) -> Callable[[OperatorView], CStep]:
    name = dict(kernels[-1].words)["@"]

    def build(op: OperatorView) -> CStep:
        op.expect_shape(op.input(0).shape)
        if op.types() != ("float32", "float32"):
            raise op.unsupported()
        return CStep(f"nn_{name}_f32({{in0}}, {{out0}}, {op.output().count});", kernels)

    return build


absolute = _builder(_kernels("abs", "x < 0 ? -x : x"))
ceiling = _builder(_kernels("ceil", "-nn_floor(-x)", _FLOOR))
cosine = _builder(_kernels("cos", "nn_sine(x, 1)", _SINE))
elu = _builder(_kernels("elu", "x < 0 ? nn_exp(x) - 1 : x", _EXP))
exponential = _builder(_kernels("exp_of", "nn_exp(x)", _EXP))
floor = _builder(_kernels("floor_of", "nn_floor(x)", _FLOOR))
hard_swish = _builder(_kernels("hard_swish", "x * nn_clamp_f32(x + 3, 0, 6) / 6", CLAMP))
inverse_root = _builder(_kernels("rsqrt", "1 / nn_sqrt(x)", _SQRT))
logarithm = _builder(_kernels("log_of", "nn_log(x)", CKernel("log.c")))
logistic = _builder(LOGISTIC)
negative = _builder(_kernels("neg", "-x"))
rounded = _builder(_kernels("round_of", "nn_round(x)", _FLOOR, CKernel("round.c")))
sine = _builder(_kernels("sin", "nn_sine(x, 0)", _SINE))
square = _builder(_kernels("square", "x * x"))
square_root = _builder(_kernels("sqrt", "nn_sqrt(x)", _SQRT))
tanh = _builder(TANH)
