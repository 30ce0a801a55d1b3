"""The JSON Schema of sweep files, for editors."""

from __future__ import annotations

from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime
from nnpipe.core.task import list_installed_tasks
from nnpipe.core.training import TrainingOptions
from nnpipe.measuring.constraints import list_metrics
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.validity_warning import BARRING
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.devices.device import USUAL
from nnpipe.workflows.devices.device_measuring import PATIENCE
from nnpipe.workflows.devices.schema import build_fleet_schema
from nnpipe.workflows.pipeline.entries import MOST
from nnpipe.workflows.pipeline.schema import (
    DIALECT,
    Schema,
    build_arguments_schema,
    build_choice_schema,
    build_object_schema,
)
from nnpipe.workflows.sweep.file import CONFIRMATIONS
from nnpipe.workflows.verification.compare_outputs import VerifyOptions


def build_sweep_schema(of_plugins: bool = True) -> Schema:
    """Return the JSON Schema (draft 2020-12) of sweep files, for all components, optionally
    those of plugins.
    """
    tasks = list_installed_tasks(of_plugins)
    text = {"type": "string", "minLength": 1}
    metric = text | {
        "description": "; ".join(
            f"{each.name}: {each.meaning}" for each in list_metrics(tasks).values()
        )
    }
    counts = {
        "type": "array",
        "items": {"type": "integer", "minimum": 1, "maximum": MOST},
        "minItems": 1,
    }
    stage = {"$ref": "#/$defs/compilers"}
    training = {"anyOf": [build_arguments_schema(TrainingOptions), {"type": "null"}]}
    model_extra = {
        "title": text | {"description": "what it is called; left out: its class"},
        "path": text | {"description": "file of the trained weights"},
        "training": training,
    }
    root = build_object_schema(
        {
            "title": text,
            "output": text
            | {"description": "folder for everything that comes of it", "default": "build/sweep"},
            "dataset": {"$ref": "#/$defs/datasets"},
            "models": {"type": "array", "items": {"$ref": "#/$defs/modelwrappers"}, "minItems": 1},
            "as_trained": {
                "type": "boolean",
                "default": True,
                "description": "measure each model in its own framework too; losses are told against that",
            },
            "compilers": {
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": [stage, {"type": "array", "items": stage}]},
                "description": "each a compiler, or a chain of them in order; [] is the model as exported",
            },
            "runtimes": {"type": "array", "items": {"$ref": "#/$defs/runtimes"}, "minItems": 1},
            "threads": counts
            | {"description": "for runtimes that can be told, where an entry says nothing itself"},
            "batch_sizes": counts | {"description": "samples in one inference", "default": [1]},
            "calibration_samples": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST,
                "default": 128,
            },
            "measure": build_arguments_schema(MeasureOptions),
            "verify": build_arguments_schema(VerifyOptions),
            "time_limit": build_arguments_schema(LimitOptions)["properties"]["time_limit"],
            "constraints": {
                "type": "array",
                "items": text | {"description": "such as: latency_p90 <= 5 ms"},
                "description": "what must hold of the one that is chosen",
            },
            "objectives": {
                "type": "array",
                "items": metric,
                "minItems": 1,
                "description": "what the front is made of",
            },
            "choose": metric
            | {"description": "the metric to choose by; left out: the first objective"},
            "confirmations": {
                "type": "integer",
                "minimum": 1,
                "default": CONFIRMATIONS,
                "description": "how many that qualify are measured again at most, the best first, until one holds",
            },
            "accept_doubts": {
                "type": "array",
                "items": {"enum": list(BARRING)},
                "description": "doubts about predictions with which a candidate may be chosen all the same",
            },
            "confidence": {
                "type": "number",
                "minimum": 0.5,
                "exclusiveMaximum": 1,
                "default": 0.95,
            },
            "budget": {
                "anyOf": [
                    {"type": "number", "minimum": 0.1, "exclusiveMaximum": 1},
                    text,
                    {"type": "null"},
                ],
                "description": "how long to measure: a share of the time of the full sweep, such "
                "as 40 %, or a time, such as 10min; candidates are measured in full only while "
                "they can change the choice or the front",
            },
            "seed": {"type": "integer", "minimum": 0, "default": 0},
            "devices": {
                "anyOf": [
                    text,
                    {"$ref": "#/$defs/fleet"},
                    {"$ref": "#/$defs/fleet/properties/devices"},
                ],
                "default": str(USUAL),
                "description": "the file of devices, or what stands in one",
            },
            "targets": {
                "type": "array",
                "items": text,
                "minItems": 1,
                "description": "the devices to measure on: names, tags, or all; left out: this machine",
            },
            "target_patience": {
                "type": "number",
                "minimum": 0,
                "maximum": 86_400,
                "default": PATIENCE,
                "description": "seconds for which a device that has gone away is waited for",
            },
        },
        ("dataset", "models", "runtimes"),
    )
    definitions = {
        "fleet": build_fleet_schema(of_plugins),
        "datasets": build_choice_schema(Dataset, {}, of_plugins),
        "modelwrappers": build_choice_schema(ModelWrapper, model_extra, of_plugins),
        "compilers": build_choice_schema(ModelCompiler, {}, of_plugins, vary=True),
        "runtimes": build_choice_schema(Runtime, {}, of_plugins, vary=True),
    }
    return {"$schema": DIALECT, "title": "nnpipe sweep", **root, "$defs": definitions}
