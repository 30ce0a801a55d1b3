"""The families of classes that are found by name, and where the classes of each are."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar, cast

from nnpipe.core.component import Component
from nnpipe.core.discoverable import Discoverable

D = TypeVar("D", bound=Discoverable)


class Families(Mapping[str, type[D]]):
    """Base classes by family, each imported on first access, since a server needs only two of them.

    Parameters
    ----------
    paths
        The dotted path of each family's base.
    homes
        The modules that hold a family's own classes, if these are not in the package of its name.
    """

    def __init__(self, paths: Mapping[str, str], homes: Mapping[str, tuple[str, ...]] = MappingProxyType({})) -> None:
        self._paths = paths
        self._homes = homes

    def __getitem__(self, family: str) -> type[D]:
        module, _, name = self._paths[family].rpartition(".")
        return cast("type[D]", getattr(importlib.import_module(module), name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, family: object) -> bool:
        return family in self._paths

    def at_home(self, base: type[Discoverable]) -> list[str]:
        """Return the families whose base class is ``base`` or a base of it; nothing is imported."""
        above = {f"{cls.__module__}.{cls.__qualname__}" for cls in base.__mro__}
        return [family for family, path in self._paths.items() if path in above]

    def of(self, base: type[Discoverable]) -> list[str]:
        """Return the families that can hold subclasses of ``base``."""
        return self.at_home(base) or [family for family, root in self.items() if issubclass(root, base)]

    def homes(self, family: str) -> tuple[str, ...]:
        """Return the packages and modules of nnpipe that hold a family's own classes."""
        return self._homes.get(family, (f"nnpipe.{family}",))


FAMILIES: Families[Component] = Families(
    {
        "datasets": "nnpipe.core.dataset.Dataset",
        "modelwrappers": "nnpipe.core.model.ModelWrapper",
        "compilers": "nnpipe.core.compiler.ModelCompiler",
        "runtimes": "nnpipe.core.runtime.Runtime",
        "protocols": "nnpipe.core.runtime_protocol.RuntimeProtocol",
        "onnxconverters": "nnpipe.core.onnx_conversion.ONNXConversion",
        "tasks": "nnpipe.core.task.Task",
        "transforms": "nnpipe.core.input_transform.InputTransform",
        "decoders": "nnpipe.core.output_decoder.OutputDecoder",
        "meters": "nnpipe.core.energy_meter.EnergyMeter",
    }
)
PARTS: Families[Discoverable] = Families(
    {
        "callbacks": "nnpipe.training.callbacks.callback.Callback",
        "layers": "nnpipe.layers.vocabulary.layer.Layer",
        "operators": "nnpipe.layers.imports.operator.Operator",
        "c_operators": "nnpipe.compilers.c_operator.COperator",
        "script_tasks": "nnpipe.codegen.script_task.ScriptTask",
        "task_sections": "nnpipe.report.task_section.TaskSection",
        "task_pictures": "nnpipe.report.task_pictures.TaskPictures",
    },
    {
        "callbacks": ("nnpipe.training.callbacks",),
        "layers": ("nnpipe.layers.vocabulary", "nnpipe.layers.graph.submodel"),
        "operators": ("nnpipe.layers.imports.operator",),
        "c_operators": ("nnpipe.compilers.c_operator",),
        "script_tasks": ("nnpipe.codegen.tasks",),
        "task_sections": ("nnpipe.tasks",),
        "task_pictures": ("nnpipe.tasks",),
    },
)
"""Families whose classes are parts of a training, a network, a script or a report, but not components."""
