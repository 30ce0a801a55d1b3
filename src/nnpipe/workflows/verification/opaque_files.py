"""Finding faults in a file that exposes no intermediate values.

Only the weights among its bytes and its outputs are available.  Weights that are misplaced relative to their
neighbours are found directly.  If all are in place, this tries for each operation of the source the faults that
leave no trace in weights, and names the one that makes the source's outputs equal to the file's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nnpipe.analysis.compiled_weights import Kernel, KernelMatch, held_in
from nnpipe.analysis.describe_differences import listed
from nnpipe.analysis.suspect_operations import sure_for
from nnpipe.core.claims import Claim
from nnpipe.core.live_model import LiveModel
from nnpipe.core.tensors import Batch
from nnpipe.workflows.verification.file_content import content_of
from nnpipe.workflows.verification.first_difference import Divergence
from nnpipe.workflows.verification.opaque_case import Fault, OpaqueCase

_EXPLAINS = 0.5  # the greatest share of the difference that a fault may leave unexplained
_UNKNOWN = (
    _EXPLAINS  # assumed for a fault that cannot be computed: it ranks after those that explain most, before the others
)
_SAMPLES = 24


def explained(
    source: LiveModel,
    path: Path,
    samples: Sequence[Batch],
    ours: Sequence[Batch],
    theirs: Sequence[Batch],
    claims: Iterable[Claim],
    different: bool,
) -> Divergence:
    """Return operations of the source that a file computes wrongly, found by its weights and its outputs.

    Parameters
    ----------
    source
        The model that the file was made from.
    path
        The file.
    samples
        Inputs of the source.
    ours, theirs
        The outputs of the source and of the file for these, by the source's names.
    claims
        The claims of the conversion.
    different
        Whether outputs differ by more than claimed.  Otherwise only certain faults are returned.
    """
    claims = tuple(claims)
    case = OpaqueCase.of(source, samples[:_SAMPLES], ours[:_SAMPLES], theirs[:_SAMPLES])
    kernels = case.kernels()
    held = held_in(content_of(path), list(kernels.values()), claims)
    by_name = {
        name: case.in_use(kernel, case.heard(kernel, one))
        for (name, kernel), one in zip(kernels.items(), held, strict=True)
    }
    found = [
        Fault(
            case.residual(kernels[name], one), name, _in_words(one), claims[0] in ("float", "float16") or _certain(one)
        )
        for name, one in by_name.items()
        if one.wrong
    ]
    found += [
        Fault(0.0, name, "height and width of its kernel are exchanged", True) for name in turned_among(kernels, held)
    ]
    certain = bool(found)
    lost = [name for name, one in by_name.items() if one.channels and not one.found] if different else []
    if 2 * len(lost) < len(kernels):
        told = "its weights are not in the file, where those of other operations are"
        found += [Fault(_UNKNOWN, name, told, True) for name in lost]
    if not certain and case.differs(sure_for(claims)):
        found += case.faults()
    found = [one for one in found if one.sure or one.residual < (1 if different else _EXPLAINS)]
    best: dict[str, Fault] = {}
    for one in sorted(found, key=lambda one: one.residual):
        best.setdefault(one.operation, one)
    return Divergence((), tuple(case.suspect(one) for one in best.values()), how="its weights and its outputs")


def turned_among(kernels: Mapping[str, Kernel], held: Sequence[KernelMatch]) -> list[str]:
    """Return operations whose kernels have height and width exchanged, unlike at least half of all kernels.

    No known format stores the width before the height in some kernels only, so these kernels are wrong.
    """
    known = {
        name: (kernel.weights.shape, one)
        for (name, kernel), one in zip(kernels.items(), held, strict=True)
        if kernel.weights.ndim == 4 and 2 * len(one.placed) > one.channels
    }

    def fits(pair: tuple[int, int], shape: tuple[int, ...], one: KernelMatch) -> bool:
        return one.axis not in pair and shape[pair[0]] == shape[pair[1]] > 1

    # The axes of a 3 x 3 kernel with three channels are ambiguous, but those of others are not.
    pairs = ((0, 1), (1, 2), (2, 3))
    height, width = max(pairs, key=lambda pair: sum(fits(pair, *what) for what in known.values()))
    spatial = {}
    for name, (shape, one) in known.items():
        if fits((height, width), shape, one):
            rest = [axis for axis in range(4) if axis != one.axis]
            spatial[name] = one.order.index(rest.index(height)) > one.order.index(rest.index(width))
    turned = [name for name, wrong in spatial.items() if wrong]
    return turned if 2 * len(turned) <= len(spatial) else []


def _certain(held: KernelMatch) -> bool:
    """Return whether rounding to integers cannot be the cause of the fault."""
    return bool(held.moved or (held.silent and held.scaled))


def _in_words(held: KernelMatch) -> str:
    parts = []
    if held.moved:
        parts.append(f"weights of {listed(list(held.moved))} are those of {listed(list(held.moved.values()))}")
    if held.silent:
        parts.append(f"weights of {listed(list(held.silent))} are 0")
    if held.other:
        parts.append(f"weights of {listed(list(held.other))} are other ones")
    return "; ".join(parts)
