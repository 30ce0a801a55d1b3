"""What the README and the pages in ``docs`` say is run, parsed, or compared with the code."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from warm_python import WarmPython

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError
from nnpipe.core.generation import GenerationSession
from nnpipe.core.registry import FAMILIES, components
from nnpipe.core.session import InferenceSession
from nnpipe.core.task import list_installed_tasks

ROOT = Path(__file__).resolve().parents[1]
# docs/changes.md is the copy of CHANGELOG.md that the site's last build left.
IN_DOCS = sorted(
    f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md") if path.name != "changes.md"
)
PAGES = ["README.md", "CHANGELOG.md", *IN_DOCS]
ACME = ROOT / "tests" / "thirdparty" / "acme_nn" / "src"
PATHS = os.pathsep.join((str(ROOT / "src"), str(ACME)))
KINDS = {
    "python": "run, all of a page together and in order",
    "console": "each command parsed, with `acme` or `folders` where these exist; with `run`, run by a slow test",
    "yaml": "parsed; with `pipeline`, checked as a pipeline file",
    "json": "parsed; with `artifact` or `packed`, read by nnpipe",
    "toml": "nothing, unless it has a source",
    "c": "compiled, where there is a C compiler",
    "text": "nothing",
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its kind, further words after that, its text, and its first
    line's number.
    """

    page: str
    line: int
    kind: str
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Find the fenced blocks of a page."""
    lines = text.splitlines()
    start = None
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
        else:
            kind, *words = lines[start - 1][3:].split() or [""]
            yield Block(
                page, start, kind, tuple(words), "\n".join(lines[start : number - 1]) + "\n"
            )
            start = None
    assert start is None, f"{page}:{start}: a block without an end"


BLOCKS = [block for page in PAGES for block in blocks_of(page, (ROOT / page).read_text("utf-8"))]


def of_kind(kind: str, word: str | None = None) -> list[Block]:
    return [
        block for block in BLOCKS if block.kind == kind and (word is None or word in block.words)
    ]


def commands_of(block: Block) -> list[list[str]]:
    """Return the command lines of a console block, each as words; what follows without ``$`` is
    output.
    """
    joined = re.sub(r"\\\n\s*", "", block.text)
    return [
        shlex.split(line[2:], comments=True)
        for line in joined.splitlines()
        if line.startswith("$ ")
    ]


COMMANDS = [(block, words) for block in of_kind("console") for words in commands_of(block)]


def test_the_readme_has_at_most_600_words_and_a_picture() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.split()) <= 600
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+\.png)\)", text)
    assert pictures
    assert all((ROOT / picture).stat().st_size < 150_000 for picture in pictures)


def test_the_readme_shows_what_its_example_prints() -> None:
    kinds = [block.kind for block in BLOCKS if block.page == "README.md"]
    assert kinds[:2] == ["python", "text"]
    example, output = (
        block.text
        for block in BLOCKS
        if block.page == "README.md" and block.kind in ("python", "text")
    )
    for title in re.findall(r'"(onnx[\w-]*)"', example):
        assert re.search(rf"^{title} ", output, re.MULTILINE), title


def test_no_page_calls_nnpipe_nn() -> None:
    """PyTorch's programs import ``nn`` from torch."""
    assert [
        page
        for page in PAGES
        if re.search(r"import nnpipe as nn\b", (ROOT / page).read_text("utf-8"))
    ] == []
    assert "import nnpipe as" not in (ROOT / "README.md").read_text("utf-8")


def entries_of_the_glossary() -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    return re.findall(r"^- \*\*([^*]+)\*\*: (.+)$", text, re.MULTILINE)


def test_the_glossary_has_at_most_40_words_each_in_one_sentence() -> None:
    entries = entries_of_the_glossary()
    words = [word for word, _ in entries]
    assert 20 <= len(words) <= 40
    assert words == sorted(set(words), key=str.lower)
    assert [
        text for _, text in entries if not text.endswith(".") or re.search(r"[.!?] ", text)
    ] == []


def test_other_pages_use_the_words_of_the_glossary() -> None:
    texts = " ".join(prose_of(page).lower() for page in PAGES if page != "docs/glossary.md")
    assert [word for word, _ in entries_of_the_glossary() if word.lower() not in texts] == []


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    assert [f"{block}: {block.kind!r}" for block in BLOCKS if block.kind not in KINDS] == []


# -- what comes from the code -----------------------------------------------------------------


@pytest.fixture(scope="module")
def refresh() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES)
def test_sources_and_tables_are_those_of_the_code(refresh: ModuleType, page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert text == refresh.refreshed(text), "run: python docs/refresh.py"


def test_the_schemas_for_editors_are_those_of_the_code(refresh: ModuleType) -> None:
    for path in refresh.SCHEMAS:
        assert path.read_text("utf-8") == refresh.contents()[path], "run: python docs/refresh.py"


def test_refreshing_notices_what_changed(refresh: ModuleType) -> None:
    stale = "```python source=src/nnpipe/core/progress.py#silent\ndef silent(): ...\n```\n"
    assert "show nothing" in refresh.refreshed(stale)
    table = refresh.refreshed("<!-- table: datasets -->\n<!-- end -->")
    assert "`DigitsDataset`" in table
    assert refresh.refreshed(table) == table
    rules = refresh.refreshed("<!-- protocol: rules -->\nstale\n<!-- end -->")
    assert "| `PROCESS` | loaded, done |" in rules
    assert "stale" not in rules
    assert refresh.refreshed(rules) == rules
    with pytest.raises(SystemExit, match="no_table"):
        refresh.refreshed("<!-- protocol: no_table -->\n<!-- end -->")
    with pytest.raises(SystemExit, match="no_such"):
        refresh.refreshed(stale.replace("#silent", "#no_such"))


def test_links_lead_somewhere() -> None:
    lost = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose_of(page)):
            if not target.startswith("https://") and not ((ROOT / page).parent / target).exists():
                lost.append(f"{page}: {target}")
    assert lost == []


def test_anchors_lead_to_headings() -> None:
    lost = []
    for page in PAGES:
        for target, anchor in re.findall(
            r"\]\(([^)#\s]*)#([^)]+)\)", (ROOT / page).read_text("utf-8")
        ):
            if target.startswith("https://"):
                continue
            other = (ROOT / page).parent / target if target else ROOT / page
            headings = re.findall(r"^#+ (.+)$", other.read_text("utf-8"), re.MULTILINE)
            if anchor not in {
                re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
            }:
                lost.append(f"{page}: {target}#{anchor}")
    assert lost == []


def test_the_table_of_interfaces_names_what_authors_write() -> None:
    """Architecture lists the required and the optional methods of each interface; the classes
    decide.
    """
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    header = "| class | an author must write | and may write |"
    rows = page.partition(header)[2].split("\n\n")[0].strip().splitlines()[1:]
    classes: dict[str, Any] = {base.__name__: base for base in FAMILIES.values()} | {
        "InferenceSession": InferenceSession,
        "GenerationSession": GenerationSession,
    }
    seen = set()
    for row in rows:
        name, required, optional = (
            [*re.findall(r"`(\w+)`", cell)] for cell in row.strip("|").split("|")
        )
        cls = classes[name[0]]
        seen.add(name[0])
        written = {word for word in required if word in cls.__abstractmethods__}
        assert written == cls.__abstractmethods__, row
        assert all(
            hasattr(cls, word) or word in cls.__annotations__ for word in (*required, *optional)
        ), row
        assert not set(optional) & cls.__abstractmethods__, row
    assert seen == set(classes)


def test_the_table_of_result_files_names_every_key() -> None:
    from nnpipe.measuring.run import Run

    page = (ROOT / "docs" / "file-formats.md").read_text("utf-8")
    rows = page.partition("| key | holds |")[2].split("\n\n")[0]
    run = Run(title="", command=(), components={}, frameworks={}, host={}, timing={}, series={})
    assert re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE) == list(run.to_json())


def test_the_table_of_evaluations_names_the_arrays_of_every_task() -> None:
    page = (ROOT / "docs" / "file-formats.md").read_text("utf-8")
    rows = (
        page.partition("| task | arrays | ragged arrays |")[2]
        .split("\n\n")[0]
        .strip()
        .splitlines()[1:]
    )
    named = {words[0]: set(words[1:]) for words in (re.findall(r"`(\w+)`", row) for row in rows)}
    tasks = {task.name: task for task in list_installed_tasks(of_plugins=False)}
    assert named.keys() == tasks.keys()
    assert [
        (name, array)
        for name, task in tasks.items()
        for array in task.arrays
        if array not in named[name]
    ] == []


def test_the_table_of_pipeline_files_names_every_key() -> None:
    from nnpipe.workflows.pipeline.schema import build_pipeline_schema

    page = (ROOT / "docs" / "file-formats.md").read_text("utf-8")
    rows = page.partition("## Pipeline files")[2].partition("| key | holds |")[2].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)) == set(
        build_pipeline_schema()["properties"]
    )


def test_the_extras_that_pages_name_exist() -> None:
    known = set(
        re.findall(r"^(\w+) = \[\"", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    )
    assert {"torch", "onnx", "report"} <= known
    for page in PAGES:
        for extras in re.findall(r"(?:nnpipe|\.)\[([\w,]+)\]", (ROOT / page).read_text("utf-8")):
            assert set(extras.split(",")) <= known, f"{page}: {extras}"


# -- data -------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", of_kind("json"), ids=str)
def test_json_is_what_it_stands_for(block: Block) -> None:
    from nnpipe.measuring.result_json import unpack

    data = json.loads(block.text)
    if "artifact" in block.words:
        artifact = Artifact.from_json(data)
        assert json.loads(json.dumps(artifact.to_json())) == data
    if "packed" in block.words:
        assert unpack(data).tolist() == [100, 200, 300]


@pytest.mark.parametrize("block", of_kind("yaml"), ids=str)
def test_yaml_is_what_it_stands_for(block: Block) -> None:
    from nnpipe.experiment.settings import parse_yaml
    from nnpipe.workflows.pipeline.file import Pipeline
    from nnpipe.workflows.pipeline.schema import build_pipeline_schema

    settings = parse_yaml(block.text, str(block))
    if "pipeline" in block.words:
        pytest.importorskip("jsonschema", reason="jsonschema is not installed").validate(
            settings, build_pipeline_schema()
        )
        check_pipeline(lambda: Pipeline.from_settings(settings))


def check_pipeline(read: Any) -> None:
    """Make a pipeline; frameworks that are missing here are no fault of the page."""
    from nnpipe.core.errors import MissingDependency

    try:
        read()
    except MissingDependency as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("block", of_kind("c"), ids=str)
def test_c_compiles_as_c99(block: Block, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = tmp_path / "block.c"
    source.write_text(block.text, "utf-8")
    strict = ["-std=c99", "-pedantic", "-Wall", "-Werror", "-fsyntax-only"]
    done = subprocess.run(
        [compiler, *strict, str(source)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


# -- Python -----------------------------------------------------------------------------------


def snippets() -> dict[str, list[Block]]:
    """Return the Python blocks that are to be run, by page; those with a source are compared
    instead.
    """
    found: dict[str, list[Block]] = {}
    for block in of_kind("python"):
        if not any(word.startswith("source=") for word in block.words):
            found.setdefault(block.page, []).append(block)
    return found


@pytest.fixture(scope="module")
def warm_python() -> Iterator[WarmPython]:
    """An interpreter that has what most pages import; each page runs in a fork of it."""
    modules = ("torch", "onnxscript", "tensorflow", "matplotlib.backends.backend_agg")
    with WarmPython(modules, os.environ | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}) as warm:
        yield warm


# Pages that train, compile or start others' suites, as tests of what they are about do.
LONG_PAGES = {
    "README.md",
    "docs/adding-a-framework.md",
    "docs/agreement.md",
    "docs/architecture-search.md",
    "docs/architecture.md",
    "docs/callbacks.md",
    "docs/codegen.md",
    "docs/file-formats.md",
    "docs/layers.md",
    "docs/arrays.md",
    "docs/devices.md",
    "docs/input-pipelines.md",
    "docs/measuring.md",
    "docs/models-from-outside.md",
    "docs/onnx.md",
    "docs/plugins.md",
    "docs/reduce.md",
    "docs/searching.md",
    "docs/sweeping.md",
    "docs/training.md",
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page in LONG_PAGES else ())
        for page in snippets()
    ],
)
def test_python_of_a_page_runs(page: str, tmp_path: Path, warm_python: WarmPython) -> None:
    text = ""
    for block in snippets()[page]:
        # tracebacks show the page's line numbers
        text += "\n" * (block.line - text.count("\n")) + block.text
    for framework in ("torch", "tensorflow", "onnxruntime"):
        if importlib.util.find_spec(framework) is None and re.search(
            rf"{framework}", text, re.IGNORECASE
        ):
            pytest.skip(f"{framework} is not installed")
    # no page may hide the package that it is about
    script = tmp_path / f"page_{Path(page).stem}.py"
    script.write_text(text, "utf-8")
    done = warm_python.run(script, tmp_path, 280)
    assert done.returncode == 0, done.stderr


def python(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )


# -- commands ---------------------------------------------------------------------------------


class Understood(Exception):
    """A command line has been read without fault; nothing need be done about it."""


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short names lead to the third-party package, as if it were installed."""
    from importlib.metadata import EntryPoint, entry_points

    from nnpipe.core.registry import ENTRY_POINTS

    def with_acme(**selection: Any) -> list[EntryPoint]:
        ours = (
            [EntryPoint("acme", "acme_nn", ENTRY_POINTS)]
            if selection.get("group") == ENTRY_POINTS
            else []
        )
        return [*entry_points(**selection), *ours]

    monkeypatch.syspath_prepend(str(ACME))
    monkeypatch.setattr("importlib.metadata.entry_points", with_acme)


@pytest.fixture
def language_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in a folder with a model of transformers and one of onnxruntime-genai, which commands
    tell by their files.
    """
    for folder, file in (("llama", "config.json"), ("llama-int4", "genai_config.json")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text('{"architectures": ["LlamaForCausalLM"]}', "utf-8")
    monkeypatch.chdir(tmp_path)


def read_command(words: list[str]) -> None:
    """Let a scenario read its command line with its own parser, and stop it there; raises
    ConfigError for a fault.
    """
    scenario = import_module(f"nnpipe.scenarios.{words[0]}")
    real_parse = scenario.parse

    def parse(*args: Any, **options: Any) -> Any:
        raise Understood(real_parse(*args, **options))

    def execute(body: Any, argv: Any, prog: str) -> int:
        body(argv)
        raise AssertionError(f"{prog} never read its command line")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenario, "parse", parse)
        patch.setattr(scenario, "execute", execute)
        try:
            scenario.main(words[1:])
        except Understood:
            return
        except SystemExit as left:  # -h
            if left.code:
                raise


def check_command(words: list[str]) -> None:
    """Fail unless a command that a page shows exists and takes these words."""
    if words[0] == "nnpipe":
        read_command(words[1:])
    elif words[:2] == ["python", "-m"]:
        read_command([words[2].removeprefix("nnpipe.scenarios."), *words[3:]])
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), words
    elif words[0] == "export":
        name = words[1].partition("=")[0]
        assert any(
            f'"{name}"' in path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")
        ), words
    elif words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(targets), words
    else:
        assert words[:2] == ["pip", "install"], f"a command that nobody checks: {words}"


@pytest.mark.parametrize(
    ("block", "words"), COMMANDS, ids=lambda value: value if isinstance(value, Block) else None
)
def test_commands_are_understood(
    block: Block, words: list[str], request: pytest.FixtureRequest
) -> None:
    for word, fixture in (("acme", "acme"), ("folders", "language_models")):
        if word in block.words:
            request.getfixturevalue(fixture)
    check_command(words)


@pytest.mark.parametrize(
    "line",
    [
        "nnpipe model_training PyTorchDigitsCNN DigitsDataset --model-path x --no-such-flag 1",
        "nnpipe model_training PyTorchDigitsCNN DigitsDataset --num-epochs 3",
        "nnpipe model_training PyTorchDigitsCNN DigitsDataset --model-path x --num-epochs none",
        "nnpipe render_report a.json Title out.rst --report-types speed",
    ],
)
def test_a_wrong_command_would_be_noticed(line: str) -> None:
    with pytest.raises(ConfigError):
        check_command(line.split())


def prose_of(page: str) -> str:
    """Return a page's text without its fenced blocks."""
    return re.sub(
        r"^```.*?^```$", "", (ROOT / page).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def test_commands_within_sentences_are_understood(acme: None) -> None:
    lines = [
        line
        for page in PAGES
        for line in re.findall(r"`(nnpipe [a-z_]+[^`]*|make [\w-]+)`", prose_of(page))
    ]
    assert len(lines) > 5
    for line in lines:
        if not re.search(r"\b[A-Z]{3,}\b", line):  # CLASS and the like stand for something
            check_command(shlex.split(line))


def test_units_of_systemd_start_commands_that_exist() -> None:
    lines = [
        line
        for block in of_kind("text")
        for line in re.findall(r"^ExecStart=\S*/(nnpipe .*)$", block.text, re.M)
    ]
    assert lines
    for line in lines:
        check_command(shlex.split(line))


def test_options_within_sentences_exist() -> None:
    from nnpipe.core.runtime_protocol import RemoteOptions, ServerOptions
    from nnpipe.core.training import TrainingOptions
    from nnpipe.measuring.load_options import LoadOptions
    from nnpipe.measuring.measure_options import MeasureOptions
    from nnpipe.scenarios._cli.index import list_scenarios
    from nnpipe.workflows.verification.compare_outputs import VerifyOptions

    options = (
        TrainingOptions,
        MeasureOptions,
        LoadOptions,
        VerifyOptions,
        RemoteOptions,
        ServerOptions,
    )
    known = {"--verbosity", "--help"}
    for base in FAMILIES.values():
        for cls in (*options, *components(base)):
            known |= flags_of(cls.form_argparse())
    for name in list_scenarios():
        parser = argparse.ArgumentParser()
        import_module(f"nnpipe.scenarios.{name}")._add_options(parser)
        known |= flags_of(parser)
    for page in PAGES:
        named = set(re.findall(r"`(--[a-z-]+)", prose_of(page)))
        assert named <= known, page


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    return {flag for action in parser._actions for flag in action.option_strings}


LEFT = {
    "docs/index.md": "report.html",
    "docs/plugins.md": "tried/index.html",
    "docs/codegen.md": "train_digits_keras.py",
    "docs/architecture-search.md": "build/architectures/trials/1/network.yaml",
}
"""What the commands of a page leave."""

TOLD = {"docs/tasks.md": "segmentation"}
"""What the commands of a page print, where they leave nothing."""


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({block.page for block in of_kind("console", "run")}))
def test_the_commands_of_a_page_do_what_they_say(page: str, tmp_path: Path) -> None:
    for package in (
        "torch",
        "onnx",
        "onnxruntime",
        "onnxscript",
        "matplotlib",
        "jinja2",
        "tensorboardX",
    ):
        pytest.importorskip(package, reason=f"{package} is not installed")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = python(["-c", "\n".join(block.text for block in snippets().get(page, []))], tmp_path)
    # commands may take files that the page's Python writes
    assert done.returncode == 0, done.stderr
    printed = ""
    for block in of_kind("console", "run"):
        if block.page == page:
            for words in commands_of(block):
                assert words[0] == "nnpipe"
                done = python(["-m", "nnpipe", *words[1:]], tmp_path)
                assert done.returncode == 0, done.stderr
                printed += done.stdout
    if page in TOLD:
        assert TOLD[page] in printed
    else:
        assert (tmp_path / LEFT[page]).is_file()
