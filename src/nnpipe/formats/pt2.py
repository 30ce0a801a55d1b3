"""The reader of exported PyTorch programs (``.pt2``): their inputs and outputs, and a copy that is
safe to load.

``torch.export.load`` trusts its file: it unpickles weights and sample inputs,
and evaluates lengths of axes and guards as Python.  Here the archive is read
without PyTorch, everything that is not needed is dropped, everything else is
checked against what PyTorch itself writes, and the result is packed anew, so
the loader sees only checked content.

The copy can call operators of PyTorch on tensors, and nothing else.

The layout is that of ``torch/_export/serde/schema.py`` and
``torch/export/pt2_archive`` in PyTorch 2.9 to 2.13.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import IOSpec
from nnpipe.formats._pt2_archive import (
    IDENTIFIER,
    PLAIN,
    Entry,
    MalformedFile,
    check_strings,
    check_target,
    convert_to_float32,
    has_bfloat16,
    open_packed,
    read_entries,
)
from nnpipe.formats._pt2_signature import (
    DTYPES,
    build_tensor_specs,
    get_element_type,
    inline_graphs,
    read_tree,
    remove_fixed,
    serialize_tree,
    with_names,
)
from nnpipe.formats.file_types import check_there, describe_file_type
from nnpipe.formats.onnx_network import Contents

_ELEMENT = "_operator.getitem"


@dataclass(frozen=True)
class ExportedProgram:
    """An exported program that has been checked.

    Attributes
    ----------
    path
        The file of the program.
    io
        The tensors of the program, in the order of the graph.  Their names are
        the keys of the dicts that the program takes and returns (``"boxes"``,
        ``"boxes.0"``), or the names in the graph if there are no such keys.
    """

    path: Path
    io: IOSpec
    _entries: Mapping[str, Entry] = field(repr=False)

    def open(self) -> BinaryIO:
        """Return an archive for ``torch.export.load``; the caller closes it.

        The checked content comes from memory.  Only the elements of weights are read from the file
        while the archive is read, so that they are in memory only once.

        Raises
        ------
        ArtifactError
            If weights are damaged, or the file has been replaced by another one since it was
            checked.
        """
        return open_packed(self.path, self._entries)

    @property
    def has_bfloat16(self) -> bool:
        """Whether any weight, input or intermediate value is bfloat16."""
        return has_bfloat16(self._read_program())

    def to_float32(self) -> ExportedProgram:
        """Return the program with float32 wherever it has bfloat16, with equal weights; itself if
        it has none.

        Raises
        ------
        ArtifactError
            If the program reads the bits of numbers, or its weights are damaged.
        """
        if not self.has_bfloat16:
            return self
        wide = {"bfloat16": "float32"}
        inputs, outputs = (
            tuple(replace(spec, dtype=wide.get(spec.dtype, spec.dtype)) for spec in side)
            for side in (self.io.inputs, self.io.outputs)
        )
        return replace(
            self, io=IOSpec(inputs, outputs), _entries=convert_to_float32(self.path, self._entries)
        )

    def _read_program(self) -> Any:
        (name,) = (name for name in self._entries if name.startswith("models/"))
        return _read_json(self._entries, name)

    def contents(self) -> Contents:
        """Return the counts of operations and weights, without reading any weight."""
        found = Contents()
        for name, content in self._entries.items():
            if not isinstance(content, bytes) or not name.endswith(".json"):
                continue
            if name.startswith("models/"):
                targets = (
                    str(node["target"])
                    for node in parse_json(content)["graph_module"]["graph"]["nodes"]
                )
                # Taking an element out of a list of results does not count as an operator.
                found.operations.update(
                    target.removeprefix("torch.ops.").lstrip("_")
                    for target in targets
                    if target != _ELEMENT
                )
            elif name.startswith("data/weights/"):
                for entry in parse_json(content)["config"].values():
                    meta = entry["tensor_meta"]
                    found.count(
                        DTYPES[meta["dtype"]][0], [int(size["as_int"]) for size in meta["sizes"]]
                    )
        return found

    def mentions(self, text: str) -> bool:
        """Return whether a string, such as the name of an operator, occurs in the description of
        the program.
        """
        return any(
            isinstance(each, bytes) and text.encode() in each for each in self._entries.values()
        )

    def find_input_operators(self) -> tuple[str, ...]:
        """Return the names of the operators that depend on the program's inputs, each once, in the
        order of the graph.

        Operators that only use weights are left out.  Names are as in the file:
        ``"torch.ops.aten.relu.default"``.
        """
        module = self._read_program()["graph_module"]
        inputs = (
            spec["user_input"]["arg"]
            for spec in module["signature"]["input_specs"]
            if "user_input" in spec
        )
        depending = {value for argument in inputs for value in _iterate_value_names(argument)}
        found: dict[str, None] = {}
        for node in module["graph"]["nodes"]:
            if any(
                value in depending
                for given in node["inputs"]
                for value in _iterate_value_names(given["arg"])
            ):
                found[node["target"]] = None
                depending.update(
                    value for made in node["outputs"] for value in _iterate_value_names(made)
                )
        return tuple(found)


def read_program(path: Path) -> ExportedProgram:
    """Return an exported program after checking everything in its file.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, of another kind, or holds something
        that could run code; the message names the file and the reason.
    """
    check_there(path)
    try:
        entries = _read_archive(path)
        name = _find_model_name(entries)
        program = _read_json(entries, f"models/{name}.json")
        kept: dict[str, Entry] = {
            "archive_format": entries["archive_format"],
            "archive_version": entries["archive_version"],
            ".data/version": entries.get(".data/version", b"6\n"),
            "byteorder": b"little",
            f"data/sample_inputs/{name}.pt": b"",
        }
        for part, prefix in (("weights", "weight_"), ("constants", "tensor_")):
            kept |= _read_payload(entries, f"data/{part}/", f"{name}_{part}_config.json", prefix)
        cleaned, tensors = _clean_program(program)
        kept[f"models/{name}.json"] = json.dumps(cleaned).encode()
        return ExportedProgram(path, tensors, kept)
    except MalformedFile as error:
        raise ArtifactError(f"{path}: {error}") from None
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        StopIteration,
    ) as error:
        raise ArtifactError(
            f"{path}: not laid out as PyTorch lays out exported programs ({type(error).__name__}: "
            f"{error})"
        ) from None


def _read_archive(path: Path) -> dict[str, Entry]:
    """Return the entries of the archive by name, after checking that it holds an exported
    program.
    """
    entries = read_entries(path)
    if entries.get("archive_format") != b"pt2":
        if "serialized_exported_program.json" in entries:
            raise MalformedFile("an exported program of PyTorch 2.8 or older; export it anew")
        raise MalformedFile(
            f"not an exported PyTorch program{describe_file_type(path, 'TorchExportModel')}"
        )
    if entries.get("byteorder", b"little") != b"little":
        raise MalformedFile("written on a big-endian machine")
    if any(name.startswith("data/aotinductor/") for name in entries):
        raise MalformedFile("holds compiled machine code, not only an exported program")
    return entries


def _find_model_name(entries: Mapping[str, Entry]) -> str:
    models = [
        name[len("models/") : -len(".json")]
        for name in entries
        if re.fullmatch(r"models/.*\.json", name)
    ]
    if len(models) != 1 or not IDENTIFIER.fullmatch(models[0]):
        raise MalformedFile(f"holds {len(models)} exported programs, expected one")
    return models[0]


def _read_json(entries: Mapping[str, Entry], name: str) -> Any:
    content = entries.get(name)
    if not isinstance(content, bytes):
        raise MalformedFile(f"damaged, or of another version of PyTorch: {name} is missing")
    return parse_json(content)


def _read_payload(
    entries: Mapping[str, Entry], folder: str, config: str, prefix: str
) -> dict[str, Entry]:
    """Return the table of weights or constants and the raw tensors that it names, after checking
    them.
    """
    table = _read_json(entries, folder + config)["config"]
    kept: dict[str, Entry] = {}
    for fqn, entry in table.items():
        file = entry["path_name"]
        if entry["use_pickle"] or not re.fullmatch(prefix + r"[a-z_0-9]+", file):
            raise MalformedFile(f"{fqn!r} is pickled; loading it could run code")
        data = entries.get(folder + file)
        if data is None:
            raise MalformedFile(f"damaged: {folder}{file} is missing")
        check_strings(entry)
        meta = entry["tensor_meta"]
        _, width = get_element_type(fqn, meta)
        elements = math.prod(int(size["as_int"]) for size in meta["sizes"])
        if elements * width > len(data) and not _has_repeated_elements(meta):
            raise MalformedFile(
                f"damaged: {fqn!r} needs {elements * width} bytes, {folder}{file} holds {len(data)}"
            )
        kept[folder + file] = data
    if any(not PLAIN.fullmatch(fqn) for fqn in table):
        raise MalformedFile("a weight has a name that PyTorch would not give")
    return kept | {folder + config: json.dumps({"config": table}).encode()}


def _has_repeated_elements(meta: Mapping[str, Any]) -> bool:
    """Return whether a tensor repeats stored elements by a stride of 0, which takes no
    additional memory.
    """
    return bool(meta["sizes"]) and any(stride["as_int"] == 0 for stride in meta["strides"])


def _clean_program(program: Mapping[str, Any]) -> tuple[dict[str, Any], IOSpec]:
    """Return a checked copy of the program with only the parts that are needed to run it, and
    its tensors.
    """
    module = dict(program["graph_module"])
    original = module["graph"]
    graph, renamed = inline_graphs(original)
    graph["nodes"] = [node | {"metadata": {}} for node in graph["nodes"]]
    for node in graph["nodes"]:
        check_target(node["target"])
    calls = next(entry for entry in module["module_call_graph"] if entry["fqn"] == "")["signature"]
    fields = module.get("treespec_namedtuple_fields") or {}
    taken, given = (read_tree(calls[side], fields) for side in ("in_spec", "out_spec"))
    signature = dict(module["signature"])
    values = original["tensor_values"]
    inputs = build_tensor_specs("takes", signature["input_specs"], taken, values)
    outputs = build_tensor_specs("gives", signature["output_specs"], given, values)
    input_specs, graph["inputs"], taken = remove_fixed(
        signature["input_specs"], graph["inputs"], taken
    )
    output_specs, graph["outputs"], given = remove_fixed(
        signature["output_specs"], graph["outputs"], given
    )
    signature |= {"input_specs": input_specs, "output_specs": with_names(output_specs, renamed)}
    calls = calls | {"forward_arg_names": None}
    module |= {
        "graph": graph,
        "signature": signature,
        "metadata": {},
        "treespec_namedtuple_fields": {},
    }
    module["module_call_graph"] = []
    cleaned = dict(program) | {"graph_module": module, "guards_code": []}
    check_strings(cleaned)
    check_strings(
        {key: value for key, value in calls.items() if key not in ("in_spec", "out_spec")}
    )
    calls |= {"in_spec": serialize_tree(taken), "out_spec": serialize_tree(given)}
    module["module_call_graph"] = [{"fqn": "", "signature": calls}]
    return cleaned, IOSpec(inputs, outputs)


def _iterate_value_names(argument: Any) -> Iterator[str]:
    """Yield the names of the tensors and lengths in an argument of a node."""
    if isinstance(argument, list):
        for part in argument:
            yield from _iterate_value_names(part)
    elif isinstance(argument, Mapping):
        for key, part in argument.items():
            if key in ("name", "as_name") and isinstance(part, str):
                yield part
            else:
                yield from _iterate_value_names(part)
