"""Run a model on test data that a plugin loads, and show on a page what another makes of the outputs.

  nnpipe testrun digits.onnx test.npz tried --plugin examples/digits_plugin.py --scale 16
  nnpipe testrun PyTorchDigitsCNN test.npz tried --model-path digits.pt --plugin mine.py
  nnpipe testrun PyTorchDigitsCNN test.npz tried --model-path digits.pt --plugin mine.py --runtime ONNXRuntime

MODEL is a model file, or a wrapper's class with --model-path: its weights, or a
file that was compiled from them.  With --runtime, weights are exported for it.
The plugin's load_test_data(path) gives data and steps; after each step
process_model_output(model_input, model_output) writes into output/.  OUT is a
folder with all that was written and a page that shows it, index.html.  It is
there as a whole once everything has been run, in place of what an earlier
testrun left there.  Name MODEL, DATA and OUT before options.

A plugin is code, and runs with all your rights.  The exit status is 0, 1 if
steps failed and --keep-going went on, and 2 if the test could not be run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from nnpipe import __version__
from nnpipe.core.deployment import RemoteOptions
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import replacing_folder, sha256_of, write_text
from nnpipe.core.kinds import Kind
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime
from nnpipe.plugins.plugin import OUTPUT, checked_source
from nnpipe.plugins.signatures import LOAD_TEST_DATA, PROCESS_MODEL_OUTPUT
from nnpipe.report.inputs.plugin_files import Budget, output_files
from nnpipe.report.writers.plugin_page import OutputSection, write_output_page
from nnpipe.scenarios._cli.command import Parsed, Role, add_model_path, execute, parse
from nnpipe.scenarios._cli.option_types import output_folder
from nnpipe.scenarios._cli.protocol_options import PROTOCOL, add_protocol, deployment_of
from nnpipe.workflows.candidates.model_files import settle_model_path, wrapper_of_file
from nnpipe.workflows.candidates.source import LimitOptions
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.testrun.run import Tried, candidate_of

ROLES = (
    Role("MODEL", ModelWrapper, "a model file, or the dotted path or name of a ModelWrapper", of_file=wrapper_of_file),
)
_RECORD, _KIND = "testrun.json", "nnpipe testrun"


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe testrun MODEL DATA OUT --plugin FILE ...``."""
    return execute(_test, argv, "testrun")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, metavar="DATA", help="what the plugin's load_test_data is given")
    parser.add_argument("output", type=output_folder, metavar="OUT", help="the folder to write")
    add_model_path(parser, "the weights of MODEL, where it is a class, or what was compiled from them", required=False)
    parser.add_argument(
        "--plugin", required=True, metavar="FILE",
        help="a Python file with load_test_data and process_model_output, or the name of an installed plugin",
    )  # fmt: skip
    parser.add_argument(
        "--output-plugin", metavar="FILE", help="another one with process_model_output (default: the same)"
    )
    parser.add_argument("--runtime", metavar="CLASS", help="what runs MODEL (default: its own framework)")
    add_protocol(parser)
    parser.add_argument(
        "--as-is", action="store_true",
        help="give the data to the model itself, without the wrapper's processing before and after it",
    )  # fmt: skip
    parser.add_argument(
        "--batch-size", type=Kind(int, minimum=1), default=32, metavar="N",
        help="samples in one call of a model that takes any number (default: 32)",
    )  # fmt: skip
    parser.add_argument(
        "--keep-going", action="store_true", help="where a step fails, say so on the page and go on with the next"
    )
    parser.add_argument("--title", default="", help="the page's title")


def _test(argv: Sequence[str] | None) -> int:
    named = (("--runtime", Runtime), PROTOCOL)
    parsed = parse(argv, "testrun", __doc__ or "", ROLES, _options, fixed=(LimitOptions, RemoteOptions), named_by=named)
    options = parsed.options
    if options.batch_size < 1:
        raise ConfigError(f"--batch-size {options.batch_size}: at least one sample is needed in a call")
    _check_free(options.output)
    plugins = _plugins(options)
    candidate = _candidate(parsed)
    limit = LimitOptions.from_argparse(options).time_limit
    try:
        return _run(parsed, candidate, plugins, limit)
    except NNPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"{error.filename or options.output}: {error.strerror or error}") from None


def _run(parsed: Parsed, candidate: CandidateSpec, plugins: dict[str, dict[str, Any]], limit: float) -> int:
    options = parsed.options
    with replacing_folder(options.output) as folder:
        request = {
            "candidate": candidate.to_json(), "data": str(options.data), "plugins": plugins, "folder": str(folder),
            "keep_going": options.keep_going, "as_is": options.as_is, "batch_size": options.batch_size,
        }  # fmt: skip
        with Worker("nnpipe.workflows.testrun.run:carry_out", shown=True) as worker:
            tried = [Tried(**found) for found in worker.attempt(f"testing {candidate.model_path}", request, limit)]
        # The process and all that it started are gone: nothing changes any more.
        facts = _facts(candidate, plugins, options.data, tried)
        budget = Budget()
        sections = [_section(folder, each, budget) for each in tried]
        write_output_page(
            folder / "index.html",
            options.title or f"Test of {candidate.model_path.name}",
            facts,
            sections,
            _warnings(tried),
        )
        record = {
            "kind": _KIND,
            "schema": 1,
            "command": list(parsed.command),
            "facts": facts,
            "steps": [vars(each) for each in tried],
        }
        write_text(folder / _RECORD, json.dumps(record, indent=2) + "\n")
    failed = sum(bool(each.failure) for each in tried)
    if failed:
        print(f"failed: {failed} of {len(tried)} steps")
    print(f"page: {options.output / 'index.html'} ({sum(len(s.files) + s.more for s in sections):,} files)")
    return 1 if failed else 0


def _check_free(folder: Path) -> None:
    """Refuse to replace what no testrun has written."""
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        return
    try:
        with open(folder / _RECORD, encoding="utf-8") as handle:
            if json.loads(handle.read(1 << 26))["kind"] == _KIND and not folder.is_symlink():
                return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ConfigError(
        f"{folder} holds something else than an earlier testrun, which would be replaced: give a new folder"
    )


def _plugins(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Check the plugins without running them, and say what is to be loaded: these very files."""
    other = options.output_plugin if options.output_plugin != options.plugin else None
    parts = {"plugin": (options.plugin, (LOAD_TEST_DATA,) if other else (LOAD_TEST_DATA, PROCESS_MODEL_OUTPUT))}
    if other:
        parts["output plugin"] = (other, (PROCESS_MODEL_OUTPUT,))
    found = {}
    for what, (name, needed) in parts.items():
        _, source = checked_source(name, needed)
        found[what] = {"name": name, "needed": needed, "sha256": hashlib.sha256(source).hexdigest()}
    return found


def _candidate(parsed: Parsed) -> CandidateSpec:
    options = parsed.options
    settle_model_path(options, "MODEL", f"the file with the weights of {options.model}, or a compiled one")
    runtime = cast(Runtime, parsed.make("--runtime")) if parsed.classes["--runtime"] else None
    wrapper = cast(ModelWrapper, parsed.make("MODEL"))
    return candidate_of(wrapper, options.model_path, runtime, deployment_of(parsed))


def _facts(
    candidate: CandidateSpec, plugins: dict[str, dict[str, Any]], data: Path, tried: Sequence[Tried]
) -> dict[str, str]:
    return {
        "model": f"{type(candidate.wrapper).__name__} ({candidate.model_path})",
        "SHA-256": sha256_of(candidate.model_path),
        "run by": candidate.run_by,
        "test data": str(data),
        **{what: f"{plugin['name']} (SHA-256 {plugin['sha256'][:16]})" for what, plugin in plugins.items()},
        "tested": datetime.now(timezone.utc).isoformat(" ", "seconds"),
        "by": f"nnpipe {__version__}",
    }


def _section(folder: Path, tried: Tried, budget: Budget) -> OutputSection:
    place = folder / tried.folder
    files, more = output_files(place, budget) if place.is_dir() else ([], 0)
    return OutputSection(tried.title.capitalize(), files, tried.folder, more, tried.failure)


def _warnings(tried: Sequence[Tried]) -> list[str]:
    lost: dict[str, Any] = dict.fromkeys(name for each in tried for name in each.lost)
    return [f"Written beside {OUTPUT}/, and not kept: {', '.join(list(lost)[:20])}"] if lost else []


if __name__ == "__main__":
    sys.exit(main())
