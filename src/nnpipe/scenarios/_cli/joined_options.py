"""The joining of several components' options in one parser, in which equal options become one."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError


def join_options(parser: argparse.ArgumentParser, owner: str, classes: Iterable[type[Component]]) -> None:
    """Add the options of components to a parser; options that several components declare alike become one.

    Raises
    ------
    ConfigError
        If two owners declare an option differently; the message names both.
    """
    owners: dict[str, tuple[str, argparse.Action]] = {
        flag: (owner, action) for action in parser._actions for flag in action.option_strings or (action.dest,)
    }
    for cls in dict.fromkeys(classes):
        fragment = cls.form_argparse()
        for group in fragment._action_groups:
            target = None
            for action in group._group_actions:
                _give_way(parser, action, owners)
                # A positional argument with the same destination would overwrite the value, so it is a clash too.
                names = (*action.option_strings, action.dest)
                clash = next((owners[name] for name in names if name in owners), None)
                if clash is not None:
                    _check_same(action, clash[1], cls.__name__, clash[0])
                    # An option is required if one component requires it, unless the scenario declares it as optional.
                    clash[1].required |= action.required and clash[0] != owner
                    continue
                if target is None:
                    target = parser.add_argument_group(group.title, group.description)
                target._add_action(action)
                owners |= dict.fromkeys(action.option_strings, (cls.__name__, action))


def _give_way(
    parser: argparse.ArgumentParser, action: argparse.Action, owners: dict[str, tuple[str, argparse.Action]]
) -> None:
    """Remove a flag that is an alias of one option and the proper name of another from the first one."""
    own = _own_flag(action)
    if own in action.option_strings:
        action.option_strings = [flag for flag in action.option_strings if flag == own or flag not in owners]
    other = owners[own][1] if own in owners else None
    if other is not None and _own_flag(other) in set(other.option_strings) - {own}:
        other.option_strings = [flag for flag in other.option_strings if flag != own]
        del parser._option_string_actions[own], owners[own]


def _own_flag(action: argparse.Action) -> str:
    """Return the proper name of an option, which follows from its destination."""
    return "--" + action.dest.replace("_", "-")


def _check_same(one: argparse.Action, other: argparse.Action, one_owner: str, other_owner: str) -> None:
    meaning, known = _meaning(one), _meaning(other)
    if meaning != known:
        flag = one.option_strings[0]
        raise ConfigError(
            f"{flag} means one thing to {other_owner} ({_words(other)}) and another to {one_owner} ({_words(one)}); "
            "these two cannot be used together on a command line, use a pipeline file (nnpipe run)"
        )


def _meaning(action: argparse.Action) -> tuple[object, ...]:
    choices = tuple(action.choices) if action.choices is not None else None
    return type(action), action.dest, action.type, action.nargs, action.default, choices


def _words(action: argparse.Action) -> str:
    describe = getattr(action.type, "describe", None)
    kind = describe() if describe else getattr(action.type, "__name__", "a switch")
    return f"{kind}, " + ("required" if action.required else f"default {action.default}")
