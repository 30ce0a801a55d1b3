"""Exported PyTorch programs with the least of their weights set to 0."""

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
    """Exported PyTorch programs whose weights of least magnitude are 0, fine-tuned where that is asked for.

    Kernels and matrices are pruned; biases and normalisations are not (Han et
    al. 2015, arXiv:1506.02626).  The file keeps its size until something
    compresses it, and a runtime gains nothing unless it skips zeros; to make
    a network smaller and faster everywhere, take whole channels away.
    """

    sparsity: float = argument(0.5, help="part of the weights that becomes 0", minimum=0.0, maximum=0.999)
    scope: Literal["layer", "global"] = argument(
        "layer", help="take that part from each layer, or from all of them together, which spares small layers"
    )

    def claims(self) -> tuple[Claim, ...]:
        """Weights taken away, the rest as it was unless it was fine-tuned."""
        return ("pruned", "fine-tuned") if self.fine_tuning_steps else ("pruned",)

    def variant(self) -> str:
        """Name the part taken away."""
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
        """Return 0 where a weight goes and 1 where it stays, by name."""
        import torch

        groups = [list(weights)] if self.scope == "global" else [[name] for name in weights]
        masks: dict[str, Any] = {}
        for names in groups:
            magnitudes = torch.cat([weights[name].abs().flatten() for name in names])
            mask = torch.ones_like(magnitudes)
            # A stable order, so that exactly so many go, and the same ones every time.
            mask[magnitudes.argsort(stable=True)[: int(self.sparsity * magnitudes.numel())]] = 0
            parts = mask.split([weights[name].numel() for name in names])
            masks |= {name: part.view_as(weights[name]) for name, part in zip(names, parts, strict=True)}
        return masks
