"""Write a standalone script that trains a network or carries out other tasks with it.

  nnpipe generate digits.yaml -o train_digits.py
  python train_digits.py --help

The file describes networks, variables and tasks. The script is made for PyTorch
or Keras and needs neither nnpipe nor the file. Its paths and numbers are
arguments. Weights, if there are any, are written beside it. Equal files give
equal scripts.

A pipeline file (nnpipe run) gives a script that uses nnpipe for the same steps:
train, compile, measure, report.

All errors in a file are reported together, one on each line, and then nothing is
written. Start with examples/generate.yaml.

Tasks:
{tasks}
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nnpipe.codegen import check_script, generate, list_task_classes
from nnpipe.codegen.description import GeneratedScript
from nnpipe.codegen.unparse import LAYOUT_HINT, can_lay_out, is_shadowing_module
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import write_bytes
from nnpipe.experiment.settings import override, read_settings
from nnpipe.report.formatting import clean
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe generate FILE ...``."""
    return execute(_generate, argv, "generate")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="what the script is to do: YAML, or JSON"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="SCRIPT.py",
        type=output_file,
        help="where to write it (default: its name, in this folder)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=(
            "change a setting of the file, such as framework=keras or tasks.0.path=other.npz; "
            "several times"
        ),
    )
    parser.add_argument(
        "--replace", action="store_true", help="replace files that are there and differ"
    )


def _generate(argv: Sequence[str] | None) -> None:
    known = list_task_classes()
    width = max(map(len, known))
    rows = [f"  {name:<{width}}  {known[name].summary()}" for name in sorted(known)]
    described = (__doc__ or "").format(tasks="\n".join(rows))
    options = parse(argv, "generate", described, (), _add_options).options
    settings = override(read_settings(options.file), options.set)
    is_pipeline = "candidates" in settings
    if not is_pipeline and not settings.keys() & {"script", "tasks"}:
        raise ConfigError(
            f"{options.file}: describes no script (script, framework, tasks) and no pipeline "
            f"(candidates)"
        )
    generated, name = (_generate_for_pipeline if is_pipeline else _generate_for_tasks)(
        settings, options.file
    )
    output = options.output or Path(f"{name}.py")
    if is_shadowing_module(output.stem):
        raise ConfigError(
            f"{output}: Python would import this file as the module {output.stem}; choose another "
            f"name"
        )
    files = {
        output: generated.text.encode(),
        **{output.parent / n: data for n, data in generated.files.items()},
    }
    taken = [path for path, data in files.items() if _has_other_content(path, data)]
    if taken and not options.replace:
        raise ConfigError(
            f"{taken[0]}: there is another file of that name; nothing was written, --replace "
            f"replaces it"
        )
    # What the script needs comes before the script: whoever sees it can run it.
    for path, data in reversed(files.items()):
        write_bytes(path, data)
    if not can_lay_out():
        print(LAYOUT_HINT, file=sys.stderr)
    beside = "".join(f", {path}" for path in list(files)[1:])
    print(f"wrote {output}{beside}; python {output} --help shows its options")


def _has_other_content(path: Path, data: bytes) -> bool:
    """Return whether a different file exists at the path of a new one."""
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; name a file, such as {path / 'train.py'}")
    try:
        return path.exists() and path.read_bytes() != data
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _generate_for_pipeline(settings: dict[str, object], file: Path) -> tuple[GeneratedScript, str]:
    from nnpipe.workflows.pipeline.file import Pipeline
    from nnpipe.workflows.pipeline.to_script import generate_pipeline_script

    try:
        generated, left_out = generate_pipeline_script(Pipeline.from_settings(settings))
    except NNPipeError as error:
        raise type(error)(f"{file}: {error}") from None
    for what in left_out:
        print(f"left out: {clean(what)}", file=sys.stderr)
    return generated, file.stem.replace("-", "_")


def _generate_for_tasks(settings: dict[str, object], file: Path) -> tuple[GeneratedScript, str]:
    checked = check_script(settings)
    if checked.graph is None:
        for problem in checked.problems:
            print(clean(str(problem)), file=sys.stderr)
        count = len(checked.problems)
        raise ConfigError(f"{file}: {count} problem{'s' * (count > 1)}; nothing was written")
    return generate(checked.graph), checked.graph.script.name


if __name__ == "__main__":
    sys.exit(main())
