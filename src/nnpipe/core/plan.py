"""Find formats by which a model passes through compilers to a runtime, or say why there are
none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnpipe.core.argument_checks import check_call
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime


@dataclass(frozen=True)
class Plan:
    """The format to export the model as, and the format after each compiler.

    Examples
    --------
    >>> Plan("onnx", ("onnx", "tflite")).formats[-1]
    'tflite'
    """

    export: str
    formats: tuple[str, ...]

    @property
    def final(self) -> str:
        """The format that the runtime loads."""
        return self.formats[-1] if self.formats else self.export


def plan(
    wrapper: type[ModelWrapper],
    compilers: Sequence[type[ModelCompiler]],
    runtime: type[Runtime] | None,
    export: str | None = None,
    known: Callable[[], Sequence[type[ModelCompiler]]] | Sequence[type[ModelCompiler]] = (),
) -> Plan:
    """Choose an export format so that every stage accepts the format that the previous stage
    produces.

    Parameters
    ----------
    wrapper
        The model; of its export formats that fit, the most preferred one is chosen.
    compilers
        The chain of compilers, in order.
    runtime
        The runtime of the result; ``None`` if the model is only compiled.
    export
        The export format that the user asks for, if any.
    known
        Compilers that the error message may suggest, or a function that returns them, which is
        called only if no format fits.

    Raises
    ------
    ConfigError
        If no format fits; the message names the two stages that do not fit and a compiler that
        would connect them.

    Examples
    --------
    >>> from nnpipe import ModelCompiler, ModelWrapper, Runtime, find
    >>> names = ("TensorFlowDigitsCNN", ModelWrapper), ("TFLiteCompiler", ModelCompiler), ("LiteRTRuntime", Runtime)
    >>> wrapper, compiler, runtime = (find(name, base) for name, base in names)
    >>> plan(wrapper, [compiler], runtime)
    Plan(export='keras', formats=('tflite',))
    """
    check_call(plan, locals())
    choices = [export] if export else list(wrapper.exports)
    if export and export not in wrapper.exports:
        raise ConfigError(
            f"{wrapper.__name__} cannot be exported as {export}; it can as "
            f"{_format_alternatives(wrapper.exports) or 'nothing'}"
        )
    if not choices:
        raise ConfigError(f"{wrapper.__name__} cannot be exported in any format")
    gaps = []
    for choice in choices:
        formats, gap = _follow(choice, compilers, runtime, wrapper.__name__)
        if gap is None:
            return Plan(choice, formats)
        gaps.append(gap)
    # Report the gap that is furthest along the chain; several export formats may reach it.
    furthest = max(gap.stage for gap in gaps)
    raise ConfigError(
        _explain(
            [gap for gap in gaps if gap.stage == furthest], known() if callable(known) else known
        )
    )


@dataclass(frozen=True)
class _Gap:
    stage: int
    giver: str
    given: str
    taker: str
    wanted: tuple[str, ...]


def _follow(
    export: str, compilers: Sequence[type[ModelCompiler]], runtime: type[Runtime] | None, giver: str
) -> tuple[tuple[str, ...], _Gap | None]:
    formats: list[str] = []
    current = export
    for stage, compiler in enumerate(compilers):
        if current not in compiler.accepts:
            return (), _Gap(stage, giver, current, compiler.__name__, compiler.accepts)
        current, giver = compiler.produces, compiler.__name__
        formats.append(current)
    if runtime is not None and current not in runtime.accepts:
        return (), _Gap(len(compilers), giver, current, runtime.__name__, runtime.accepts)
    return tuple(formats), None


def _explain(gaps: Sequence[_Gap], known: Sequence[type[ModelCompiler]]) -> str:
    """Return the message for a gap; ``gaps`` are those of one stage, one for each format that
    reaches it.
    """
    bridges = [(found, gap) for gap in gaps if (found := find_bridge(gap.given, gap.wanted, known))]
    if bridges:
        found, gap = min(
            bridges, key=lambda pair: len(pair[0])
        )  # among equally short chains, the one of the preferred format
        chain = " and then ".join(compiler.get_dotted_path() for compiler in found)
        return (
            f"{gap.taker} takes {_format_alternatives(gap.wanted)}, but {gap.giver} gives "
            f"{gap.given}; put {chain} between them"
        )
    gap, given = gaps[0], _format_alternatives(list(dict.fromkeys(gap.given for gap in gaps)))
    return (
        f"{gap.taker} takes {_format_alternatives(gap.wanted)}, but {gap.giver} gives {given}; no "
        f"compiler here leads from {given} to {_format_alternatives(gap.wanted)}"
    )


def find_bridge(
    given: str, wanted: Sequence[str], known: Sequence[type[ModelCompiler]]
) -> tuple[type[ModelCompiler], ...]:
    """Return the shortest chain of compilers from one format to any of the wanted ones; empty if
    there is none.
    """
    paths: list[tuple[str, tuple[type[ModelCompiler], ...]]] = [(given, ())]
    seen = {given}
    for current, path in paths:
        for compiler in known:
            if current in compiler.accepts and compiler.produces not in seen:
                longer = (*path, compiler)
                if compiler.produces in wanted:
                    return longer
                seen.add(compiler.produces)
                paths.append((compiler.produces, longer))
    return ()


def _format_alternatives(formats: Sequence[str]) -> str:
    return " or ".join(formats)
