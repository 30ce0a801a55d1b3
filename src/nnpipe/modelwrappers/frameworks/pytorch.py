"""The base of models in PyTorch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.component import is_overridden
from nnpipe.core.dataset import Dataset
from nnpipe.core.files import write_bytes
from nnpipe.core.graph import Graph, Profile, Selector, Shapes
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper, Samples
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.frameworks.torch_session import TorchSession, check_device
from nnpipe.frameworks.torch_state import find_module_state
from nnpipe.modelwrappers.frameworks import (
    pytorch_export,
    pytorch_graph,
    pytorch_profile,
    pytorch_training,
    pytorch_weights,
)

if TYPE_CHECKING:
    from nnpipe.training.outputs.output import Output


class PyTorchWrapper(ModelWrapper):
    """A model in PyTorch.

    A subclass writes :attr:`io` and :meth:`build`.  The module's ``forward``
    takes tensors in the order of ``io.inputs``; :meth:`loss` takes its results,
    and :meth:`finish` turns them into the tensors of ``io.outputs``.
    The defaults of ``loss``, ``score``, ``finish`` and ``random_truth`` are
    those of a classifier: the module returns one tensor of logits, the model
    returns probabilities, and the target is ``"label"``.

    Sessions, graphs, profiles and exports contain the model for inference,
    ``finish`` included.  The names of layers and weights are those of the
    module's own ``named_modules`` and ``state_dict``.
    """

    framework: ClassVar[str] = "PyTorch"
    weights_format: ClassVar[str] = "safetensors"
    exports: ClassVar[tuple[str, ...]] = ("onnx", "torch-export")
    requires: ClassVar[tuple[str, ...]] = ("torch", "safetensors")
    install: ClassVar[str] = "nnpipe[torch]"
    score_name: ClassVar[str] = "accuracy"
    """Name of :meth:`score` in histories and curves."""

    device: Literal["cpu", "cuda"] = argument("cpu", help="where to compute")
    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )
    onnx_opset: int = argument(
        18, help="version of the ONNX operators to export", minimum=13, maximum=23
    )

    # -- for authors ----------------------------------------------------------------------------

    @abstractmethod
    def build(self) -> Any:
        """Return a ``torch.nn.Module`` on the CPU, with initial weights drawn from PyTorch's
        generator.
        """

    def loss(self, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the mean loss of a batch, a scalar tensor; by default the cross entropy of
        logits.
        """
        import torch

        return torch.nn.functional.cross_entropy(outputs[0], truth["label"])

    def score(self, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the mean score of a batch, a scalar tensor; by default the accuracy."""
        return (outputs[0].argmax(-1) == truth["label"]).double().mean()

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the model's outputs for the module's results; by default probabilities for
        logits.
        """
        return (outputs[0].softmax(-1),)

    def random_truth(self, size: int, seed: int) -> Batch:
        """Return random targets for samples of noise; by default random classes."""
        classes = self.io.outputs[0].shape[-1]
        return {"label": np.random.default_rng(seed).integers(0, classes or 1, size)}

    def augment(self, inputs: Batch, rng: np.random.Generator) -> Batch:
        """Return preprocessed training samples with random changes; unchanged by default."""
        return inputs

    def training_mode(self, module: Any) -> None:
        """Set the module to training mode; parts that are not trained may stay in inference
        mode.
        """
        module.train()

    def inference_mode(self, module: Any) -> None:
        """Set the module to inference mode for evaluations during training and at its end."""
        module.eval()

    def judge(
        self, module: Any, outputs: tuple[Any, ...], truth: Mapping[str, Any]
    ) -> Output | dict[str, Output]:
        """Return the trainer's output of a batch; by default one with the loss ``loss`` and the
        metric ``score``.
        """
        return pytorch_training.make_output(self, outputs, truth)

    def loss_of(self, module: Any, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the mean loss of a batch if it depends on the module, as penalties do; by
        default :meth:`loss`.
        """
        return self.loss(outputs, truth)

    def score_of(self, module: Any, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the mean score of a batch if it depends on the module; by default
        :meth:`score`.
        """
        return self.score(outputs, truth)

    def classifies(self) -> bool:
        """Return whether :meth:`judge` returns one output, a classification."""
        others = any(is_overridden(self, method, PyTorchWrapper) for method in ("loss", "score"))
        return not others and self.score_name == PyTorchWrapper.score_name

    def parameters_to_train(self, module: Any) -> Iterator[Any]:
        """Yield the weights to train; all by default."""
        return iter(module.parameters())

    def start_training(self, module: Any) -> None:
        """Change a new module before its first training, for example to set pretrained weights."""

    # -- the model --------------------------------------------------------------------------------

    def fresh(self, seed: int = 0) -> Any:
        """Return a new ``torch.nn.Module`` on the device; equal arguments and seeds give equal
        weights.
        """
        self.check_installed()
        check_device(self.device)
        with pytorch_training.apply_seed(seed, self.device):
            return self.build().to(self.device).eval()

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read weights from a safetensors file, or from a file of ``torch.save`` that holds weights
        only.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, belongs to another model, or would
            run code; the message names it, and the model stays unchanged.
        """
        self.check_installed()
        pytorch_weights.load_state(live.native, pytorch_weights.read_state(Path(path)), Path(path))

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write the weights to a safetensors file, whole or not at all."""
        module = live.native
        import safetensors
        import torch
        from safetensors.torch import save

        # Weights that share memory are copied; safetensors rejects shared memory.
        state = {
            name: value.detach().cpu().clone().contiguous()
            for name, value in module.state_dict().items()
        }
        write_bytes(path, save(state, {"format": "pt"}))
        frameworks = (("torch", str(torch.__version__)), ("safetensors", safetensors.__version__))
        return self.artifact_of(path, self.weights_format, frameworks)

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the module in inference mode with its present weights."""
        module, finish = live.native.eval(), self.finish

        def call(*tensors: Any) -> tuple[Any, ...]:
            return finish(pytorch_training.as_tuple(module(*tensors)))

        return TorchSession(self.io, call, self.device, self.num_threads, find_module_state(module))

    def start(self, live: LiveModel, options: TrainingOptions) -> None:
        """Draw initial weights from the seed and call :meth:`start_training`, if the model has
        no weights yet.
        """
        if not live.is_built:
            module = self.fresh(options.seed)
            self.start_training(module)
            live.native = module

    def train(
        self,
        live: LiveModel,
        dataset: Dataset,
        options: TrainingOptions,
        progress: Progress = silent,
    ) -> TrainingHistory:
        """Fit the weights; on the CPU, equal seeds give equal weights, bit by bit.

        A model without weights starts from initial weights drawn from
        ``options.seed``; a model with weights is trained further.

        With ``options.run_folder``, checkpoints are written, a killed run resumes
        from the last one, and ``options.callbacks`` are called.

        Raises
        ------
        TrainingError
            If the loss becomes infinite or NaN.
        ConfigError
            If the folder holds a run that was started with different settings.
        """
        live.start(options)
        return pytorch_training.train(self, live.native, dataset, options, progress)

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model for inference as ``"onnx"`` or ``"torch-export"``, with a free batch
        axis.

        Raises
        ------
        ConversionError
            If PyTorch cannot export it.
        """
        self.check_installed()
        return pytorch_export.export(self, live.native, Path(path), format)

    # -- analysis ---------------------------------------------------------------------------------

    def get_training_graph(self, live: LiveModel) -> Graph:
        """Return the graph of a training step: forward, loss and gradients, without the
        optimiser.
        """
        return pytorch_profile.trace_training_graph(self, live.native)

    def get_inference_graph(self, live: LiveModel) -> Graph:
        """Return the graph of ``torch.export``; its tensors are named after its nodes."""
        return pytorch_graph.build_inference_graph(self, live.native)

    def get_sized_graph(self, live: LiveModel, shapes: Shapes) -> Graph:
        """Return the graph of ``torch.export`` with the lengths that follow from those of the
        inputs.
        """
        return pytorch_graph.build_inference_graph(self, live.native, shapes)

    def get_weights(
        self, live: LiveModel, keys: Iterable[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return copies of weights and buffers by their names in the state dict."""
        return pytorch_weights.get_arrays(type(self).__name__, live.native.state_dict(), keys)

    def set_weights(self, live: LiveModel, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the named weights and buffers; the others stay."""
        pytorch_weights.set_arrays(type(self).__name__, live.native.state_dict(), weights)

    def run_training(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[tuple[float, float]]:
        """Train for some steps with AdamW and return ``(loss, score)`` of each, measured before
        its update.
        """
        return pytorch_training.run_steps(self, live.native, n_steps, samples)

    def run_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Run some batches and return the outputs of each."""
        with live.session() as session:
            return [
                session.infer(inputs)
                for inputs, _ in pytorch_training.iter_samples(self, n_steps, samples)
            ]

    def profile_training(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> Profile:
        """Return the time of each operator in training steps, without those it calls; weights
        stay unchanged.
        """
        return pytorch_profile.profile_training(self, live.native, n_steps, samples)

    def profile_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> Profile:
        """Return the time of each operation of the inference graph."""
        return pytorch_profile.profile_inference(self, live.native, n_steps, samples)

    def get_intermediates(
        self,
        live: LiveModel,
        selector: Selector,
        inputs: Batch | None = None,
        given: Batch | None = None,
    ) -> dict[str, np.ndarray]:
        """Run one batch through the inference graph and return the selected values by tensor
        name.
        """
        batch = generate_random_batch(self.io, 1) if inputs is None else inputs
        program = pytorch_export.export_program(self, live.native)
        graph = pytorch_graph.convert_program(self, program)
        return pytorch_graph.compute_intermediates(
            self, program, graph, selector, batch, given or {}
        )
