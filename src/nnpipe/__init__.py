"""nnpipe: which model, compiled how, on which runtime and device, and can you trust the numbers?

    import nnpipe as nnp
    ways = ["onnx", "onnx-int8", "openvino-int8"]
    result = nnp.compare("model.onnx", data=(images, labels), ways=ways)
    result.show()
    result.best(accuracy_loss=0.01, by="latency_p90").save("ship/")

Every name of ``__all__`` is imported when it is first used, so that importing nnpipe costs nothing.
"""

import os as _os
import sys as _sys

from nnpipe.core.telemetry import switch_off_telemetry as _switch_off_telemetry

# here, before any import of the packages that it is about
_switch_off_telemetry(_os.environ, _sys.modules)

__version__ = "0.1.0"

# Where each name is at home.  ``__init__.pyi`` says the same to type checkers; a test holds the two
# together.
_HOMES = {
    "analysis.agreement": ("Tolerances",),
    "analysis.kernel_table": ("KernelTable",),
    "core.arguments": ("argument",),
    "core.artifact": ("Artifact",),
    "core.compiler": ("ModelCompiler",),
    "core.component": ("Component",),
    "core.dataset": ("Dataset",),
    "core.energy_meter": ("EnergyMeter",),
    "core.errors": (
        "ArtifactError", "AuthenticationError", "CompileError", "ComponentNotFound", "ConfigError",
        "ConversionError", "DatasetError", "MissingDependency", "MissingTool", "NNPipeError", "NotSupported",
        "ProtocolError", "SpecMismatch", "StorageError", "TargetError", "TrainingError", "TransportError",
    ),
    "core.evaluation": ("Evaluation",),
    "core.graph": ("Graph", "Operation", "Profile", "Selector"),
    "core.input_transform": ("InputTransform",),
    "core.live_model": ("LiveModel",),
    "core.model_metadata": ("ModelMetadata", "Preparation"),
    "core.model": ("ModelWrapper",),
    "core.onnx_conversion": ("ONNXConversion",),
    "core.output_decoder": ("OutputDecoder",),
    "core.plan": ("Plan", "plan"),
    "core.quality_metric": ("QualityMetric",),
    "core.registry": ("components", "find"),
    "core.runtime": ("Runtime",),
    "core.runtime_protocol": ("RemoteOptions", "RuntimeProtocol", "ServerOptions"),
    "core.session": ("InferenceSession",),
    "core.task": ("Task",),
    "core.tensor_metadata": ("InputProcessing", "OutputMetadata"),
    "core.tensors": ("DatasetSpec", "IOSpec", "TensorSpec"),
    "core.training": ("TrainingHistory", "TrainingOptions"),
    "datasets.arrays": ("ArraysDataset",),
    "measuring.benchmark": ("benchmark",),
    "measuring.comparison": ("Comparison",),
    "measuring.load_options": ("LoadOptions",),
    "measuring.measure_options": ("MeasureOptions",),
    "measuring.run": ("Run",),
    "workflows.candidates.deployment": ("Deployment",),
    "workflows.comparison.compare": ("compare",),
    "workflows.comparison.compare_models": ("compare_models", "compare_pipeline"),
    "workflows.comparison.result": ("Choice", "ComparisonResult"),
    "workflows.devices.device": ("Device", "Fleet", "read_devices"),
    "workflows.explanation.explain": ("explain",),
    "workflows.explanation.explain_result": ("ExplainResult",),
    "workflows.measurement.compile": ("compile",),
    "workflows.measurement.measure": ("Measurement", "measure"),
    "workflows.mixing.mix": ("mix",),
    "workflows.mixing.mix_result": ("MixResult",),
    "workflows.pipeline.run": ("PipelineResult", "run_pipeline"),
    "workflows.prediction.learn": ("learn_kernels",),
    "workflows.prediction.predict": ("predict", "read_kernels"),
    "workflows.prediction.predict_result": ("PredictResult",),
    "workflows.reduction.reduce": ("ReduceResult", "reduce"),
    "workflows.roofline.roofline": ("read_ceilings", "roofline"),
    "workflows.roofline.roofline_result": ("RooflineResult",),
    "workflows.search.result": ("SearchResult",),
    "workflows.search.search": ("search",),
    "workflows.sweep.sweep": ("read_sweep", "sweep"),
    "workflows.sweep.sweep_result": ("SweepResult",),
    "workflows.testrun.testrun": ("TestrunResult", "testrun"),
    "workflows.verification.compare_outputs": ("VerifyOptions",),
    "workflows.verification.conformance": ("ConformanceResult", "conformance"),
    "workflows.verification.gate": ("GateResult", "gate"),
    "workflows.verification.onnx_support": ("ONNXSupport", "onnx_support"),
    "workflows.verification.verify": ("VerifyResult", "verify"),
    "workflows.recipes": ("Recipe", "recipes"),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'nnpipe' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"nnpipe.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})
