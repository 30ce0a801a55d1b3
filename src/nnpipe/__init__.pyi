"""What type checkers see of nnpipe; at run time each name is imported when it is first used."""

from nnpipe.analysis.agreement import Tolerances as Tolerances
from nnpipe.analysis.kernel_table import KernelTable as KernelTable
from nnpipe.core.arguments import argument as argument
from nnpipe.core.artifact import Artifact as Artifact
from nnpipe.core.compiler import ModelCompiler as ModelCompiler
from nnpipe.core.component import Component as Component
from nnpipe.core.dataset import Dataset as Dataset
from nnpipe.core.energy_meter import EnergyMeter as EnergyMeter
from nnpipe.core.errors import (
    ArtifactError as ArtifactError,
)
from nnpipe.core.errors import (
    AuthenticationError as AuthenticationError,
)
from nnpipe.core.errors import (
    CompileError as CompileError,
)
from nnpipe.core.errors import (
    ComponentNotFound as ComponentNotFound,
)
from nnpipe.core.errors import (
    ConfigError as ConfigError,
)
from nnpipe.core.errors import (
    ConversionError as ConversionError,
)
from nnpipe.core.errors import (
    DatasetError as DatasetError,
)
from nnpipe.core.errors import (
    MissingDependency as MissingDependency,
)
from nnpipe.core.errors import (
    MissingTool as MissingTool,
)
from nnpipe.core.errors import (
    NNPipeError as NNPipeError,
)
from nnpipe.core.errors import (
    NotSupported as NotSupported,
)
from nnpipe.core.errors import (
    ProtocolError as ProtocolError,
)
from nnpipe.core.errors import (
    SpecMismatch as SpecMismatch,
)
from nnpipe.core.errors import (
    StorageError as StorageError,
)
from nnpipe.core.errors import (
    TargetError as TargetError,
)
from nnpipe.core.errors import (
    TrainingError as TrainingError,
)
from nnpipe.core.errors import (
    TransportError as TransportError,
)
from nnpipe.core.evaluation import Evaluation as Evaluation
from nnpipe.core.graph import (
    Graph as Graph,
)
from nnpipe.core.graph import (
    Operation as Operation,
)
from nnpipe.core.graph import (
    Profile as Profile,
)
from nnpipe.core.graph import (
    Selector as Selector,
)
from nnpipe.core.input_transform import InputTransform as InputTransform
from nnpipe.core.live_model import LiveModel as LiveModel
from nnpipe.core.model import ModelWrapper as ModelWrapper
from nnpipe.core.model_metadata import ModelMetadata as ModelMetadata
from nnpipe.core.model_metadata import Preparation as Preparation
from nnpipe.core.onnx_conversion import ONNXConversion as ONNXConversion
from nnpipe.core.output_decoder import OutputDecoder as OutputDecoder
from nnpipe.core.plan import Plan as Plan
from nnpipe.core.plan import plan as plan
from nnpipe.core.quality_metric import QualityMetric as QualityMetric
from nnpipe.core.registry import components as components
from nnpipe.core.registry import find as find
from nnpipe.core.runtime import Runtime as Runtime
from nnpipe.core.runtime_protocol import RemoteOptions as RemoteOptions
from nnpipe.core.runtime_protocol import RuntimeProtocol as RuntimeProtocol
from nnpipe.core.runtime_protocol import ServerOptions as ServerOptions
from nnpipe.core.session import InferenceSession as InferenceSession
from nnpipe.core.task import Task as Task
from nnpipe.core.tensor_metadata import InputProcessing as InputProcessing
from nnpipe.core.tensor_metadata import OutputMetadata as OutputMetadata
from nnpipe.core.tensors import DatasetSpec as DatasetSpec
from nnpipe.core.tensors import IOSpec as IOSpec
from nnpipe.core.tensors import TensorSpec as TensorSpec
from nnpipe.core.training import TrainingHistory as TrainingHistory
from nnpipe.core.training import TrainingOptions as TrainingOptions
from nnpipe.datasets.arrays import ArraysDataset as ArraysDataset
from nnpipe.measuring.benchmark import benchmark as benchmark
from nnpipe.measuring.comparison import Comparison as Comparison
from nnpipe.measuring.load_options import LoadOptions as LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions as MeasureOptions
from nnpipe.measuring.run import Run as Run
from nnpipe.workflows.candidates.deployment import Deployment as Deployment
from nnpipe.workflows.comparison.compare import compare as compare
from nnpipe.workflows.comparison.compare_models import compare_models as compare_models
from nnpipe.workflows.comparison.compare_models import compare_pipeline as compare_pipeline
from nnpipe.workflows.comparison.result import Choice as Choice
from nnpipe.workflows.comparison.result import ComparisonResult as ComparisonResult
from nnpipe.workflows.devices.device import Device as Device
from nnpipe.workflows.devices.device import Fleet as Fleet
from nnpipe.workflows.devices.device import read_devices as read_devices
from nnpipe.workflows.explanation.explain import explain as explain
from nnpipe.workflows.explanation.explain_result import ExplainResult as ExplainResult
from nnpipe.workflows.measurement.compile import compile as compile
from nnpipe.workflows.measurement.measure import Measurement as Measurement
from nnpipe.workflows.measurement.measure import measure as measure
from nnpipe.workflows.mixing.mix import mix as mix
from nnpipe.workflows.mixing.mix_result import MixResult as MixResult
from nnpipe.workflows.pipeline.run import PipelineResult as PipelineResult
from nnpipe.workflows.pipeline.run import run_pipeline as run_pipeline
from nnpipe.workflows.prediction.learn import learn_kernels as learn_kernels
from nnpipe.workflows.prediction.predict import predict as predict
from nnpipe.workflows.prediction.predict import read_kernels as read_kernels
from nnpipe.workflows.prediction.predict_result import PredictResult as PredictResult
from nnpipe.workflows.recipes import Recipe as Recipe
from nnpipe.workflows.recipes import recipes as recipes
from nnpipe.workflows.reduction.reduce import ReduceResult as ReduceResult
from nnpipe.workflows.reduction.reduce import reduce as reduce
from nnpipe.workflows.roofline.roofline import read_ceilings as read_ceilings
from nnpipe.workflows.roofline.roofline import roofline as roofline
from nnpipe.workflows.roofline.roofline_result import RooflineResult as RooflineResult
from nnpipe.workflows.search.result import SearchResult as SearchResult
from nnpipe.workflows.search.search import search as search
from nnpipe.workflows.sweep.sweep import read_sweep as read_sweep
from nnpipe.workflows.sweep.sweep import sweep as sweep
from nnpipe.workflows.sweep.sweep_result import SweepResult as SweepResult
from nnpipe.workflows.testrun.testrun import TestrunResult as TestrunResult
from nnpipe.workflows.testrun.testrun import testrun as testrun
from nnpipe.workflows.verification.compare_outputs import VerifyOptions as VerifyOptions
from nnpipe.workflows.verification.conformance import ConformanceResult as ConformanceResult
from nnpipe.workflows.verification.conformance import conformance as conformance
from nnpipe.workflows.verification.gate import GateResult as GateResult
from nnpipe.workflows.verification.gate import gate as gate
from nnpipe.workflows.verification.onnx_support import ONNXSupport as ONNXSupport
from nnpipe.workflows.verification.onnx_support import onnx_support as onnx_support
from nnpipe.workflows.verification.verify import VerifyResult as VerifyResult
from nnpipe.workflows.verification.verify import verify as verify

__version__: str
__all__: list[str]
