"""The ``nnpipe`` command: each scenario module is a subcommand."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

_ELSEWHERE = {
    "json_inference_tester": "; nnpipe run PIPELINE carries out pipeline files, in YAML or JSON",
    "inference_report": "; nnpipe render_report makes reports of results",
    "optimization_runner": "; nnpipe sweep SWEEP measures every combination and chooses one",
}
"""What other tools call by these names."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe SCENARIO ...``; nothing but the scenario asked for is imported."""
    if argv is not None:
        return _run(argv)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop_at_once)
    return _run(sys.argv[1:])


def _stop_at_once(number: int, _: FrameType | None) -> None:
    """End the process; while modules are imported an exception might be taken for an error of
    theirs.
    """
    os.write(2, b"nnpipe: stopped\n")
    os._exit(128 + number)


def _run(argv: Sequence[str]) -> int:
    from nnpipe.core.secret import OPTIONS, hide_command_secrets, hide_in_process_list
    from nnpipe.scenarios._cli.index import list_scenarios
    from nnpipe.scenarios._cli.standard_streams import prepare_standard_streams

    prepare_standard_streams()
    given = list(argv)
    # before anything that takes time is imported
    hide_in_process_list(given, hide_command_secrets(given, OPTIONS))
    known = list_scenarios()
    if not given or given[0] in ("-h", "--help"):
        print(_help())
        return 0
    if given[0] in ("-V", "--version"):
        from nnpipe import __version__

        print(f"nnpipe {__version__}")
        return 0
    name = given[0].replace("-", "_")
    if name not in known:
        from nnpipe.core.messages import suggest_name

        hint = _ELSEWHERE.get(name) or suggest_name(name, known)
        print(f"nnpipe: there is no command {given[0]!r}{hint}", file=sys.stderr)
        return 2
    from importlib import import_module

    scenario = import_module(f"nnpipe.scenarios.{name}")
    if signal.getsignal(signal.SIGINT) is _stop_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    result: int = scenario.main(given[1:])
    return result


def _help() -> str:
    from nnpipe.scenarios._cli.index import PURPOSES, read_scenario_summary

    width = max(len(name) for names in PURPOSES.values() for name in names)
    groups = []
    for purpose, names in PURPOSES.items():
        rows = [f"  {name:<{width}}  {read_scenario_summary(name)}" for name in names]
        groups.append("\n".join([f"{purpose}:", *rows]))
    commands = "\n\n".join(groups)
    return f"""usage: nnpipe COMMAND ...

Which model, compiled how, on which runtime and device, and can you trust the numbers?

{commands}

nnpipe COMMAND -h explains a command; with classes named, also their arguments.
Each command is a module as well: python -m nnpipe.scenarios.COMMAND ..."""


if __name__ == "__main__":
    sys.exit(main())
