"""Run a model on pictures, or on test data that a plugin loads, and show on a page what comes out.

  nnpipe testrun yolox.onnx pictures tried --scale 1 --fit letterbox --decoder YOLOXDecoder nnpipe
  testrun yolox.onnx street.mp4 tried --beside yolox-int8.onnx --class-list coco.txt --every 25
  nnpipe testrun yolox.onnx camera tried --beside other.onnx --beside-options "--scale 255 --decoder
  YOLODecoder" nnpipe testrun llama prompts.jsonl tried --beside llama-int4 --max-new-tokens 40
  nnpipe testrun digits.onnx test.npz tried --plugin examples/digits_plugin.py --scale 16 nnpipe
  testrun PyTorchDigitsCNN test.npz tried --model-path digits.pt --plugin mine.py nnpipe testrun
  PyTorchDigitsCNN test.npz tried --model-path digits.pt --plugin mine.py --runtime ONNXRuntime

MODEL is a model file, or a wrapper's class with --model-path: its weights, or a
file that was compiled from them.  With --runtime, weights are exported for it.
Without a plugin, DATA is a folder of pictures, an image, a video file or
"camera", and the task of the model draws what the model says: boxes, masks, key
points, anomalies, classes or numbers.  MODEL may also be a folder with a model
that generates text; then DATA is a file of prompts (.txt, .jsonl, .csv), and the
page has a table of the answers.  With --beside, two models are shown side by
side, and those pictures or prompts come first in which they differ most.

With a plugin, its load_test_data(path) gives data and steps; after each step
process_model_output(model_input, model_output) writes into output/.  OUT is a folder with all these
files and a page that shows them, index.html.  It is written atomically at the end, and replaces an
earlier testrun.  Name MODEL, DATA and OUT before options.

A plugin is code, and runs with all your permissions.  The exit status is 0; 1 if
steps failed with --keep-going; and 2 if the test could not be run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from nnpipe.core.arguments import Kind
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.scenarios._cli.command import (
    ParsedCommand,
    Role,
    add_model_folder,
    add_model_path,
    execute,
    parse,
)
from nnpipe.scenarios._cli.device_options import PROTOCOL, add_protocol, create_deployment
from nnpipe.scenarios._cli.model_arguments import (
    SECOND,
    add_second_model,
    create_first_model,
    create_second_model,
    find_second_classes,
    find_wrapper_for_file,
)
from nnpipe.scenarios._cli.option_types import output_folder
from nnpipe.workflows.candidates.model_files import set_model_path
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.testrun.on_pictures import run_on_pictures
from nnpipe.workflows.testrun.testrun import testrun

_OF_PICTURES = (*SECOND, "task", "class_list")


ROLES = (
    Role(
        "MODEL",
        ModelWrapper,
        "a model file, a folder with a model that generates text, or the dotted path or name of a "
        "ModelWrapper",
        of_file=find_wrapper_for_file,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe testrun MODEL DATA OUT --plugin FILE ...``."""
    return execute(_test, argv, "testrun")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help="pictures, or what the plugin's load_test_data is given",
    )
    parser.add_argument("output", type=output_folder, metavar="OUT", help="the folder to write")
    add_model_path(
        parser,
        "the weights of MODEL, where it is a class, or what was compiled from them",
        required=False,
    )
    add_model_folder(parser)
    parser.add_argument(
        "--plugin",
        metavar="FILE",
        help=(
            "a Python file with load_test_data and process_model_output, or the name of an "
            "installed plugin"
        ),
    )
    parser.add_argument(
        "--output-plugin",
        metavar="FILE",
        help="another one with process_model_output (default: the same)",
    )
    add_second_model(parser)
    parser.add_argument(
        "--task",
        metavar="NAME",
        help=(
            "the task that draws into pictures (default: that of the decoder, else classification)"
        ),
    )
    parser.add_argument(
        "--class-list", type=Path, metavar="FILE", help="a text file with one class name a line"
    )
    parser.add_argument(
        "--most",
        type=Kind(int, minimum=1),
        default=200,
        metavar="N",
        help="greatest number of pictures (default: 200)",
    )
    parser.add_argument(
        "--every",
        type=Kind(int, minimum=1),
        default=1,
        metavar="N",
        help="take every Nth picture, or frame of a video (default: 1)",
    )
    parser.add_argument(
        "--runtime", metavar="CLASS", help="what runs MODEL (default: its own framework)"
    )
    add_protocol(parser)
    parser.add_argument(
        "--as-is",
        action="store_true",
        help=(
            "give the data to the model itself, without the wrapper's processing before and after "
            "it"
        ),
    )
    parser.add_argument(
        "--batch-size",
        type=Kind(int, minimum=1),
        default=32,
        metavar="N",
        help="samples in one call of a model that takes any number (default: 32)",
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="where a step fails, say so on the page and go on with the next",
    )
    parser.add_argument("--title", default="", help="the page's title")


def _test(argv: Sequence[str] | None) -> int:
    named = (("--runtime", Runtime), PROTOCOL)
    given = list(sys.argv[1:] if argv is None else argv)
    fixed: tuple[type[Component], ...] = (*find_second_classes(given), LimitOptions, RemoteOptions)
    parsed = parse(argv, "testrun", __doc__ or "", ROLES, _add_options, fixed=fixed, named_by=named)
    options = parsed.options
    if options.plugin is None:
        return _test_on_pictures(parsed)
    for name in _OF_PICTURES:
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')} is for pictures, which need no --plugin")
    set_model_path(
        options,
        "MODEL",
        f"the file with the weights of {options.model}, or a compiled one",
        always=True,
    )
    found = testrun(
        (cast(ModelWrapper, parsed.make("MODEL")), options.model_path),
        options.data,
        options.output,
        plugin=options.plugin,
        output_plugin=options.output_plugin,
        runtime=cast(Runtime, parsed.make("--runtime")) if parsed.classes["--runtime"] else None,
        deployment=create_deployment(parsed),
        as_is=options.as_is,
        batch_size=options.batch_size,
        keep_going=options.keep_going,
        title=options.title,
        time_limit=LimitOptions.from_argparse(options).time_limit,
        command=parsed.command,
    )
    found.show()
    return 1 if found.failed_steps else 0


def _test_on_pictures(parsed: ParsedCommand) -> int:
    options = parsed.options
    for name in ("output_plugin", "as_is", "keep_going"):
        if getattr(options, name):
            raise ConfigError(f"--{name.replace('_', '-')} is for plugins; name one with --plugin")
    models = [create_first_model(parsed), *create_second_model(options, "testrun")]
    found = run_on_pictures(
        models,
        options.data,
        options.output,
        task=options.task,
        class_list=options.class_list,
        most=options.most,
        every=options.every,
        runtime=cast(Runtime, parsed.make("--runtime")) if parsed.classes["--runtime"] else None,
        deployment=create_deployment(parsed),
        title=options.title,
        time_limit=LimitOptions.from_argparse(options).time_limit,
        command=parsed.command,
    )
    found.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
