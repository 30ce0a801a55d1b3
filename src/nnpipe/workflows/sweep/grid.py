"""Entries of a sweep file that stand for several components, with values to try under ``vary``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from nnpipe.core.arguments import list_arguments
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime import Runtime
from nnpipe.experiment.settings import check_keys
from nnpipe.workflows.pipeline.entries import (
    build_component,
    count_of,
    get_section,
    parse_class,
    parse_component,
)

C = TypeVar("C", bound=Component)


def iter_chains(data: Mapping[str, Any]) -> Iterator[tuple[ModelCompiler, ...]]:
    """Yield every chain of compilers, with all variants of each entry."""
    for i, entry in enumerate(list_of(data, "compilers", [[]])):
        stages = entry if isinstance(entry, list) else [entry]
        yield from itertools.product(
            *(
                _build_variants(stage, ModelCompiler, f"compilers.{i}.{j}")
                for j, stage in enumerate(stages)
            )
        )


def iter_runtimes(data: Mapping[str, Any]) -> Iterator[Runtime]:
    """Yield every runtime, with all variants of each entry, and each number of threads if it has
    this argument.
    """
    threads = data.get("threads")
    if threads is not None:
        threads = [count_of(n, f"threads.{i}") for i, n in enumerate(list_of(data, "threads"))]
    for i, entry in enumerate(list_of(data, "runtimes")):
        for runtime in _build_variants(entry, Runtime, f"runtimes.{i}"):
            takes_threads = any(
                declared.name == "num_threads" for declared in list_arguments(type(runtime))
            )
            if threads is None or not takes_threads or _has_threads(entry):
                yield runtime
            else:
                yield from (replace(runtime, num_threads=count) for count in threads)  # type: ignore[call-arg]


def _has_threads(entry: Any) -> bool:
    return isinstance(entry, dict) and any(
        "num_threads" in (entry.get(key) or {}) for key in ("arguments", "vary")
    )


def _build_variants(entry: Any, base: type[C], where: str) -> list[C]:
    """Return a component for each combination of the values under ``vary``."""
    if isinstance(entry, str):
        entry = {"class": entry}
    data = dict(check_keys(entry, ("class", "arguments", "vary"), where, ("class",)))
    varied = get_section(data, "vary")
    data.pop("vary", None)
    if not isinstance(varied, dict) or not all(
        isinstance(values, list) and values for values in varied.values()
    ):
        raise ConfigError(
            f"{where}.vary: expected lists of values by argument, such as {{num_threads: [1, 2]}}"
        )
    given = get_section(data, "arguments")
    if not isinstance(given, dict) or not varied:
        return [parse_component(data, base, where)]
    twice = sorted(set(varied) & set(given))
    if twice:
        raise ConfigError(f"{where}: {', '.join(twice)} stands both under arguments and under vary")
    cls = parse_class(data, base, where)
    return [
        build_component(cls, {**given, **dict(zip(varied, values, strict=True))}, where)
        for values in itertools.product(*varied.values())
    ]


@functools.lru_cache(maxsize=4096)
def describe_component(component: Component) -> str:
    """Return a component's class, with the arguments that differ from their defaults, as text."""
    unusual = []
    for declared in list_arguments(type(component)):
        value = component.to_json()[declared.name]
        if (
            declared.required
            or value
            != type(component)
            .from_json(_get_required_arguments(component))
            .to_json()[declared.name]
        ):
            unusual.append(f"{declared.name}={value}")
    return type(component).__name__ + (f"({', '.join(unusual)})" if unusual else "")


def _get_required_arguments(component: Component) -> dict[str, Any]:
    given = component.to_json()
    return {a.name: given[a.name] for a in list_arguments(type(component)) if a.required}


def list_of(data: Mapping[str, Any], key: str, default: list[Any] | None = None) -> list[Any]:
    """Return the list of a key; it may be empty only if the default is an empty list."""
    found = data.get(key)
    found = default if found is None else found
    if not isinstance(found, list) or (not found and default != []):
        raise ConfigError(f"{key}: expected a list with at least one entry")
    return found
