"""Compiling a model in one call, for a runtime on this machine or on a target."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError, MissingDependency, NNPipeError
from nnpipe.core.progress import Progress
from nnpipe.frameworks.processors import is_this_machine
from nnpipe.workflows.candidates.model_files import remove_model
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import prepare_dataset
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.recipes import PlannedRecipe, Recipe, plan_recipe
from nnpipe.workflows.user_inputs.inputs import create_working_folder, import_inputs

log = logging.getLogger("nnpipe")


def compile(
    model: Any,
    way: str | Recipe,
    to: str | Path,
    *,
    calibration: Any = None,
    calibration_samples: int = 128,
    preparation: Mapping[str, Any] | None = None,
    batch_size: int = 1,
    time_limit: float = 3600.0,
    progress: Progress = show_progress,
) -> Artifact:
    """Export a model, run compilers on it, and load the result once with the runtime it is for, in
    a subprocess.

    The result is not loaded, and a warning says so, if the runtime is not installed here, if its
    device is missing, or if the model was compiled for another kind of processor.

    Parameters
    ----------
    model
        The path of a model file (``.onnx``, ``.tflite``, ``.keras``, ``.h5``, ``.pt2``), an
        ``nn.Module`` of PyTorch, a model of Keras, a :class:`~nnpipe.core.live_model.LiveModel`, or
        ``(wrapper, path)``.
    way
        A short name of :func:`~nnpipe.workflows.recipes.recipes`, or a
        :class:`~nnpipe.workflows.recipes.Recipe`.  Its runtime determines the format; it need not
        be installed here.
    to
        The path of the compiled model.  Its description and the results of earlier compilers are
        written beside it.
    calibration
        Samples for quantisers to observe: ``(inputs, labels)`` as arrays or tensors, an iterable of
        such pairs in batches, or a :class:`~nnpipe.core.dataset.Dataset`, whose training split is
        used.  An ``nn.Module`` is traced with them.
    calibration_samples
        Number of samples for quantisers to observe.
    preparation
        The preprocessing that the model expects, as options of its wrapper: ``{"scale": 255}``.
    batch_size
        Number of samples in one call, for which the model is compiled.
    time_limit
        The greatest time of each step in seconds, after which its process is ended; 0 for no limit.
    progress
        Shows the progress of reading the data.

    Returns
    -------
    Artifact
        The compiled model, with its compilers and the files that it was made from.

    Raises
    ------
    ConfigError
        If the model cannot be converted for the runtime, the way compiles nothing, or a quantiser
        has no samples.
    CompileError
        If a compiler fails, or the runtime refuses the result, which is then removed.
    NNPipeError
        If another step fails, or one crashes or does not finish in time.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from nnpipe.testing.model_files import write_onnx_classifier
    >>> labels = np.arange(60) % 4
    >>> samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = write_onnx_classifier(Path(folder, "model.onnx"), samples, labels)
    ...     made = compile(model, "onnx-int8", Path(folder, "small.onnx"), calibration=(samples, labels))
    >>> made.format, made.path.name
    ('onnx', 'small.onnx')
    """
    check_call(compile, locals())
    with create_working_folder() as place:
        taken = import_inputs(
            model,
            None,
            place,
            preparation=preparation,
            calibration=calibration,
            calibration_samples=calibration_samples,
            progress=progress,
        )
        chosen = plan_recipe(way, taken.models, batch_size=batch_size, remote=True)
        if chosen.plan is None:
            raise ConfigError(
                f"{chosen.title!r} compiles nothing: name a way such as 'onnx' or 'openvino-int8'"
            )
        observing = [type(each).__name__ for each in chosen.compilers if each.needs_calibration()]
        if taken.dataset is None and observing:
            raise ConfigError(
                f"{observing[0]} observes samples while it quantises: give calibration"
            )
        dataset = None if taken.dataset is None else prepare_dataset(taken.dataset)
        with ModelProcess(chosen.wrapper, dataset, chosen.path, judged=False) as source:
            made = source.compile(
                chosen.plan, chosen.compilers, Path(to), calibration_samples, time_limit
            )
            _load_once(source, chosen, made, time_limit)
        return made


def _load_once(source: ModelProcess, chosen: PlannedRecipe, made: Artifact, seconds: float) -> None:
    """Load the result with its runtime, if it can be loaded here, and remove it if that fails."""
    assert chosen.runtime is not None
    runtime = type(chosen.runtime).__name__
    if not is_this_machine(made.target):
        log.warning(
            "%s: not loaded, because it is for %s and not for this machine", made.path, made.target
        )
        return
    candidate = CandidateSpec(
        chosen.title, chosen.wrapper, chosen.path, chosen.compilers, chosen.runtime, artifact=made
    )
    try:
        chosen.runtime.check_ready()
        source.load_result(candidate, seconds)
    except (MissingDependency, ConfigError) as error:  # a package or a device
        log.warning("%s: not loaded, because %s cannot run here: %s", made.path, runtime, error)
    except NNPipeError:
        remove_model(made.path)
        raise
