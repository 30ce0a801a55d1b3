"""Magnitude pruning of exported PyTorch programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from nnpipe.compilers._torch_distillation import DistillingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.torch_program import load_program, matrices, replace_weights


class TorchPruner(DistillingCompiler):
    """Sets the weights of least magnitude in exported PyTorch programs to 0, with optional fine-tuning.

    Kernels and matrices are pruned; biases and normalisations are not (Han et
    al. 2015, arXiv:1506.02626).  The file is only smaller once it is compressed,
    and only faster in a runtime that skips zeros; ``TorchChannelPruner`` makes a
    network smaller and faster everywhere.
    """

    sparsity: float = argument(0.5, help="fraction of the weights set to 0", minimum=0.0, maximum=0.999)
    scope: Literal["layer", "global"] = argument(
        "layer", help="prune this fraction of each layer, or of all layers together, which spares small layers"
    )

    def claims(self) -> tuple[Claim, ...]:
        """Return that weights are pruned and number formats are kept."""
        return ("pruned", "fine-tuned") if self.fine_tuning_steps else ("pruned",)

    def variant(self) -> str:
        """Return the sparsity."""
        return f"pruned-{round(self.sparsity * 1000) / 10:g}"

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        loaded = load_program(artifact.path)
        names = matrices(loaded.native)
        if not names:
            raise CompileError("it has no floating-point weights to prune; prune a model before it is quantised")
        masks = self._masks({name: loaded.native.state_dict[name].detach() for name in names})
        state = {name: loaded.native.state_dict[name].detach() * mask for name, mask in masks.items()}
        if calibration is not None and self.fine_tuning_steps:
            student = loaded.module()
            weights = dict(student.named_parameters(remove_duplicate=False))
            for name, tensor in state.items():
                weights[name].data.copy_(tensor)
            self._fine_tune(loaded, student, masks, calibration)
            state = {name: tensor.detach() for name, tensor in student.named_parameters(remove_duplicate=False)}
        replace_weights(loaded.native, state)
        return self._save(loaded.native, destination)

    def _masks(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Return masks by weight name: 0 for pruned weights, 1 for kept ones."""
        import torch

        groups = [list(weights)] if self.scope == "global" else [[name] for name in weights]
        masks: dict[str, Any] = {}
        for names in groups:
            magnitudes = torch.cat([weights[name].abs().flatten() for name in names])
            mask = torch.ones_like(magnitudes)
            # A stable sort, so that the number of zeros is exact and the choice reproducible.
            mask[magnitudes.argsort(stable=True)[: int(self.sparsity * magnitudes.numel())]] = 0
            parts = mask.split([weights[name].numel() for name in names])
            masks |= {name: part.view_as(weights[name]) for name, part in zip(names, parts, strict=True)}
        return masks
