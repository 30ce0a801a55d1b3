"""Measuring a model in one call: uncompiled, or compiled and run by a runtime."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import check_apart
from nnpipe.core.foreign_text import join_lines, show_text
from nnpipe.core.messages import suggest_name
from nnpipe.core.progress import Progress
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.load_options import LoadOptions, call_size
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.run import Run
from nnpipe.measuring.validity_warning import ValidityWarning
from nnpipe.report.document import Table
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.sections.summary import build_headline_table
from nnpipe.report.writers.json_figures import collect_figures
from nnpipe.report.writers.tables import format_html_table, to_text
from nnpipe.workflows.candidates.deployment import Deployment, check_reached
from nnpipe.workflows.candidates.measure import (
    get_default_title,
    measure_apart,
    record_source_outputs,
)
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import get_file_suffix, prepare_dataset
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.recipes import AS_IS, PlannedRecipe, Recipe, plan_recipe
from nnpipe.workflows.user_inputs.inputs import create_working_folder, import_inputs
from nnpipe.workflows.verification.compare_outputs import VerifyOptions


@dataclass(frozen=True, eq=False)
class Measurement:
    """The result of measuring a model.

    Parameters
    ----------
    run
        All measured times, and the conditions of the measurement.
    artifact
        The compiled model; ``None`` if the model ran in its own framework.

    Examples
    --------
    Of the example of :func:`nnpipe.measure`:


    >>> found.figure("latency_median").value > 0
    True
    >>> found.save("result.json")
    """

    run: Run
    artifact: Artifact | None = None

    @property
    def table(self) -> Table:
        """Speed, quality and cost, each with its interval."""
        return build_headline_table(Candidate.from_run(self.run))

    @property
    def doubts(self) -> tuple[ValidityWarning, ...]:
        """Reasons to doubt the times or the predictions."""
        return Candidate.from_run(self.run).doubts

    def show(self) -> None:
        """Print the table and the doubts."""
        show_text(str(self))

    def __str__(self) -> str:
        """Return the table and the doubts as text."""
        candidate, table = Candidate.from_run(self.run), self.table
        told = [f"doubt: {doubt.kind}: {doubt.reason}" for doubt in candidate.doubts]
        return "\n".join(
            (
                join_lines([f"{candidate.name}, {table.caption}"]),
                to_text(table),
                *(join_lines([each]) for each in told),
            )
        )

    def _repr_html_(self) -> str:
        """Return HTML for a notebook."""
        candidate = Candidate.from_run(self.run)
        told = (f"doubt: {doubt.kind}: {doubt.reason}" for doubt in candidate.doubts)
        return format_html_table(self.table, candidate.name, told)

    def figure(self, name: str) -> Figure:
        """Return a metric with its 95 % interval, if it has one: seconds, bytes, shares from 0 to
        1, or its own unit.

        Parameters
        ----------
        name
            ``latency_median``, ``latency_p90``, ``throughput``, ``size``, ``memory``, or a metric
            of the data's task, such as ``accuracy`` or ``map``.

        Raises
        ------
        ConfigError
            If there is no such metric.
        """
        check_call(Measurement.figure, locals())
        found = collect_figures(Candidate.from_run(self.run))
        if name not in found:
            raise ConfigError(
                f"there is no figure {name!r}{suggest_name(name, found)}; there are: "
                f"{', '.join(found)}"
            )
        return found[name]

    def save(self, path: str | Path) -> None:
        """Write the result file, which ``nnpipe render_report`` renders.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        check_call(Measurement.save, locals())
        self.run.write(path)


def measure(
    model: Any,
    *,
    data: Any,
    way: str | Recipe = AS_IS,
    preparation: Mapping[str, Any] | None = None,
    calibration: Any = None,
    class_names: Sequence[str] = (),
    calibration_samples: int = 128,
    options: MeasureOptions | None = None,
    load: LoadOptions | None = None,
    verify: VerifyOptions | None = None,
    deployment: Deployment | None = None,
    time_limit: float = 3600.0,
    output: str | Path | None = None,
    compiled_path: str | Path | None = None,
    title: str = "",
    command: Sequence[str] = (),
    progress: Progress = show_progress,
) -> Measurement:
    """Measure speed, memory and quality of a model, in a subprocess.

    With a way that compiles, the model is exported, compiled and run by the runtime,
    and its outputs are compared with those in its own framework, on the same samples.

    Parameters
    ----------
    model
        The path of a model file (``.onnx``, ``.tflite``, ``.keras``, ``.h5``, ``.pt2``), an
        ``nn.Module`` of PyTorch, a model of Keras, a :class:`~nnpipe.core.live_model.LiveModel`, or
        ``(wrapper, path)``.
    data
        ``(inputs, labels)`` as arrays or tensors; a PyTorch ``DataLoader``, a ``tf.data.Dataset``
        or another iterable of such pairs in batches; or a :class:`~nnpipe.core.dataset.Dataset`,
        whose test split is used.
    way
        A short name of :func:`~nnpipe.workflows.recipes.recipes`, or a
        :class:`~nnpipe.workflows.recipes.Recipe`; by default the uncompiled model runs in its own
        framework.
    preparation
        The preprocessing that the model expects, as options of its wrapper: ``{"scale": 255}``.
    calibration
        Samples for quantisers to observe, in the form of ``data``.  By default
        ``calibration_samples`` of ``data``, but at most a fifth, are reserved for this and not
        tested on; of a :class:`~nnpipe.core.dataset.Dataset`, the training split is used.
    class_names
        Names of the classes in order of their number.
    calibration_samples
        Number of samples for quantisers to observe.
    options
        Batch size, duration and pace of the measurement.
    load
        The arrival of queries, if not one after another, and whether to audit.
    verify
        The number of samples and the tolerances for comparing a compiled model with its source.
    deployment
        The target to run it on, if not this machine.
    time_limit
        The greatest time of each step in seconds, after which its process is ended; 0 for no limit.
    output
        The result file to write; None for none.
    compiled_path
        The path of the compiled model; by default beside ``output``, or else in a temporary folder
        that is removed with the result.
    title
        The candidate's title in reports.
    command
        The command line, for the result file.
    progress
        Shows the progress of reading the data.

    Returns
    -------
    Measurement
        The measurement: ``show()`` prints it; ``figure("latency_p90")`` returns one metric with its
        interval.

    Raises
    ------
    ConfigError
        If the model, the data, the way and the options do not fit together.
    CompileError
        If a compiler fails, or the runtime refuses the result, which is then removed.
    NNPipeError
        If another step fails, crashes, or does not finish in time.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from nnpipe.core.progress import silent
    >>> from nnpipe.testing.model_files import write_onnx_classifier
    >>> labels = np.arange(60) % 4
    >>> samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = write_onnx_classifier(Path(folder, "model.onnx"), samples, labels)
    ...     found = measure(model, data=(samples, labels), way="onnx", progress=silent)
    >>> found.run.title, found.figure("accuracy").value
    ('onnx', 1.0)
    """
    check_call(measure, locals())
    options, load = options or MeasureOptions(), load or LoadOptions()
    options.check_with(load)
    size = call_size(load, None, options.inference_batch_size)
    with ExitStack() as stack:
        place = stack.enter_context(create_working_folder())
        taken = import_inputs(
            model,
            data,
            place,
            preparation=preparation,
            calibration=calibration,
            calibration_samples=calibration_samples,
            class_names=class_names,
            progress=progress,
        )
        chosen = plan_recipe(way, taken.models, batch_size=size, remote=deployment is not None)
        if chosen.runtime is None and deployment is not None:
            raise ConfigError("on a target a model runs in a runtime: name a way such as 'onnx'")
        if taken.dataset is None:
            raise ConfigError("data is missing: samples with their classes, or a data set")
        if deployment is not None:
            check_reached(deployment)
        chosen.wrapper.check_installed()
        dataset = prepare_dataset(taken.dataset)
        result = Path(place / "result.json" if output is None else output)
        check_apart(result, [chosen.path])
        with ModelProcess(chosen.wrapper, dataset, chosen.path) as source:
            artifact, verification = None, None
            if chosen.plan is not None:
                to = compiled_path or result.with_suffix(
                    get_file_suffix(chosen.plan, chosen.compilers)
                )
                artifact = source.compile(
                    chosen.plan, chosen.compilers, Path(to), calibration_samples, time_limit
                )
                verification = stack.enter_context(
                    record_source_outputs(source, verify or VerifyOptions(), time_limit)
                )
            source.close()  # its memory may be needed
            candidate = CandidateSpec(
                title or _make_title(chosen),
                chosen.wrapper,
                chosen.path,
                chosen.compilers,
                chosen.runtime,
                artifact,
                deployment,
            )
            run = measure_apart(
                candidate, dataset, options, command, result, verification, time_limit, load
            )
        measurement = Measurement(run, artifact)
        # A temporary folder is removed together with the result.
        weakref.finalize(measurement, stack.pop_all().close)
    return measurement


def _make_title(chosen: PlannedRecipe) -> str:
    """Return a candidate's default title: its way or its compilers, or the model if nothing is
    compiled.
    """
    if chosen.plan is None:
        return get_default_title(chosen.wrapper, chosen.path)
    return (
        chosen.title
        or " + ".join(compiler.variant() for compiler in chosen.compilers)
        or chosen.plan.final
    )
