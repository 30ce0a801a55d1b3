"""A base for models in PyTorch: write ``io`` and ``build``, and the rest is there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.component import overridden
from nnpipe.core.dataset import Dataset
from nnpipe.core.files import write_bytes
from nnpipe.core.graph import Graph, Profile, Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper, Samples
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, random_batch
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.frameworks.torch_session import TorchSession, check_device
from nnpipe.modelwrappers.frameworks import (
    pytorch_export,
    pytorch_graph,
    pytorch_profile,
    pytorch_step_graph,
    pytorch_training,
    pytorch_training_data,
    pytorch_weights,
)

if TYPE_CHECKING:
    from nnpipe.training.outputs.output import Output


class PyTorchWrapper(ModelWrapper):
    """A model in PyTorch.

    A subclass gives :attr:`io` and :meth:`build`.  The module's ``forward``
    takes tensors in the order of ``io.inputs``; what it gives is what
    :meth:`loss` takes, and :meth:`finish` makes of it what ``io.outputs`` says.
    The defaults of ``loss``, ``score``, ``finish`` and ``random_truth`` are
    those of a classifier: the module gives one tensor of logits, the model
    gives probabilities, and the truth is ``"label"``.

    Sessions, graphs, profiles and exports all show the model in inference,
    ``finish`` included.  The names of layers and weights are those of the
    module's own ``named_modules`` and ``state_dict``.
    """

    framework: ClassVar[str] = "PyTorch"
    weights_format: ClassVar[str] = "safetensors"
    exports: ClassVar[tuple[str, ...]] = ("onnx", "torch-export")
    requires: ClassVar[tuple[str, ...]] = ("torch", "safetensors")
    install: ClassVar[str] = "nnpipe[torch]"
    score_name: ClassVar[str] = "accuracy"
    """What :meth:`score` is called in histories and curves."""

    device: Literal["cpu", "cuda"] = argument("cpu", help="where to compute")
    num_threads: int = argument(1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0)
    onnx_opset: int = argument(18, help="version of the ONNX operators to export", minimum=13, maximum=23)

    # -- for authors ----------------------------------------------------------------------------

    @abstractmethod
    def build(self) -> Any:
        """Make the ``torch.nn.Module`` with fresh weights, drawn from PyTorch's own generator, on the CPU."""

    def loss(self, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the mean loss of a batch, as a tensor; by default the cross entropy of logits."""
        import torch

        return torch.nn.functional.cross_entropy(outputs[0], truth["label"])

    def score(self, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the mean score of a batch, as a tensor; by default the part of the samples classified rightly."""
        return (outputs[0].argmax(-1) == truth["label"]).double().mean()

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Turn what the module gives into what the model gives; by default logits into probabilities."""
        return (outputs[0].softmax(-1),)

    def random_truth(self, size: int, seed: int) -> Batch:
        """Make truth for samples of noise; by default any class."""
        classes = self.io.outputs[0].shape[-1]
        return {"label": np.random.default_rng(seed).integers(0, classes or 1, size)}

    def augment(self, inputs: Batch, rng: np.random.Generator) -> Batch:
        """Vary preprocessed training samples; nothing by default."""
        return inputs

    def training_mode(self, module: Any) -> None:
        """Make the module ready to be trained; parts that are not trained may stay in inference."""
        module.train()

    def inference_mode(self, module: Any) -> None:
        """Make the module ready to be evaluated in the course of a training, and at its end."""
        module.eval()

    def judge(self, module: Any, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Output | dict[str, Output]:
        """Return what the trainer takes of a batch: by default one output that is judged by ``loss`` and ``score``."""
        return pytorch_training_data.judged(self, outputs, truth)

    def loss_of(self, module: Any, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the mean loss of a batch where the module itself has a part in it; by default :meth:`loss`."""
        return self.loss(outputs, truth)

    def score_of(self, module: Any, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the mean score of a batch where the module itself has a part in it; by default :meth:`score`."""
        return self.score(outputs, truth)

    def classifies(self) -> bool:
        """Return whether what :meth:`judge` gives is one output, that of a classifier."""
        others = any(overridden(self, method, PyTorchWrapper) for method in ("loss", "score"))
        return not others and self.score_name == PyTorchWrapper.score_name

    def parameters_to_train(self, module: Any) -> Iterator[Any]:
        """Choose the weights that are trained; all by default."""
        return iter(module.parameters())

    def start_training(self, module: Any) -> None:
        """Change a fresh module before its first training, for example by weights from elsewhere."""

    # -- the model --------------------------------------------------------------------------------

    def fresh(self, seed: int = 0) -> Any:
        """Build the ``torch.nn.Module`` on the device; equal arguments and seeds give equal weights."""
        self.check_installed()
        check_device(self.device)
        with pytorch_training.seeded(seed, self.device):
            return self.build().to(self.device).eval()

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read weights: safetensors, or a file of ``torch.save`` that holds nothing but weights.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, belongs to another model, or asks
            for code to be run; the message names it and the model is as before.
        """
        self.check_installed()
        pytorch_weights.load_state(live.native, pytorch_weights.read_state(Path(path)), Path(path))

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write the weights as safetensors, whole or not at all."""
        module = live.native
        import safetensors
        import torch
        from safetensors.torch import save

        # Weights that share memory are written once each; safetensors refuses them otherwise.
        state = {name: value.detach().cpu().clone().contiguous() for name, value in module.state_dict().items()}
        write_bytes(path, save(state, {"format": "pt"}))
        frameworks = (("torch", str(torch.__version__)), ("safetensors", safetensors.__version__))
        return self.artifact_of(path, self.weights_format, frameworks)

    def session(self, live: LiveModel) -> InferenceSession:
        """Run the module in inference mode, with its weights as they are now."""
        module, finish = live.native.eval(), self.finish

        def call(*tensors: Any) -> tuple[Any, ...]:
            return finish(pytorch_training_data.as_tuple(module(*tensors)))

        return TorchSession(self.io, call, self.device, self.num_threads)

    def start(self, live: LiveModel, options: TrainingOptions) -> None:
        """Draw fresh weights by the seed, and let :meth:`start_training` change them, if there are none yet."""
        if not live.is_built:
            module = self.fresh(options.seed)
            self.start_training(module)
            live.native = module

    def train(
        self, live: LiveModel, dataset: Dataset, options: TrainingOptions, progress: Progress = silent
    ) -> TrainingHistory:
        """Fit the weights; on the CPU, the same seed gives the same weights to the last bit.

        A model that has no weights yet starts from fresh ones, drawn by
        ``options.seed``; one that has is trained further.

        With ``options.run_folder`` there are checkpoints, from the last of which a
        run that was killed goes on, and ``options.callbacks`` look on.

        Raises
        ------
        TrainingError
            If the loss is no longer a finite number.
        ConfigError
            If the folder holds a run that was started with different settings.
        """
        live.start(options)
        return pytorch_training.train(self, live.native, dataset, options, progress)

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model for inference as ``"onnx"`` or ``"torch-export"``, with a free batch axis.

        Raises
        ------
        ConversionError
            If PyTorch cannot export it.
        """
        self.check_installed()
        return pytorch_export.export(self, live.native, Path(path), format)

    # -- analysis ---------------------------------------------------------------------------------

    def get_training_graph(self, live: LiveModel) -> Graph:
        """Return the graph of a training step: forward, loss and gradients, without the optimiser."""
        return pytorch_step_graph.training_graph(self, live.native)

    def get_inference_graph(self, live: LiveModel) -> Graph:
        """Return the graph that ``torch.export`` makes; its tensors are named after its nodes."""
        return pytorch_graph.inference_graph(self, live.native)

    def get_weights(self, live: LiveModel, keys: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Copy weights and buffers by their names in the state dict."""
        return pytorch_weights.get_arrays(type(self).__name__, live.native.state_dict(), keys)

    def set_weights(self, live: LiveModel, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the weights and buffers named and leave the rest alone."""
        pytorch_weights.set_arrays(type(self).__name__, live.native.state_dict(), weights)

    def run_training(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[tuple[float, float]]:
        """Train for some steps with AdamW and give ``(loss, score)`` of each, taken before the step."""
        return pytorch_training.run_steps(self, live.native, n_steps, samples)

    def run_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Run some batches and give the outputs of each."""
        with live.session() as session:
            return [session.infer(inputs) for inputs, _ in pytorch_training.some(self, n_steps, samples)]

    def profile_training(self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None) -> Profile:
        """Measure the time of each operator in training steps, without those it calls; the weights stay as they are."""
        return pytorch_profile.profile_training(self, live.native, n_steps, samples)

    def profile_inference(self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None) -> Profile:
        """Measure the time of each operation of the inference graph."""
        return pytorch_profile.profile_inference(self, live.native, n_steps, samples)

    def get_intermediates(
        self, live: LiveModel, selector: Selector, inputs: Batch | None = None, given: Batch | None = None
    ) -> dict[str, np.ndarray]:
        """Run one batch through the inference graph and give the values chosen, by tensor name."""
        batch = random_batch(self.io, 1) if inputs is None else inputs
        program = pytorch_export.exported_program(self, live.native)
        graph = pytorch_graph.graph_of_program(self, program)
        return pytorch_graph.intermediates(self, program, graph, selector, batch, given or {})
