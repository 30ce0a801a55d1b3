"""Training with rounded numbers: a network learns while weights and activations have 8 bits (Jacob
et al., 2018).

    python examples/recipes/quantised.py runs/quantised

It is trained with real numbers first.  Kill it and start it again: it goes on where it was, to the
bit.
"""

import sys
from pathlib import Path

import torch
from torchao.quantization.pt2e import allow_exported_model_train_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

from nnpipe.datasets.digits import DigitsDataset
from nnpipe.training.callbacks.history import EpochSummary
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.training.trainer import Trainer


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3),
            torch.nn.ReLU(),
            torch.nn.Conv2d(16, 16, 3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(256, 10),
        )

    def forward(self, batch):
        scores = self.layers(batch["image"].permute(0, 3, 1, 2) / 16)
        return {"digit": ClassificationOutput(scores, batch["label"])}


def rounding(layers):
    """Return the layers with rounding behind weights and activations, whose ranges are learned."""
    example, batch = torch.rand(4, 1, 8, 8), torch.export.Dim("batch", min=2)
    program = torch.export.export(layers.eval(), (example,), dynamic_shapes=({0: batch},)).module()
    config = x86.get_default_x86_inductor_quantization_config(is_qat=True)
    made = prepare_qat_pt2e(program, x86.X86InductorQuantizer().set_global(config))
    return allow_exported_model_train_eval(made)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    splits = {
        split: DatasetSequence(DigitsDataset(), split, batch=64, shuffle=True)
        for split in ("train", "test")
    }
    trainer = Trainer(TrainerOptions(num_epochs=6, checkpoint_every=10), [EpochSummary()])
    model = trainer.build(Net)
    trainer.fit(
        model, splits, folder=folder / "real", optimiser=AdamW(rate=5e-3), schedule=Cosine()
    )
    model.layers = rounding(model.layers)
    trainer.fit(
        model, splits, folder=folder / "rounded", optimiser=AdamW(rate=3e-4), schedule=Cosine()
    )
    model.layers = allow_exported_model_train_eval(convert_pt2e(model.layers))
    print(
        f"accuracy in integers: {trainer.evaluate(model, splits)['data/test/digit/accuracy']:.1%}"
    )
