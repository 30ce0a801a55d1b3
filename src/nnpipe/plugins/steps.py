"""Division of the result of ``load_test_data`` into steps; the model gets the data of one step
at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.plugins.plugin import TestData


@dataclass(frozen=True, eq=False)
class PluginStep:
    """One part of the test data.

    Parameters
    ----------
    number, steps
        Number of this step, from 1, and number of all steps.
    data
        The model's input, as the plugin returned it.
    expected
        The expected output; ``None`` if the plugin returned none.
    samples
        Indices of the samples, from 0, if the data can be counted.
    """

    number: int
    steps: int
    data: Any
    expected: Any = None
    samples: range | None = None

    @property
    def title(self) -> str:
        """Title of the step, with its samples."""
        name = f"step {self.number} of {self.steps}"
        if self.samples is None:
            return name
        first, last = self.samples[0], self.samples[-1]
        return (
            f"{name} (sample {first})" if first == last else f"{name} (samples {first} to {last})"
        )


def iterate_steps(test: TestData, plugin: str) -> Iterator[PluginStep]:
    """Yield the steps of test data.

    An array, or a mapping of arrays by name, is divided along its first axis
    into parts whose lengths differ by at most one sample.  A list, a tuple or
    another iterable provides one item per step.  The expected output is divided
    in the same way.

    Parameters
    ----------
    test
        The test data.
    plugin
        Name of the plugin, for messages.

    Raises
    ------
    ConfigError
        If data, expected output and number of steps do not match.  For iterables
        this is only known at their end.
    """
    check_call(iterate_steps, locals())
    count = _count_samples(test.data, plugin)
    if count is None:
        return _iterate_items(test, plugin)
    if test.steps > count:
        raise ConfigError(
            f"{plugin}: load_test_data gave {count} samples, which cannot be divided into "
            f"{test.steps} steps"
        )
    return _split_arrays(test, count, plugin)


def _split_arrays(test: TestData, count: int, plugin: str) -> Iterator[PluginStep]:
    by_step = _is_by_step(test, count, plugin)
    bounds = [number * count // test.steps for number in range(test.steps + 1)]
    for number, (first, last) in enumerate(pairwise(bounds), 1):
        expected = test.expected[number - 1] if by_step else _slice_part(test.expected, first, last)
        yield PluginStep(
            number, test.steps, _slice_part(test.data, first, last), expected, range(first, last)
        )


def is_array(value: Any) -> bool:
    """Return whether a value is an array of any library."""
    return hasattr(value, "__array__") and hasattr(value, "shape")


def _count_samples(data: Any, plugin: str) -> int | None:
    """Return the number of samples along the first axes; ``None`` for data that are not arrays."""
    if isinstance(data, Mapping):
        arrays = {str(name): value for name, value in data.items()}
        lengths = {name: _get_length(value) for name, value in arrays.items()}
        if not arrays or None in lengths.values() or len(set(lengths.values())) > 1:
            told = (
                ", ".join(f"{name}: {_describe_value(value)}" for name, value in arrays.items())
                or "nothing"
            )
            raise ConfigError(
                f"{plugin}: load_test_data gave a dict of {told}; it must hold arrays with as many "
                f"samples each"
            )
        return next(iter(lengths.values()))
    if is_array(data):
        length = _get_length(data)
        if length is None:
            raise ConfigError(
                f"{plugin}: load_test_data gave {_describe_value(data)}; the first axis must count "
                f"samples"
            )
        return length
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise ConfigError(
            f"{plugin}: load_test_data gave {_describe_value(data)} as data; expected an array, a "
            f"dict of arrays, "
            "or something that gives one item for each step"
        )
    return None


def _get_length(value: Any) -> int | None:
    return int(value.shape[0]) if is_array(value) and len(value.shape) > 0 else None


def _slice_part(value: Any, first: int, last: int) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {str(name): array[first:last] for name, array in value.items()}
    return value[first:last]


def _is_by_step(test: TestData, count: int, plugin: str) -> bool:
    """Return whether the expected output has one item per step, and not one per sample."""
    expected = test.expected
    lengths = (
        {_get_length(value) for value in expected.values()}
        if isinstance(expected, Mapping)
        else {_size(expected)}
    )
    if expected is None or lengths == {count}:
        return False
    if isinstance(expected, Sequence) and lengths == {test.steps}:
        return True
    raise ConfigError(
        f"{plugin}: load_test_data gave {_describe_value(expected)} as expected output of {count} "
        f"samples in {test.steps} steps; "
        "give as many, or a list with one item for each step"
    )


def _size(value: Any) -> int | None:
    if is_array(value):
        return _get_length(value)
    return (
        len(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else None
    )


def _iterate_items(test: TestData, plugin: str) -> Iterator[PluginStep]:
    for what, value in (("data", test.data), ("expected output", test.expected)):
        size = _size(value)
        if size is not None and size != test.steps:
            raise ConfigError(
                f"{plugin}: load_test_data gave {size} items as {what}, and {test.steps} steps; "
                "give one for each step, or an array to have it divided"
            )
    if test.expected is not None and (
        isinstance(test.expected, (str, bytes)) or not isinstance(test.expected, Iterable)
    ):
        raise ConfigError(
            f"{plugin}: load_test_data gave {_describe_value(test.expected)} as expected output of "
            f"{test.steps} steps"
        )
    data, expected = iter(test.data), None if test.expected is None else iter(test.expected)
    for number in range(1, test.steps + 1):
        yield PluginStep(
            number,
            test.steps,
            _next(data, number, test.steps, "data", plugin),
            None
            if expected is None
            else _next(expected, number, test.steps, "expected output", plugin),
        )


def _next(items: Iterator[Any], number: int, steps: int, what: str, plugin: str) -> Any:
    try:
        return next(items)
    except StopIteration:
        raise ConfigError(
            f"{plugin}: the {what} of load_test_data ended after {number - 1} of {steps} steps"
        ) from None
    except Exception as error:  # it is the plugin's own code that runs here
        raise ConfigError(
            f"{plugin}: the {what} of load_test_data failed at step {number} of {steps}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _describe_value(value: Any) -> str:
    if is_array(value):
        return f"an array of shape {tuple(value.shape)}"
    if isinstance(value, (Sequence, Mapping)) and not isinstance(value, (str, bytes)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def as_array(value: Any) -> np.ndarray[Any, Any]:
    """Return an array, a tensor on any device, or a list as a numpy array."""
    # PyTorch's tensors that are on a device or in a graph
    detached = getattr(value, "detach", None)
    return np.asarray(detached().cpu() if detached is not None else value)
