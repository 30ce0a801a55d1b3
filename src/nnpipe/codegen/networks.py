"""Networks in a description: a list of layers, or a Keras file.

::

    layers:
      - {layer: Input, name: image, shape: [8, 8, 1]}
      - {layer: Conv2d, filters: 16, kernel_size: 3, activation: relu}
      - {layer: Flatten}
      - {layer: Dense, units: 10, name: digit}

A layer is applied to the one before it, or to what ``on`` names; ``layer[1]``
is its second output.  Its arguments have the names of ``nnpipe.layers``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, replace
from pathlib import Path
from typing import Any

from nnpipe.codegen.fields import shown
from nnpipe.codegen.problems import Problem
from nnpipe.core.errors import NNPipeError
from nnpipe.core.naming import nearest, snake_case
from nnpipe.layers import _rows
from nnpipe.layers.graph import Entry, Graph, Ref, Use
from nnpipe.layers.layer import Layer, vocabulary
from nnpipe.layers.submodels import Input, Submodel, Unknown
from nnpipe.layers.weights import Weights

_OUTPUT = re.compile(r"(.+)\[(\d{1,4})\]")
_OWN = ("layer", "on", "name", "trainable", "dtype", "training")
_KEYS = ("layers", "inputs", "outputs", "file")


def read_network(
    name: str, data: Any, known: Mapping[str, Graph], found: list[Problem]
) -> tuple[Graph | None, Weights]:
    """Read a network; what is wrong is added to ``found``.

    Parameters
    ----------
    name
        What it is called.
    data
        The list of its layers, or an object with ``layers``, ``inputs`` and ``outputs``, or with ``file``.
    known
        Networks that it may have as layers (``{layer: Submodel, network: NAME}``).
    found
        Takes the problems.
    """
    where = f"networks.{name}"
    data = {"layers": data} if isinstance(data, list) else data
    if not isinstance(data, Mapping) or ("layers" in data) == ("file" in data):
        found.append(Problem("structure", where, "must be a list of layers, or an object with layers or with file"))
        return None, {}
    for key in data:
        if key not in _KEYS:
            found.append(Problem("structure", f"{where}.{key}", f"there is no such setting{nearest(str(key), _KEYS)}"))
    if "file" in data:
        return _from_file(name, data["file"], f"{where}.file", found)
    items = data["layers"]
    if not isinstance(items, list) or not items:
        found.append(Problem("structure", f"{where}.layers", "must be a list of layers"))
        return None, {}
    reader = _Reader(where, known, found)
    for place, item in enumerate(items):
        reader.read(item, place)
    return reader.graph(name, data), {}


def _from_file(name: str, path: Any, where: str, found: list[Problem]) -> tuple[Graph | None, Weights]:
    from nnpipe.layers.reading import read_keras

    if not isinstance(path, str) or not path or "\0" in path:
        found.append(Problem("file", where, f"must be the path of a Keras file, not {shown(path)}"))
        return None, {}
    try:
        reading = read_keras(Path(path))
    except NNPipeError as error:
        found.append(Problem("file", where, str(error)))
        return None, {}
    for problem in reading.problems:
        if problem.code != "changed-meaning":
            found.append(Problem("file", where, f"{path}: {problem}"))
    return (None if reading.graph is None else replace(reading.graph, name=name)), reading.weights


class _Reader:
    def __init__(self, where: str, known: Mapping[str, Graph], found: list[Problem]) -> None:
        self.where, self.known, self.found = f"{where}.layers", known, found
        self.layers: dict[str, Layer] = {}
        self.uses: dict[str, list[Use]] = {}
        self.before: Ref | None = None

    def read(self, item: Any, place: int) -> None:
        """Read one layer, or one more use of a layer that is there: ``{on: image, layer: {again: NAME}}``."""
        where = f"{self.where}[{place}]"
        item = {"layer": item} if isinstance(item, str) else item
        if not isinstance(item, Mapping):
            self._wrong("structure", where, f"must be an object with layer, not {shown(item)}")
            return
        again = item.get("again")
        if again is not None:
            if again not in self.layers:
                self._wrong("network", f"{where}.again", f"there is no layer {shown(again)} above")
                return
            name = str(again)
        else:
            layer = self._layer(item, where)
            if layer is None:
                return
            name = layer.name
            if name in self.layers:
                self._wrong(
                    "network", f"{where}.name", f"there is another layer {name}; to use it again: again: {name}"
                )
                return
            self.layers[name] = layer
        self.uses.setdefault(name, [])
        refs = () if isinstance(self.layers[name], Input) else self._refs(item.get("on"), f"{where}.on")
        training = item.get("training")
        if training not in (None, True, False):
            self._wrong("argument", f"{where}.training", f"must be true or false, not {shown(training)}")
            training = None
        self.uses[name].append(Use(refs, training))
        self.before = Ref(name, len(self.uses[name]) - 1)

    def _layer(self, item: Mapping[Any, Any], where: str) -> Layer | None:
        kind = item.get("layer")
        cls = _classes().get(kind) if isinstance(kind, str) else None
        if cls is None:
            hint = nearest(kind, _classes()) if isinstance(kind, str) else ""
            self._wrong("network", f"{where}.layer", f"there is no layer {shown(kind)}{hint}")
            return None
        name = item.get("name", self._name(cls))
        if not isinstance(name, str) or not name:
            self._wrong("network", f"{where}.name", f"must be a text, not {shown(name)}")
            name = self._name(cls)
        values: dict[str, Any] = {key: item[key] for key in ("trainable", "dtype") if key in item}
        if cls is Submodel:
            inner = self.known.get(item.get("network", ""))
            if inner is None:
                self._wrong("network", f"{where}.network", f"there is no network {shown(item.get('network'))} above")
                return None
            return Submodel((), inner, name=name, **values)
        if not isinstance(values.get("dtype", ""), str):
            self._wrong("argument", f"{where}.dtype", f"must be a text, not {shown(values.pop('dtype'))}")
        before = len(self.found)
        values |= self._arguments(cls, item, where)
        return (
            cls(**values, name=name)
            if cls is Input
            else cls((), **values, name=name)
            if before == len(self.found)
            else None
        )

    def _arguments(self, cls: type[Layer], item: Mapping[Any, Any], where: str) -> dict[str, Any]:
        table = {row.name: row for row in _rows.table(cls)}
        values: dict[str, Any] = {}
        for key in item:
            if key not in table and key not in _OWN:
                self._wrong(
                    "argument", f"{where}.{key}", f"{cls.__name__} has no such argument{nearest(str(key), table)}"
                )
            elif key in table and key not in ("trainable",):
                values[key] = self._value(item[key], f"{where}.{key}")
        for key, row in table.items():
            if row.default is MISSING and key not in values:
                self._wrong("argument", f"{where}.{key}", "is missing")
        return values

    def _value(self, value: Any, where: str) -> Any:
        if isinstance(value, Mapping) and "layer" in value:  # a layer inside a layer
            return self._layer({"name": "", **value}, where) if "name" in value else self._inner(value, where)
        return value

    def _inner(self, value: Mapping[Any, Any], where: str) -> Any:
        layer = self._layer({**value, "name": "inner"}, where)
        return None if layer is None else layer.alone(name="")

    def _refs(self, on: Any, where: str) -> tuple[Ref, ...]:
        if on is None:
            if self.before is None:
                self._wrong("network", where, "there is nothing above that it could be applied to")
                return ()
            return (self.before,)
        return tuple(filter(None, (self._ref(item, where) for item in (on if isinstance(on, list) else [on]))))

    def _ref(self, text: Any, where: str) -> Ref | None:
        if not isinstance(text, str):
            self._wrong("network", where, f"must name a layer, not {shown(text)}")
            return None
        match = _OUTPUT.fullmatch(text)
        name, output = (match[1], int(match[2])) if match else (text, 0)
        if name not in self.layers:
            self._wrong("network", where, f"there is no layer {shown(name)} above{nearest(name, self.layers)}")
            return None
        return Ref(name, len(self.uses[name]) - 1, output)

    def _name(self, cls: type[Layer]) -> str:
        stem = found = snake_case(cls.__name__)
        number = 1
        while found in self.layers:
            found, number = f"{stem}_{number}", number + 1
        return found

    def graph(self, name: str, data: Mapping[str, Any]) -> Graph | None:
        """Give the network."""
        entries = tuple(Entry(layer, tuple(self.uses[title])) for title, layer in self.layers.items())
        inputs = tuple(Ref(title) for title, layer in self.layers.items() if isinstance(layer, Input))
        where = self.where.removesuffix(".layers")
        if data.get("inputs") is not None:
            inputs = self._refs(data["inputs"], f"{where}.inputs")
        outputs = self._refs(data.get("outputs"), f"{where}.outputs") if self.layers else ()
        return Graph(name, entries, inputs, outputs) if entries else None

    def _wrong(self, code: str, where: str, message: str) -> None:
        self.found.append(Problem(code, where, message))


def _classes() -> dict[str, type[Layer]]:
    return {cls.__name__: cls for cls in vocabulary() if cls is not Unknown}
