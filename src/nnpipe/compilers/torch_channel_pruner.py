"""Exported PyTorch programs with whole channels taken away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnpipe.compilers._torch_channels import Group, groups, thin_out
from nnpipe.compilers._torch_distillation import DistillingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.torch_program import exported_anew, load_program


class TorchChannelPruner(DistillingCompiler):
    """Exported PyTorch programs with fewer channels, which are smaller and faster in every runtime.

    From each layer go the filters whose weights have the least sum of
    magnitudes (Li et al. 2017, arXiv:1608.08710), together with what other
    layers would have made of their outputs.  Layers whose channels are added
    to or joined with others, or leave the network, keep all of theirs: in a
    residual network only the inner layers of blocks become thinner.  Accuracy
    suffers; fine-tune.
    """

    channel_sparsity: float = argument(
        0.5, help="part of each layer's channels that is taken away", minimum=0.0, maximum=0.99
    )
    channel_multiple: int = argument(
        1,
        help="keep a multiple of so many channels in each layer, for runtimes that compute as many at once",
        minimum=1,
    )

    def claims(self) -> tuple[Claim, ...]:
        """Weights taken away, the rest as it was unless it was fine-tuned."""
        return ("pruned", "fine-tuned") if self.fine_tuning_steps else ("pruned",)

    def variant(self) -> str:
        """Name the part taken away."""
        return f"channels-{round(self.channel_sparsity * 1000) / 10:g}"

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        loaded = load_program(artifact.path)
        module = loaded.module()
        found = list(groups(module.graph))
        if not found:
            raise CompileError("it has no layer whose channels can be taken away")
        # Chosen for all layers before the first one changes, so that their order does not matter.
        for group, kept in [(group, self._kept(module, group)) for group in found]:
            thin_out(module, group, kept)
        module.recompile()
        if calibration is not None and self.fine_tuning_steps:
            self._fine_tune(loaded, module, {}, calibration)
        return self._save(exported_anew(loaded, module), destination)

    def _kept(self, module: Any, group: Group) -> Any:
        """Return the indices of the channels that stay, ascending."""
        weight = module.get_parameter(group.maker.args[1].target).detach()
        count = len(weight)
        number = count - int(self.channel_sparsity * count)
        number = min(count, -(-number // self.channel_multiple) * self.channel_multiple)
        magnitudes = weight.abs().flatten(1).sum(1)
        return magnitudes.argsort(stable=True, descending=True)[:number].sort().values
