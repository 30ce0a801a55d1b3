"""The result of comparing a model with its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nnpipe.analysis.agreement import Agreement, Tolerances, Verdict
from nnpipe.analysis.classification import wilson_interval
from nnpipe.analysis.weight_changes import Weighing
from nnpipe.core.argument_checks import check_call
from nnpipe.core.claims import Claim
from nnpipe.core.foreign_text import show_text
from nnpipe.core.messages import one_line
from nnpipe.workflows.verification.first_difference import Divergence

_RANK: dict[Verdict, int] = {"same": 2, "close": 1, "changed on purpose": 1, "different": 0}


@dataclass(frozen=True)
class VerifyResult:
    """How much a model differs from its source.

    Parameters
    ----------
    source, artifact
        The files that were compared.
    source_run_by, run_by
        The runtimes or frameworks that ran them.
    data
        The class of the data set.
    verdict, reason
        Whether the two agree, and why.
    claims, claims_by
        The claims of the conversion, and their origin.
    agreement
        The errors of each output.
    tolerances
        The tolerances for the verdicts ``same`` and ``close``.
    worst_sample
        The index of the sample with the largest relative error.
    divergence
        The comparison by operations, or why there is none.
    weights
        The comparison by weights, or why there is none.

    Examples
    --------
    Of the example of :func:`nnpipe.verify`:


    >>> found.agrees("close"), found.agreement.samples
    (True, 60)
    """

    source: Path
    source_run_by: str
    artifact: Path
    run_by: str
    data: str
    verdict: Verdict
    reason: str
    claims: tuple[Claim, ...]
    claims_by: str
    agreement: Agreement
    tolerances: Tolerances
    worst_sample: int
    divergence: Divergence | str
    weights: Weighing | str

    def agrees(self, at_least: Literal["same", "close"] = "close") -> bool:
        """Return whether the verdict is at least this good; "changed on purpose" counts as "close".

        Raises
        ------
        ConfigError
            If ``at_least`` is neither.
        """
        check_call(VerifyResult.agrees, {"at_least": at_least})
        return _RANK[self.verdict] >= _RANK[at_least]

    def show(self) -> None:
        """Print the errors of each output, the suspected operations and weights, and the verdict."""
        show_text(str(self))

    def __str__(self) -> str:
        """Return the errors of each output, the suspected operations and weights, and the verdict as text."""
        return "\n".join([*self._compared(), *_table(self.agreement), *self._inside()])

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON can hold it."""
        inside = {"divergence": self.divergence, "weights": self.weights}
        return {
            **self.agreement.to_json(self.tolerances, self.claims),
            "verdict": self.verdict, "reason": self.reason, "worst_sample": self.worst_sample,
            "claims_by": self.claims_by, "artifact": str(self.artifact), "run_by": self.run_by,
            **{key: found if isinstance(found, str) else found.to_json() for key, found in inside.items()},
        }  # fmt: skip

    def _compared(self) -> Iterator[str]:
        yield f"source:   {self.source} ({self.source_run_by})"
        yield f"artifact: {self.artifact} ({self.run_by})"
        yield f"claims:   {', '.join(self.claims)} ({self.claims_by})"
        yield f"compared: {self.agreement.samples} test samples of {self.data}\n"

    def _inside(self) -> Iterator[str]:
        same, samples = self.agreement.same_class, self.agreement.samples
        if same is not None:
            low, high = wilson_interval(same, samples)
            yield f"same class: {same} of {samples} samples (95 % interval {100 * low:.1f} to {100 * high:.1f} %)"
        where, weights = self.divergence, self.weights
        if isinstance(where, str):
            yield f"no intermediate values to compare: {where}"
        elif where.adopted or self.verdict in ("same", "close", "different"):
            yield str(where)
        if weights != where:
            yield str(weights) if isinstance(weights, Weighing) else f"no weights to compare: {weights}"
        yield f"verdict: {self.verdict} ({self.reason})"


def _table(agreement: Agreement) -> Iterator[str]:
    width = max(6, *(len(one_line(tensor.name)) for tensor in agreement.tensors))
    heads = ("mean", "max", "50 %", "90 %", "99 %")
    yield f"{'output':<{width}}  {'error':<8}" + "".join(f"{head:>11}" for head in heads)
    for tensor in agreement.tensors:
        for kind in ("absolute", "relative"):
            figures = [getattr(tensor, f"mean_{kind}"), getattr(tensor, f"max_{kind}")]
            figures += getattr(tensor, f"{kind}_quantiles").values()
            name = one_line(tensor.name) if kind == "absolute" else ""
            yield f"{name:<{width}}  {kind:<8}" + "".join(f"{figure:>11.3g}" for figure in figures)
    yield "(quantiles are of each sample's largest error)\n"
