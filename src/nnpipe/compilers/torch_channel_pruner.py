"""Channel pruning of exported PyTorch programs."""

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
    """Removes whole channels of exported PyTorch programs, which become smaller and faster in every runtime.

    In each layer, the filters with the least sum of absolute weights are removed
    (Li et al. 2017, arXiv:1608.08710), together with the weights that read their
    outputs.  Layers keep all channels if these are added to or concatenated with
    others, or are outputs of the network: in a residual network, only the inner
    layers of blocks become smaller.  Accuracy drops, so use fine-tuning.
    """

    channel_sparsity: float = argument(
        0.5, help="fraction of each layer's channels to remove", minimum=0.0, maximum=0.99
    )
    channel_multiple: int = argument(
        1,
        help="keep a multiple of this number of channels in each layer, for runtimes that compute as many at once",
        minimum=1,
    )

    def claims(self) -> tuple[Claim, ...]:
        """Return that weights are pruned and number formats are kept."""
        return ("pruned", "fine-tuned") if self.fine_tuning_steps else ("pruned",)

    def variant(self) -> str:
        """Return the sparsity."""
        return f"channels-{round(self.channel_sparsity * 1000) / 10:g}"

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        loaded = load_program(artifact.path)
        module = loaded.module()
        found = list(groups(module.graph))
        if not found:
            raise CompileError("it has no layer whose channels can be taken away")
        # Chosen for all layers before the first one changes, so that the order of layers does not matter.
        for group, kept in [(group, self._kept(module, group)) for group in found]:
            thin_out(module, group, kept)
        module.recompile()
        if calibration is not None and self.fine_tuning_steps:
            self._fine_tune(loaded, module, {}, calibration)
        return self._save(exported_anew(loaded, module), destination)

    def _kept(self, module: Any, group: Group) -> Any:
        """Return the indices of the channels to keep, ascending."""
        weight = module.get_parameter(group.maker.args[1].target).detach()
        count = len(weight)
        number = count - int(self.channel_sparsity * count)
        number = min(count, -(-number // self.channel_multiple) * self.channel_multiple)
        magnitudes = weight.abs().flatten(1).sum(1)
        return magnitudes.argsort(stable=True, descending=True)[:number].sort().values
