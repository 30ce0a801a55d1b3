"""The contract of components: arguments, help, JSON, and imports that need no framework."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nnpipe.core.arguments import list_arguments, show
from nnpipe.core.component import Component
from nnpipe.core.discoverable import Discoverable
from nnpipe.core.errors import ConfigError
from nnpipe.core.registry import find

HEAVY = tuple(
    "ai_edge_litert cmaes executorch fsspec h5py iree jax jinja2 keras matplotlib mlflow nncf onnx "
    "onnxruntime onnxscript openvino optuna PIL psycopg pynvml s3fs safetensors scipy skl2onnx "
    "sklearn skops sqlalchemy tensorboard tensorboardX tensorflow tf2onnx tflite_runtime torch "
    "torchao torchvision tqdm "
    "tvm yaml".split()
)
"""Packages that a component's module may import only inside methods that need them."""

# For each line of input, a child blocks packages, imports a module (by name, or from its file if
# only pytest can import it by name), and writes the help or the options of its classes into a file.
# Common modules are imported once, without the heavy packages.  On a system without fork, the
# process answers only one line.
_PROBES = """
import importlib, importlib.abc, importlib.util, json, os, sys, traceback
blocked, sys.path[:] = json.loads(sys.argv[1])
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"{fullname} is not installed here", name=fullname)
sys.meta_path.insert(0, Blocked())
import numpy, nnpipe.core.component
def probe(name, file):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(error.name or "?"):
            raise
        spec = importlib.util.spec_from_file_location(name, file)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    for found in vars(module).values():
        if isinstance(found, type) and found.__module__ == module.__name__ and hasattr(found, "get_dotted_path"):
            told = found.form_argparse().format_help() if hasattr(found, "form_argparse") else found.options()
            print(found.__name__, told)
for line in sys.stdin:
    name, file, blocked, sys.path[:], folder, output = json.loads(line)
    child = os.fork() if hasattr(os, "fork") else 0
    if not child:
        os.chdir(folder)
        sys.stdout = sys.stderr = open(output, "w", encoding="utf-8")
        status = 0
        try:
            probe(name, file)
        except BaseException:
            status = 1
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class ComponentContract:
    """What every component must do; subclass it and define the fixture ``component``.

    The contracts of the interfaces (datasets, runtimes, ...) are based on this one
    and return their own fixture as ``component``.  Use an instance in which as many
    arguments as possible differ from their defaults.
    """

    @pytest.fixture
    def component(self) -> Component:
        raise NotImplementedError("a subclass of ComponentContract gives the fixture `component`")

    def test_it_survives_json(self, component: Component) -> None:
        text = json.dumps(component.to_json(), allow_nan=False)
        again = type(component).from_json(json.loads(text))
        assert again == component
        assert again.to_json() == component.to_json()

    def test_its_description_leads_back_to_it(self, component: Component) -> None:
        described = json.loads(json.dumps(component.describe()))
        cls = find(described["class"], Component)
        assert cls is type(component)
        assert cls.from_json(described["arguments"]) == component

    def test_it_survives_the_command_line(self, component: Component) -> None:
        parser = type(component).form_argparse()
        assert (
            type(component).from_argparse(parser.parse_args(build_command_line(component)))
            == component
        )

    def test_its_arguments_never_change(self, component: Component) -> None:
        for declared in list_arguments(type(component)):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(component, declared.name, getattr(component, declared.name))

    def test_equal_arguments_make_equal_components(self, component: Component) -> None:
        twin = type(component)(
            **{a.name: getattr(component, a.name) for a in list_arguments(type(component))}
        )
        assert twin is not component
        assert twin == component
        assert hash(twin) == hash(component)

    def test_its_repr_is_one_line_that_names_class_and_arguments(
        self, component: Component
    ) -> None:
        text = repr(component)
        assert text.startswith(type(component).__qualname__ + "(")
        assert "\n" not in text
        for declared in list_arguments(type(component)):
            assert f"{declared.name}=" in text

    def test_it_has_a_summary_and_help_for_every_argument(self, component: Component) -> None:
        assert type(component).summary(), "the class needs a docstring of its own"
        for declared in list_arguments(type(component)):
            assert declared.help.strip(), f"the argument {declared.name} needs help=..."

    def test_its_help_shows_every_option(self, component: Component) -> None:
        text = type(component).form_argparse().format_help()
        assert [a.flag for a in list_arguments(type(component)) if a.flag not in text] == []

    def test_an_unknown_argument_is_refused_in_one_line(self, component: Component) -> None:
        with pytest.raises(ConfigError, match="no_such_argument") as caught:
            type(component).from_json(component.to_json() | {"no_such_argument": 1})
        assert "\n" not in str(caught.value)

    def test_a_value_of_the_wrong_type_is_refused_in_one_line(self, component: Component) -> None:
        for declared in list_arguments(type(component)):
            with pytest.raises(ConfigError, match=declared.name) as caught:
                type(component).from_json(component.to_json() | {declared.name: {"not": "a value"}})
            assert "\n" not in str(caught.value)

    def test_it_names_the_packages_it_needs(self, component: Component) -> None:
        for need in type(component).requires:
            assert all(part.replace(".", "_").isidentifier() for part in need.split("|")), need

    def test_module_and_help_need_no_framework(self, component: Component) -> None:
        check_needs_no_framework(type(component))


def check_needs_no_framework(cls: type[Discoverable]) -> None:
    """Import a class's module in a process without frameworks, and read its options."""
    needs = {name.partition(".")[0] for need in cls.requires for name in need.split("|")}
    told = _read_help_without(cls.__module__, inspect.getfile(cls), tuple(sorted({*HEAVY, *needs})))
    assert cls.__name__ in told


@functools.cache
def _read_help_without(module: str, file: str, blocked: tuple[str, ...]) -> str:
    """Return the help of a module's classes, read once for all of them."""
    probes = _start_probes()
    assert probes.stdin is not None
    assert probes.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "told.txt"
        probes.stdin.write(
            json.dumps([module, file, blocked, sys.path, str(Path.cwd()), str(output)]) + "\n"
        )
        probes.stdin.flush()
        status = probes.stdout.readline().strip()
        if not status:  # the process has ended
            status = str(probes.wait())
            _start_probes.cache_clear()
        told = output.read_text("utf-8") if output.exists() else ""
    assert status == "0", told
    return told


@functools.cache
def _start_probes() -> subprocess.Popen[str]:
    """Start the process that imports modules; it ends with this one."""
    command = [sys.executable, "-c", _PROBES, json.dumps([HEAVY, sys.path])]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def build_command_line(component: Component) -> list[str]:
    """Return the command-line options that make ``component``.

    An argument that is ``None`` or an empty tuple has no option and keeps its
    default.
    """
    words: list[str] = []
    for declared in list_arguments(type(component)):
        value = getattr(component, declared.name)
        if isinstance(value, bool):
            words.append(declared.flag if value else "--no-" + declared.flag.removeprefix("--"))
        elif isinstance(value, tuple):
            words += [declared.flag, *map(show, value)] if value else []
        elif value is not None:
            words.append(f"{declared.flag}={show(value)}")
    return words
