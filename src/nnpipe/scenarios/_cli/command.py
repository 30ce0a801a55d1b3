"""Command-line parsing with the options of components, and the execution of scenarios with one-line
errors.

A scenario names the roles that component classes have in it, and declares its
own options.  The command line is parsed twice: first to find the named classes,
then with the options that these classes declare, so that ``-h`` shows them too.
Classes must therefore be named before their options.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import importlib
import itertools
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from nnpipe.core.arguments import Argument, Kind
from nnpipe.core.artifact import get_sidecar_path
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import FULL, check_apart, find_full_disk_error, format_path
from nnpipe.core.foreign_text import sanitize_streams, sanitize_text
from nnpipe.core.leases import redirect_temporary_files
from nnpipe.core.messages import suggest_name
from nnpipe.core.registry import find
from nnpipe.core.secret import OPTIONS, hide_command_secrets
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.scenarios._cli.standard_streams import prepare_standard_streams
from nnpipe.workflows.isolation.signals import INTERRUPTED, handle_end_signals


def join_options(
    parser: argparse.ArgumentParser, owner: str, classes: Iterable[type[Component]]
) -> None:
    """Add the options of components to a parser; options that several components declare alike
    become one.

    Raises
    ------
    ConfigError
        If two owners declare an option differently; the message names both.
    """
    owners: dict[str, tuple[str, argparse.Action]] = {
        flag: (owner, action)
        for action in parser._actions
        for flag in action.option_strings or (action.dest,)
    }
    for cls in dict.fromkeys(classes):
        fragment = cls.form_argparse()
        for group in fragment._action_groups:
            target = None
            for action in group._group_actions:
                _resolve_alias_conflict(parser, action, owners)
                # A positional argument with the same destination would overwrite the value, so it
                # is a clash too.
                names = (*action.option_strings, action.dest)
                clash = next((owners[name] for name in names if name in owners), None)
                if clash is not None:
                    _check_same(action, clash[1], cls.__name__, clash[0])
                    # An option is required if one component requires it, unless the scenario
                    # declares it as optional.
                    clash[1].required |= action.required and clash[0] != owner
                    continue
                if target is None:
                    target = parser.add_argument_group(group.title, group.description)
                target._add_action(action)
                owners |= dict.fromkeys(action.option_strings, (cls.__name__, action))


def _resolve_alias_conflict(
    parser: argparse.ArgumentParser,
    action: argparse.Action,
    owners: dict[str, tuple[str, argparse.Action]],
) -> None:
    """Remove a flag that is an alias of one option and the proper name of another from the first
    one.
    """
    own = _get_proper_flag(action)
    if own in action.option_strings:
        action.option_strings = [
            flag for flag in action.option_strings if flag == own or flag not in owners
        ]
    other = owners[own][1] if own in owners else None
    if other is not None and _get_proper_flag(other) in set(other.option_strings) - {own}:
        other.option_strings = [flag for flag in other.option_strings if flag != own]
        del parser._option_string_actions[own], owners[own]


def _get_proper_flag(action: argparse.Action) -> str:
    """Return the proper name of an option, which follows from its destination."""
    return "--" + action.dest.replace("_", "-")


def _check_same(
    one: argparse.Action, other: argparse.Action, one_owner: str, other_owner: str
) -> None:
    meaning, known = _get_meaning(one), _get_meaning(other)
    if meaning != known:
        flag = one.option_strings[0]
        raise ConfigError(
            f"{flag} means one thing to {other_owner} ({_describe_option(other)}) and another to "
            f"{one_owner} ({_describe_option(one)}); "
            "these two cannot be used together on a command line, use a pipeline file (nnpipe run)"
        )


def _get_meaning(action: argparse.Action) -> tuple[object, ...]:
    choices = tuple(action.choices) if action.choices is not None else None
    return type(action), action.dest, action.type, action.nargs, action.default, choices


def _describe_option(action: argparse.Action) -> str:
    describe = getattr(action.type, "describe", None)
    kind = describe() if describe else getattr(action.type, "__name__", "a switch")
    return f"{kind}, " + ("required" if action.required else f"default {action.default}")


NONE = "none"
_LONGEST_WORD = 300
_VERBOSITY = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True)
class Role:
    """A positional argument that names a component class.

    ``chain`` allows several classes, joined by commas, or ``none``.  With ``of_file``
    a file may be named instead of a class; the function returns the class for a file,
    or ``None`` if the name is not a file.  ``words`` are accepted instead of a class,
    and stand for no class.
    """

    name: str
    base: type[Component]
    help: str
    chain: bool = False
    of_file: Callable[[str], type[Component] | None] | None = None
    words: Sequence[str] = ()


class CommandParser(argparse.ArgumentParser):
    """An argument parser that raises one-line errors."""

    def error(self, message: str) -> NoReturn:
        """Raise :class:`ConfigError` instead of printing the usage and exiting."""
        raise ConfigError(f"{message} ({self.prog} -h explains)")


@dataclass(frozen=True)
class ParsedCommand:
    """A parsed command line with its options and the classes by role; ``command`` has no
    secrets, for results.
    """

    options: argparse.Namespace
    classes: dict[str, list[type[Component]]]
    command: tuple[str, ...]

    def make(self, role: str) -> Component:
        """Return the component of a role that names a single class, made from the options."""
        return self.classes[role][0].from_argparse(self.options)

    def make_all(self, role: str) -> list[Component]:
        """Return the components of a role that allows several classes, made from the options."""
        return [cls.from_argparse(self.options) for cls in self.classes[role]]


def parse(
    argv: Sequence[str] | None,
    prog: str,
    description: str,
    roles: Sequence[Role],
    own: Callable[[argparse.ArgumentParser], None],
    fixed: Sequence[type[Component]] = (),
    named_by: Sequence[tuple[str, type[Component]]] = (),
) -> ParsedCommand:
    """Return a parsed command line, after setting the log level.

    Parameters
    ----------
    argv
        The arguments; by default those of the process.
    prog, description
        Name and description of the command for ``-h``.
    roles
        The roles whose classes are the first arguments, in order.
    own
        A function that declares further positional arguments and options of the command.
    fixed
        Components whose options always exist.
    named_by
        ``(option, base)``: options of the command that name a class; that class's options are
        added.

    Raises
    ------
    ConfigError, ComponentNotFound
        If a class or option is unknown, a value is wrong, or two components declare
        an option with different meanings.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    classes = _find_classes_by_role(given, prog, roles, own)
    for option, base in named_by:
        classes[option] = [find(name, base) for name in parse_option_early(given, option)]
    parser = CommandParser(
        prog=f"nnpipe {prog}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for role in roles:
        parser.add_argument(role.name.lower(), metavar=role.name, help=role.help)
    own(parser)
    parser.add_argument(
        "--verbosity",
        choices=_VERBOSITY,
        type=str.upper,
        default="INFO",
        metavar="{debug,info,warning,error}",
        help="least level of log messages (default: info)",
    )
    if roles and not any(classes.values()):
        parser.epilog = (
            "Name the classes before -h to see their options too. nnpipe list shows the available "
            "classes."
        )
    joined = [*fixed, *(cls for found in classes.values() for cls in found)]
    join_options(parser, prog, joined)
    _check_flags(parser, given, joined)
    options = parser.parse_intermixed_args(given)
    _check_inputs_kept(parser, options)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("nnpipe").setLevel(options.verbosity)
    return ParsedCommand(options, classes, ("nnpipe", prog, *hide_command_secrets(given, OPTIONS)))


def parse_component_options(words: str, prog: str, cls: type[Component]) -> argparse.Namespace:
    """Return the options of a component that are written in one text, as on a command line of their
    own.

    Parameters
    ----------
    words
        The options, such as ``--fit squeeze --scale 255``.
    prog
        The command and the option that holds the text, for messages.
    cls
        The component's class.

    Raises
    ------
    ConfigError
        If an option is unknown, or a value is wrong.
    """
    parser = CommandParser(prog=f"nnpipe {prog}", add_help=False, allow_abbrev=False)
    add_model_path(parser, "", required=False)
    join_options(parser, prog, [cls])
    try:
        given = shlex.split(words)
    except ValueError as error:
        raise ConfigError(f"{prog}: {words!r}: {error}") from None
    _check_flags(parser, given, [cls])
    return parser.parse_args(given)


def _check_flags(
    parser: CommandParser, given: Sequence[str], classes: Sequence[type[Component]]
) -> None:
    """Raise :class:`ConfigError` for an unknown option; the message names a similar known one.

    This comes before argparse parses the options, because argparse would report missing arguments
    first.
    """
    known = parser._option_string_actions
    for word in itertools.takewhile(lambda word: word != "--", given):
        flag = word.partition("=")[0]
        if flag.startswith("--") and flag not in known and " " not in flag:
            answer = next(
                (
                    f"{cls.__name__}: {cls.no_options[flag]}"
                    for cls in classes
                    if flag in cls.no_options
                ),
                "",
            )
            # Flags are compared without their dashes, which make all flags similar.
            meant = {name.lstrip("-"): name for name in known if name.startswith("--")}
            near = suggest_name(flag.lstrip("-"), meant)
            hint = f"; {answer}" if answer else near.replace("did you mean ", "did you mean --")
            parser.error(f"there is no option {flag}{hint}")


def _check_inputs_kept(parser: CommandParser, options: argparse.Namespace) -> None:
    """Raise :class:`ConfigError` if the command would write over a file that it reads."""
    outputs, inputs = [], []
    for action in parser._actions:
        value = getattr(options, action.dest, None)
        values = value if isinstance(value, (list, tuple)) else [value]
        if action.type is output_file:
            outputs += [each for each in values if each is not None]
            continue
        # Other options with text name titles and the like.
        kinds = Path if action.option_strings else (Path, str)
        inputs += [each for each in values if isinstance(each, kinds)]
    # Path.is_file raises an error for titles and other words that are too long for a name.
    files = [each for each in inputs if os.path.isfile(each)]  # noqa: PTH113
    described = [get_sidecar_path(Path(each)) for each in files]
    for output in outputs:
        check_apart(output, [*inputs, *described])


def add_model_path(parser: argparse.ArgumentParser, help: str, required: bool = True) -> None:
    """Declare ``--model-path`` exactly like wrappers whose model is a file, so that both are one
    option.
    """
    default = dataclasses.MISSING if required else None
    Argument("model_path", "--model-path", Kind(Path), help, default, "PATH").add_to(parser)


def add_model_folder(parser: argparse.ArgumentParser) -> None:
    """Declare ``--model-folder`` exactly like wrappers whose model is a folder, but hidden and
    not required.
    """
    Argument(
        "model_folder", "--model-folder", Kind(Path), argparse.SUPPRESS, None, "FOLDER"
    ).add_to(parser)


def execute(
    body: Callable[[Sequence[str] | None], int | None], argv: Sequence[str] | None, prog: str
) -> int:
    """Run the body of a scenario, and return the exit status.

    An error that the user can mend is printed in one line, and the status is 2.  Any
    other error is a defect and keeps its traceback.  Ctrl-C gives status 130; SIGTERM
    and SIGHUP end the command likewise, with 128 and the signal's number.  ``body``
    may return an exit status.  ``--verbosity`` applies to this command only.  Classes in
    the current folder are found after those of installed packages.  Temporary files are
    in a folder of the command.
    """
    prepare_standard_streams()
    with handle_end_signals() as signals, sanitize_streams():
        try:
            status = _run(body, argv, prog)
        except Exception:
            sys.excepthook = _print_traceback  # Python prints it when the streams are as they were
            raise
    return signals.status if status == INTERRUPTED else status


def _print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.stderr.write(sanitize_text("".join(traceback.format_exception(kind, error, trace))))


def _run(
    body: Callable[[Sequence[str] | None], int | None], argv: Sequence[str] | None, prog: str
) -> int:
    log = logging.getLogger("nnpipe")
    level = log.level
    try:
        with redirect_temporary_files(), _add_current_folder():
            status = body(argv)
    except NNPipeError as error:
        message = " ".join(map(_shorten_word, str(error).split()))
        print(f"nnpipe {prog}: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"nnpipe {prog}: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output (a pager, head) has ended, which is not an error.
        sys.stderr.close()
        return 1
    except Exception as error:
        # A full disk, an unreadable file or a name that is too long is an error of the system, not
        # a defect of nnpipe.
        failed = find_full_disk_error(error) or error
        if not isinstance(failed, OSError) or (
            failed.filename is None and failed.errno not in (*FULL, errno.EROFS)
        ):
            raise
        where = "" if failed.filename is None else f"{format_path(failed.filename)}: "
        hint = "; make room, and repeat the command" if failed.errno in FULL else ""
        print(f"nnpipe {prog}: {where}{failed.strerror}{hint}", file=sys.stderr)
        return 2
    finally:
        log.setLevel(level)
    return status or 0


@contextmanager
def _add_current_folder() -> Iterator[None]:
    """Add the current folder to the module search path inside the block, as ``python -m`` does."""
    try:
        here = str(Path.cwd())
    except OSError:  # the folder has been removed
        here = ""
    if not here or here in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


def _shorten_word(word: str) -> str:
    """Return a word of a message, shortened in the middle if it has hundreds of letters."""
    return word if len(word) <= _LONGEST_WORD else f"{word[:160]}…{word[-60:]}"


def _find_classes_by_role(
    given: list[str],
    prog: str,
    roles: Sequence[Role],
    own: Callable[[argparse.ArgumentParser], None],
) -> dict[str, list[type[Component]]]:
    """Return the classes that a command line names, by role."""
    scout = CommandParser(prog=f"nnpipe {prog}", add_help=False, allow_abbrev=False)
    own(scout)
    scout.add_argument("-h", "--help", action="store_true")
    scout.add_argument("--verbosity")
    for action in scout._get_positional_actions():
        scout._remove_action(action)
    for action in scout._actions:
        action.required = False
    asked, rest = scout.parse_known_args(given)
    named = list(itertools.takewhile(lambda token: not token.startswith("-"), rest))
    if len(named) < len(roles) and not asked.help:
        order = " ".join(role.name for role in roles)
        raise ConfigError(
            f"{roles[len(named)].name} is missing: name {order} in this order, then options"
        )
    found: dict[str, list[type[Component]]] = {}
    for position, role in enumerate(roles):
        found[role.name] = []
        if position < len(named):
            found[role.name] = _find_classes(named[position], role)
    return found


def _find_classes(token: str, role: Role) -> list[type[Component]]:
    if role.of_file is not None and (cls := role.of_file(token)) is not None:
        return [cls]
    if token in role.words:
        return []
    if not role.chain:
        return [find(token, role.base)]
    return [] if token == NONE else [find(name, role.base) for name in token.split(",")]


def parse_option_early(given: list[str], option: str) -> list[str]:
    """Return the value of an option, if it is given, before the classes are known on which other
    options depend.
    """
    scout = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    scout.add_argument(option, dest="value")
    value = scout.parse_known_args(given)[0].value
    return [] if value is None else [value]
