"""Short names for usual ways to compile and run a model: ``onnx-int8``, ``openvino``,
``tflite-float16``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.core.batching import set_batch_size, set_batch_sizes
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.messages import suggest_name
from nnpipe.core.model import ModelWrapper
from nnpipe.core.plan import Plan
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.workflows.candidates.stages import check_plan

_Step = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Recipe:
    """One way to compile and run a model; without a runtime, it runs in its own framework.

    Parameters
    ----------
    title
        The candidate's title.
    compilers
        The compilers, in order.
    runtime
        The runtime.
    export
        The format to export the model as before it is compiled; by default the first one that fits.

    Examples
    --------
    >>> from nnpipe import ModelCompiler, Runtime, find
    >>> quantizer, runtime = find("ONNXStaticQuantizer", ModelCompiler)(), find("ONNXRuntime", Runtime)(num_threads=2)
    >>> Recipe("int8, two threads", (quantizer,), runtime).title
    'int8, two threads'
    """

    title: str
    compilers: tuple[ModelCompiler, ...] = ()
    runtime: Runtime | None = None
    export: str | None = None


@dataclass(frozen=True)
class PlannedRecipe:
    """A way for one model, with the model's wrapper and the formats between the stages."""

    title: str
    wrapper: ModelWrapper
    path: Path
    compilers: tuple[ModelCompiler, ...] = ()
    runtime: Runtime | None = None
    plan: Plan | None = field(default=None)


def _list_openvino_chains(**arguments: Any) -> list[tuple[list[_Step], str]]:
    last = ("OpenVINOCompiler", arguments)
    return [([last], "OpenVINORuntime"), ([("TFLiteCompiler", {}), last], "OpenVINORuntime")]


def _list_tflite_chains(target: str) -> list[tuple[list[_Step], str]]:
    return [
        ([(name, {"target": target})], "LiteRTRuntime")
        for name in ("TFLiteCompiler", "TorchToTFLite")
    ]


# Of each way, the first chain that fits the model is used. If none does, an ONNX file first becomes
# a PyTorch program; networks that nnpipe describes as layers (DeclaredModel) need no such step.
_WAYS: Mapping[str, list[tuple[list[_Step], str]]] = {
    "onnx": [([], "ONNXRuntime")],
    "onnx-float16": [([("ONNXFloat16", {})], "ONNXRuntime")],
    "onnx-int8": [([("ONNXStaticQuantizer", {})], "ONNXRuntime")],
    "onnx-dynamic": [([("ONNXDynamicQuantizer", {})], "ONNXRuntime")],
    "openvino": _list_openvino_chains(),
    "openvino-float16": _list_openvino_chains(precision="fp16"),
    "openvino-int8": _list_openvino_chains(precision="int8"),
    "tflite": [([], "LiteRTRuntime"), *_list_tflite_chains("default")],
    "tflite-float16": _list_tflite_chains("float16"),
    "tflite-dynamic": _list_tflite_chains("dynamic"),
    "tflite-int8": _list_tflite_chains("int8"),
    "c": [
        ([*steps, ("CCompiler", {})], "CRuntime")
        for steps in ([], *(chain for chain, _ in _list_tflite_chains("default")))
    ],
    "c-int8": [
        ([*chain, ("CCompiler", {})], "CRuntime") for chain, _ in _list_tflite_chains("int8")
    ],
    "iree": [([("IREECompiler", {})], "IREERuntime")],
    "tvm": [([("TVMCompiler", {})], "TVMRuntime")],
    "executorch": [([("ExecuTorchCompiler", {})], "ExecuTorchRuntime")],
    "executorch-int8": [([("ExecuTorchCompiler", {"precision": "int8"})], "ExecuTorchRuntime")],
    "inductor": [([("TorchInductorCompiler", {})], "TorchInductorRuntime")],
    "inductor-int8": [
        ([("TorchPT2EQuantizer", {}), ("TorchInductorCompiler", {})], "TorchInductorRuntime")
    ],
    "pytorch": [([], "PyTorchRuntime")],
    "keras": [([], "KerasRuntime")],
}

AS_IS = "as it is"
"""The way that compiles nothing and runs the model in its own framework."""

USUAL = ("onnx", "onnx-int8", "openvino", "openvino-int8", "tflite", "tflite-int8")
"""The ways that are compared by default."""


def recipes() -> tuple[str, ...]:
    """Return the short names of the ways to compile and run a model.

    Examples
    --------
    >>> "onnx-int8" in recipes()
    True
    """
    return (AS_IS, *_WAYS)


def plan_recipe(
    way: str | Recipe,
    models: Sequence[tuple[ModelWrapper, Path]],
    *,
    batch_size: int = 1,
    remote: bool = False,
) -> PlannedRecipe:
    """Return the first chain of a way that fits a model.

    Parameters
    ----------
    way
        A short name of :func:`recipes`, or a :class:`Recipe`.
    models
        Wrappers that open the model, each with its file; the first one that fits a chain is used.
    batch_size
        Number of samples in one call, for which the model is compiled.
    remote
        Whether the runtime runs on another machine, and need not be installed here.

    Raises
    ------
    ConfigError
        If there is no such way, or none of its chains fits the model; the message says why the
        first chain does not.
    NNPipeError
        If a required package is not installed.
    """
    if not isinstance(way, (str, Recipe)):
        raise ConfigError(
            f"a way is a short name such as 'onnx-int8', or a Way, not {type(way).__name__}"
        )
    name = way if isinstance(way, str) else way.title
    if way == AS_IS or (isinstance(way, Recipe) and way.runtime is None):
        if isinstance(way, Recipe) and (way.compilers or way.export):
            raise ConfigError(f"{name}: a compiled model needs a runtime")
        return PlannedRecipe(name, *models[0])
    refused: list[NNPipeError] = []
    export = way.export if isinstance(way, Recipe) else None
    chains = _build_chains(way)
    for lead in ((), () if isinstance(way, Recipe) else (find("ONNXToTorch", ModelCompiler)(),)):
        for wrapper, path in models:
            for compilers, runtime in chains:
                try:
                    plan = check_plan(wrapper, (*lead, *compilers), runtime, export, remote=remote)
                    if wrapper is not models[0][0]:
                        # raises where a file's layers are not those that the wrapper describes
                        _ = wrapper.io
                except NNPipeError as error:
                    refused.append(error)
                    continue
                fixed = set_batch_sizes((*lead, *compilers), batch_size)
                return PlannedRecipe(
                    name, wrapper, path, fixed, set_batch_size(runtime, batch_size), plan
                )
    raise type(refused[0])(f"{name}: {refused[0]}" if name else str(refused[0]))


def _build_chains(way: str | Recipe) -> list[tuple[tuple[ModelCompiler, ...], Runtime]]:
    if isinstance(way, Recipe):
        assert way.runtime is not None
        return [(way.compilers, way.runtime)]
    if way not in _WAYS:
        raise ConfigError(
            f"there is no way {way!r}{suggest_name(way, recipes())}; there are: "
            f"{', '.join(recipes())}"
        )
    return [
        (
            tuple(find(cls, ModelCompiler).from_json(arguments) for cls, arguments in chain),
            find(runtime, Runtime).from_json({}),
        )
        for chain, runtime in _WAYS[way]
    ]
