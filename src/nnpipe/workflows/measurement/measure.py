"""Measuring a model in one call: as it is, or compiled and run by a runtime."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress
from nnpipe.measuring.load_options import LoadOptions, call_size
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.workflows.candidates.deployment import Deployment, check_reached
from nnpipe.workflows.candidates.measure import measure_apart, source_outputs, title_of
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import prepared, suffix
from nnpipe.workflows.measurement.result import Measurement
from nnpipe.workflows.progress import bar
from nnpipe.workflows.user_inputs.inputs import given, working_folder
from nnpipe.workflows.verification.compare_outputs import VerifyOptions
from nnpipe.workflows.ways import AS_IS, Planned, Way, planned


def measure(
    model: Any,
    *,
    data: Any,
    way: str | Way = AS_IS,
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
    progress: Progress = bar,
) -> Measurement:
    """Measure speed, memory and quality of a model, in a process of its own.

    With a way that compiles, the model is exported, sent through the
    compilers and run by the runtime, and its outputs are held against those
    that it has in its own framework, on the same samples.

    Parameters
    ----------
    model
        The path of a model file (``.onnx``, ``.tflite``, ``.keras``, ``.h5``, ``.pt2``), an ``nn.Module`` of PyTorch,
        a model of Keras, a :class:`~nnpipe.core.live_model.LiveModel`, or ``(wrapper, path)``.
    data
        ``(inputs, labels)`` as arrays or tensors; a PyTorch ``DataLoader``, a ``tf.data.Dataset`` or whatever else
        gives such pairs in batches; or a :class:`~nnpipe.core.dataset.Dataset`, whose test split is used.
    way
        A short name as :func:`~nnpipe.workflows.ways.ways` lists them, or a :class:`~nnpipe.workflows.ways.Way`; by
        default the model runs as it is, in its own framework.
    preparation
        What the model wants of samples, as the options of its wrapper say it: ``{"scale": 255}``.
    calibration
        What quantisers observe, in the form of ``data``.  If left out, ``calibration_samples`` of ``data`` are put
        aside for it, a fifth at most, and are not tested on; a data set of ours has a training split.
    class_names
        Names of the classes in order of their number.
    calibration_samples
        How many samples quantisers observe.
    options
        Samples in one call, how long to measure, and the pace.
    load
        How queries come, if not one after another, and whether to audit.
    verify
        On how many samples a compiled model is held against its source, and with which tolerances.
    deployment
        The target that the runtime runs on, if not this machine.
    time_limit
        Seconds that each step may take until its process is ended; 0 for no limit.
    output
        Where the result file is written, if it is to be kept whatever happens afterwards.
    compiled_path
        Where the compiled model is kept; by default beside ``output``, or else in a temporary folder that goes with
        the result.
    title
        What the candidate is called in reports.
    command
        The command line, for the result file.
    progress
        Shows how far reading the data is.

    Returns
    -------
    Measurement
        Shown by ``show()``; ``figure("latency_p90")`` gives one figure with its interval.

    Raises
    ------
    ConfigError
        If model, data, way and options do not fit together.
    NNPipeError
        If a step failed, crashed, or did not end in time.

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
        place = stack.enter_context(working_folder())
        taken = given(
            model, data, place, preparation=preparation, calibration=calibration,
            calibration_samples=calibration_samples, class_names=class_names, progress=progress,
        )  # fmt: skip
        chosen = planned(way, taken.models, batch_size=size, remote=deployment is not None)
        if chosen.runtime is None and deployment is not None:
            raise ConfigError("on a target a model runs in a runtime: name a way such as 'onnx'")
        if taken.dataset is None:
            raise ConfigError("data is missing: samples with their classes, or a data set")
        if deployment is not None:
            check_reached(deployment)
        chosen.wrapper.check_installed()
        dataset = prepared(taken.dataset)
        result = Path(place / "result.json" if output is None else output)
        with ModelProcess(chosen.wrapper, dataset, chosen.path) as source:
            artifact, verification = None, None
            if chosen.plan is not None:
                to = compiled_path or result.with_suffix(suffix(chosen.plan, chosen.compilers))
                artifact = source.compile(chosen.plan, chosen.compilers, Path(to), calibration_samples, time_limit)
                verification = stack.enter_context(source_outputs(source, verify or VerifyOptions(), time_limit))
            source.close()  # its memory may be needed
            candidate = CandidateSpec(
                title or _title(chosen), chosen.wrapper, chosen.path, chosen.compilers, chosen.runtime, artifact,
                deployment,
            )  # fmt: skip
            run = measure_apart(candidate, dataset, options, command, result, verification, time_limit, load)
        measurement = Measurement(run, artifact)
        # A temporary folder goes when nobody holds the result any more.
        weakref.finalize(measurement, stack.pop_all().close)
    return measurement


def _title(chosen: Planned) -> str:
    """Name a candidate by its way or its compilers, or by the model where nothing is compiled."""
    if chosen.plan is None:
        return title_of(chosen.wrapper, chosen.path)
    return chosen.title or " + ".join(compiler.variant() for compiler in chosen.compilers) or chosen.plan.final
