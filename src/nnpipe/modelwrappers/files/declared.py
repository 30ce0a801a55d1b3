"""Networks declared layer by layer in a file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import suggest_name
from nnpipe.core.model_metadata import ModelMetadata, Preparation, Source
from nnpipe.core.progress import Progress, silent
from nnpipe.core.tensor_metadata import OutputMetadata
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.frameworks.torch_session import check_device
from nnpipe.frameworks.training_curves import OUTPUT
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.loss_outputs import find_loss_outputs, finish, to_inference
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.graph.weights import Weights, find_weight_problems, list_variables
from nnpipe.layers.imports.network_files import KERAS, ONNX, from_onnx, read_network
from nnpipe.layers.keras.named_layers import TakesOwnLayers
from nnpipe.layers.keras.open_file import select_training_only
from nnpipe.layers.keras.read_file import Reading, read_keras
from nnpipe.layers.keras.to_config import write_keras
from nnpipe.layers.problems import raise_if
from nnpipe.layers.torch.to_torch import find_backend_problems, to_torch, torch_weights
from nnpipe.layers.torch.to_trainer import LossEvaluator
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.outputs import OutputClassification
from nnpipe.modelwrappers.files._input_options import ModelFacts, read_model_facts
from nnpipe.modelwrappers.files._preprocessing import Preprocessing
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

if TYPE_CHECKING:
    from nnpipe.training.outputs.output import Output


class DeclaredModel(Preprocessing, PyTorchWrapper, TakesOwnLayers):
    """A network declared layer by layer in a YAML, JSON, Keras or ONNX file, trained in PyTorch.

    Its output layers declare the losses for training; the model returns results
    such as probabilities in place of logits.  Inputs and outputs have the names of
    their layers.  It is exported from PyTorch, or written for Keras without Keras.
    """

    exports: ClassVar[tuple[str, ...]] = ("onnx", "torch-export", "keras")

    network: Path = argument(help="file that declares the network", metavar="PATH")

    @property
    def _name(self) -> str:
        return f"{type(self).__name__} ({self.network})"

    @cached_property
    def declared(self) -> Reading:
        """The content of the file."""
        reading = read_network(self.network, self.own_layers)
        assert reading.graph is not None  # otherwise reading raises
        raise_if(find_backend_problems(reading.graph, "torch"), str(self.network))
        return reading

    @property
    def graph(self) -> NetworkGraph:
        """The network."""
        graph = self.declared.graph
        assert graph is not None
        return graph

    @cached_property
    def io(self) -> IOSpec:
        """Inputs and outputs of the network, by the names of their layers."""
        graph, shapes = self.graph, infer(self.graph).shapes
        inputs = []
        for ref in graph.inputs:
            layer = graph.layers[ref.layer]
            assert isinstance(layer, Input)
            inputs.append(TensorSpec(layer.name, (layer.batch, *layer.shape), layer.dtype))
        # If a layer gives several of the outputs, a number follows its name.
        names = [ref.layer for ref in graph.outputs]
        alone = len(set(names)) == len(names)
        outputs = [
            TensorSpec(name if alone else f"{name}_{number}", shapes[ref], "float32")
            for number, (name, ref) in enumerate(zip(names, graph.outputs, strict=True))
        ]
        return IOSpec(tuple(inputs), tuple(outputs))

    def read_facts(self) -> ModelFacts:
        """Return the meaning of the outputs from their losses, and other facts from the file's
        description.
        """
        found = ModelFacts()
        if get_sidecar_path(self.network).is_file():
            found = read_model_facts(Artifact.read(self.network, check=False))
        if found != ModelFacts():
            return found
        names = {spec.name for spec in self.io.outputs}
        outputs = tuple(
            OutputMetadata(name, "probabilities")
            for name, output in find_loss_outputs(self.graph).items()
            if isinstance(output, OutputClassification) and name in names
        )
        return ModelFacts(ModelMetadata(outputs=outputs))

    def preparation(self) -> Preparation:
        """Return how samples are prepared, according to options or the file's description.

        A network that is trained here needs none; for weights from a file without a
        description, the preparation is not known.
        """
        found = super().preparation()
        if self._facts.by or self._facts.maker is not None:
            return found
        said = self._given.keys() & {"scale", "mean", "deviation", "quantised"}
        source: Source = "options" if said else "unknown" if self.declared.weights else "wrapper"
        return Preparation(source, self._name, found.meaning)

    def build(self) -> Any:
        """Return the network in PyTorch, with the weights of the file if it has any."""
        import torch

        seed = int(torch.randint(1 << 31, ()))  # follows the caller's seed
        return self._build_module(self.declared.weights or None, seed)

    def _build_module(self, weights: Weights | None, seed: int = 0) -> Any:
        module = to_torch(self.graph, weights, seed=seed)
        if find_loss_outputs(self.graph) and self._judge.constrained:
            module.register_forward_pre_hook(
                lambda module, _: module.constrain() if module.training else None
            )
        return module

    # -- losses
    # -------------------------------------------------------------------------------------

    @cached_property
    def _judge(self) -> LossEvaluator:
        return LossEvaluator.from_graph(self.graph)

    def classifies(self) -> bool:
        """Return whether its only output is a classification."""
        outputs = list(find_loss_outputs(self.graph).values())
        return len(outputs) == 1 and isinstance(outputs[0], OutputClassification)

    def judge(
        self, module: Any, outputs: tuple[Any, ...], truth: Mapping[str, Any]
    ) -> dict[str, Output]:
        """Return each output with the loss that it declares."""
        found = self._judge(module, outputs, truth)
        alone = len(self._judge.outputs) == 1
        return {
            OUTPUT if alone and name in self._judge.outputs else name: output
            for name, output in found.items()
        }

    def loss_of(self, module: Any, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the sum of all losses and penalties."""
        return sum(output.loss() for output in self.judge(module, outputs, truth).values())

    def score_of(self, module: Any, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the first metric of the first output that has one, otherwise the loss."""
        from nnpipe.training.outputs.output import compute_figure

        for output in self.judge(module, outputs, truth).values():
            for metric in output.metrics().values():
                above = metric.numerator.double().cpu().numpy()
                below = (
                    np.ones(len(above))
                    if metric.denominator is None
                    else metric.denominator.double().cpu().numpy()
                )
                return compute_figure(above.sum(0), below.sum(0), metric.finish)
        return self.loss_of(module, outputs, truth)

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the results, such as probabilities, of the module's outputs."""
        return finish(self.graph, outputs)

    def random_truth(self, size: int, seed: int) -> Batch:
        """Return random targets for samples of noise, by output."""
        random = np.random.default_rng(seed)
        shapes = {spec.name: spec.shape for spec in self.io.outputs}
        found: dict[str, np.ndarray] = {}
        for name, output in self._judge.outputs.items():
            truth = output.draw_truth((size, *(extent or 1 for extent in shapes[name][1:])), random)
            if output.target is not None and output.target not in found:
                found[output.target] = np.zeros(size, np.int64) if truth is None else truth
            if output.weights is not None:
                found[output.weights] = np.ones(size, np.float32)
        return found

    def inference_mode(self, module: Any) -> None:
        """Set inference mode, and apply the constraints to the weights."""
        if self._judge.constrained:
            module.constrain()
        super().inference_mode(module)

    def train(
        self,
        live: LiveModel,
        dataset: Dataset,
        options: TrainingOptions,
        progress: Progress = silent,
    ) -> TrainingHistory:
        """Fit the weights by the losses that the outputs declare.

        Raises
        ------
        ConfigError
            If no output declares a loss, the data set lacks a target, or the file has settings
            for training that are not known here.
        """
        raise_if(
            select_training_only(self.declared.problems),
            f"{self.network} can be run and not be trained",
        )
        dataset.prepare()
        # An autoencoder's output names the network's own input.
        there = [spec.name for spec in (*dataset.spec.targets, *self.io.inputs)]
        for name, output in self._judge.outputs.items():
            for asked in (output.target, output.weights):
                if asked is not None and asked not in there:
                    raise ConfigError(
                        f"{self._name}: the output {name!r} is judged by {asked!r}, which "
                        f"{type(dataset).__name__} lacks; it has "
                        f"{', '.join(there)}{suggest_name(asked, there)}"
                    )
        return super().train(live, dataset, options, progress)

    # -- files
    # ----------------------------------------------------------------------------------------

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read weights that :meth:`save` wrote, or those of the same network in a Keras or ONNX
        file.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or its weights are not those of this network.
        """
        path = Path(path)
        if path.suffix not in (*KERAS, *ONNX):
            super().load(live, path)
            return
        self.check_installed()
        reading = from_onnx(path) if path.suffix in ONNX else read_keras(path, self.graph)
        problems = find_weight_problems(list_variables(self.graph), reading.weights)
        damage = [problem for problem in reading.problems if problem.code in ("damaged", "size")]
        if damage or problems:
            told = "; ".join(str(problem) for problem in (damage or problems)[:3])
            raise ArtifactError(
                f"{path}: has not the weights of the network in {self.network}: {told}"
            )
        check_device(self.device)
        live.native = self._build_module(reading.weights).to(self.device).eval()

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the network for inference as ``"onnx"``, ``"torch-export"`` or ``"keras"``.

        Raises
        ------
        ConversionError
            If PyTorch cannot export it.
        ConfigError
            If Keras lacks one of its layers.
        """
        if format != "keras":
            return super().export(live, path, format)
        self.check_installed()
        import h5py
        import torch

        write_keras(path, to_inference(self.graph), torch_weights(live.native))
        frameworks = (("torch", str(torch.__version__)), ("h5py", h5py.__version__))
        return self.artifact_of(path, format, frameworks)
