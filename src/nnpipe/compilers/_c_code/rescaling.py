"""Fixed-point arithmetic as the generated code does it, for tables."""

from __future__ import annotations

_MOST = (1 << 31) - 1


def rescaled(x: int, multiplier: int, shift: int) -> int:
    """Return a 32-bit number times a factor, rounded twice as TensorFlow Lite's reference kernels do."""
    return divided(high_product(x << max(shift, 0), multiplier), max(-shift, 0))


def high_product(a: int, b: int) -> int:
    """Return twice the upper half of a product of two 32-bit numbers, rounded."""
    nudged = a * b + ((1 << 30) if a * b >= 0 else 1 - (1 << 30))
    return min(_MOST, abs(nudged) >> 31 if nudged >= 0 else -(abs(nudged) >> 31))


def inverse_root(x: int) -> tuple[int, int]:
    """Return the multiplier and the shift of one divided by the square root of a whole number.

    Newton's method with 32-bit numbers of three bits before the point, as TensorFlow Lite has it.
    """
    if x <= 1:
        return _MOST, 0
    shift = 11
    while x >= 1 << 29:
        x, shift = x // 4, shift + 1
    pairs = (32 - x.bit_length() - 1) // 2 - 1
    x, shift = x << 2 * pairs, shift - pairs
    half = divided(x >> 1, 1)
    root = 1 << 28
    for _ in range(5):
        cube = _raised(high_product(high_product(root, root), root), 6)
        root = _raised(high_product((1 << 28) + (1 << 27), root) - high_product(half, cube), 3)
    root = high_product(root, 1518500250)
    return (root << -shift, 0) if shift < 0 else (root, -shift)


def _raised(x: int, by: int) -> int:
    return max(-_MOST - 1, min(_MOST, x << by))


def power_of_e(x: int, bits: int) -> int:
    """Return e to the power of a 32-bit number that is not above zero and has some bits before the point.

    A polynomial between -1/4 and 0, times powers, as in gemmlowp; the result has no bit before the point.
    """
    if x == 0:
        return _MOST
    quarter = 1 << 29 - bits
    rest = (x & quarter - 1) - quarter
    y = (rest << bits) + (1 << 28)
    square = high_product(y, y)
    total = divided(high_product(square, square), 2) + high_product(square, y)
    total = y + divided(high_product(total, 715827883) + square, 1)
    found = 1895147668 + high_product(1895147668, total)
    for n, power in enumerate((1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)[: bits + 2]):
        if (rest - x) & quarter << n:
            found = high_product(found, power)
    return found


def divided(x: int, by: int) -> int:
    """Return a number divided by a power of two, halves rounded away from zero."""
    mask = (1 << by) - 1
    return (x >> by) + ((x & mask) > (mask >> 1) + (x < 0))
