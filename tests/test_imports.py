"""Everything imports, and every help shows, on a machine that has numpy, psutil and no
framework.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nnpipe.core.telemetry import CLIENTS
from nnpipe.testing.component import HEAVY

SOURCE = Path(__file__).resolve().parents[1] / "src"

# Blocks packages, then imports modules and runs command lines, and prints what came of each.
_PROBE = """
import contextlib, importlib, importlib.abc, io, json, sys
blocked, modules, commands = json.load(sys.stdin)
before = set(sys.modules)
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"{fullname} is not installed here", name=fullname)
sys.meta_path.insert(0, Blocked())
failed, helped = {}, []
for name in modules:
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = repr(error)
loaded = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
def run(argv):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = importlib.import_module("nnpipe.__main__").main(argv)
        except SystemExit as left:
            status = left.code
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}
answers = []
for argv in commands:
    answers.append(run(argv))
print(json.dumps({"failed": failed, "loaded": loaded, "answers": answers}))
"""


def probe(
    modules: list[str] | None = None, commands: list[list[str]] | None = None
) -> dict[str, Any]:
    """Import modules and run commands in a process of its own in which no framework can be
    imported.
    """
    question = json.dumps([HEAVY, modules or [], commands or []])
    environment = {"PYTHONPATH": str(SOURCE), "PATH": "", "COLUMNS": "200"}
    answer = subprocess.run(
        [sys.executable, "-c", _PROBE],
        input=question,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


def all_modules() -> list[str]:
    """Name every module, public or not, but the one that runs when it is imported."""
    names = []
    for path in sorted((SOURCE / "nnpipe").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def test_every_module_imports_without_any_framework() -> None:
    modules = all_modules()
    assert "nnpipe.core.component" in modules
    assert probe(modules)["failed"] == {}


def test_the_probe_notices_an_import_of_a_framework(tmp_path: Path) -> None:
    found = probe(["json", "onnxruntime", "tqdm.auto"])
    assert set(found["failed"]) == {"onnxruntime", "tqdm.auto"}


def test_importing_nnpipe_loads_nothing_but_itself() -> None:
    # clients of telemetry are blocked by name
    assert set(probe(["nnpipe"])["loaded"]) - set(CLIENTS) == {"nnpipe"}


def test_the_command_starts_without_numpy() -> None:
    code = (
        "import sys; from nnpipe.__main__ import main; main(['--help']); print('numpy' in "
        "sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(SOURCE)},
    )
    assert answer.stdout.endswith("\nFalse\n"), answer.stdout + answer.stderr


def test_the_help_shows_every_command_once_under_its_purpose() -> None:
    from nnpipe.scenarios._cli.index import PURPOSES, list_scenarios

    assert sorted(name for names in PURPOSES.values() for name in names) == list_scenarios()
    lines = probe(commands=[["--help"]])["answers"][0]["out"].splitlines()
    shown: dict[str, list[str]] = {}
    for line in lines[lines.index(f"{next(iter(PURPOSES))}:") :]:
        if line.endswith(":"):
            purpose = shown.setdefault(line.removesuffix(":"), [])
        elif line.startswith("  "):
            purpose.append(line.split()[0])
    assert {purpose: tuple(names) for purpose, names in shown.items()} == PURPOSES


def test_every_command_explains_itself() -> None:
    from nnpipe.scenarios._cli.index import list_scenarios, read_scenario_summary

    names = list_scenarios()
    assert {
        "model_training",
        "inference_performance",
        "inference_tester",
        "list",
        "info",
        "run",
    } <= set(names)
    for name, answer in zip(
        names, probe(commands=[[name, "-h"] for name in names])["answers"], strict=True
    ):
        assert answer["status"] == 0, answer["err"]
        assert f"usage: nnpipe {name}" in answer["out"]
        assert "--verbosity" in answer["out"]
        assert read_scenario_summary(name)


@pytest.fixture(scope="module")
def classes() -> dict[str, list[Any]]:
    from nnpipe.core.registry import FAMILIES, components

    return {
        family: [c for c in components(base) if c.__module__.startswith("nnpipe.")]
        for family, base in FAMILIES.items()
    }


def combinations(classes: dict[str, list[Any]]) -> list[tuple[list[str], list[Any]]]:
    """Return command lines that name every class at least once, in ways that fit together, and
    the classes.
    """
    from nnpipe.core.errors import ConfigError
    from nnpipe.core.plan import plan

    wrappers, dataset = classes["modelwrappers"], classes["datasets"][0]
    found = [
        (["model_training", w.get_dotted_path(), dataset.get_dotted_path()], [w, dataset])
        for w in wrappers
    ]
    small = next(wrapper for wrapper in wrappers if wrapper.__name__ == "PyTorchCIFARResNet")
    found += [
        (["model_training", small.get_dotted_path(), d.get_dotted_path()], [d])
        for d in classes["datasets"]
    ]
    frameworks = {
        (wrapper.framework, wrapper.exports): wrapper for wrapper in wrappers if wrapper.exports
    }
    for wrapper, runtime in itertools.product(frameworks.values(), classes["runtimes"]):
        for chain in ([], *([compiler] for compiler in classes["compilers"])):
            try:
                plan(wrapper, chain, runtime)
            except ConfigError:
                continue
            names = [
                wrapper.get_dotted_path(),
                chain[0].get_dotted_path() if chain else "none",
                runtime.get_dotted_path(),
            ]
            found.append(
                (
                    ["inference_tester", *names, dataset.get_dotted_path()],
                    [wrapper, *chain, runtime, dataset],
                )
            )
    for protocol, runtime in itertools.product(classes["protocols"], classes["runtimes"]):
        found.append(
            (
                ["inference_server", protocol.get_dotted_path(), runtime.get_dotted_path()],
                [protocol, runtime],
            )
        )
    return found


def test_with_classes_named_their_arguments_are_explained(classes: dict[str, list[Any]]) -> None:
    from nnpipe.core.arguments import list_arguments

    asked = combinations(classes)
    named = {cls for _, used in asked for cls in used}
    families = ("datasets", "modelwrappers", "compilers", "runtimes", "protocols")
    assert [cls for family in families for cls in classes[family] if cls not in named] == []
    answers = probe(commands=[[*argv, "-h"] for argv, _ in asked])["answers"]
    for (argv, used), answer in zip(asked, answers, strict=True):
        assert answer["status"] == 0, (argv, answer["err"])
        for cls in used:
            for declared in list_arguments(cls):
                assert declared.flag in answer["out"], (argv, declared.flag)


@pytest.mark.slow
def test_info_explains_every_class_and_how_to_install_what_it_needs(
    classes: dict[str, list[Any]],
) -> None:
    everything = [cls for found in classes.values() for cls in found]
    answers = probe(commands=[["info", cls.get_dotted_path()] for cls in everything])["answers"]
    for cls, answer in zip(everything, answers, strict=True):
        assert answer["status"] == 0, answer["err"]
        assert cls.summary() in " ".join(answer["out"].split())
        if {need for group in cls.requires for need in group.split("|")} & set(HEAVY):
            assert "pip install" in answer["out"], cls


def test_the_list_names_every_class_and_what_it_lacks(classes: dict[str, list[Any]]) -> None:
    (answer,) = probe(commands=[["list"]])["answers"]
    assert answer["status"] == 0
    assert answer["err"] == ""
    for found in classes.values():
        for cls in found:
            assert cls.get_dotted_path() in answer["out"]
