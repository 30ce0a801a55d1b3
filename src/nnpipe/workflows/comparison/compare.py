"""Comparing ways to compile and run a model, in one call."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.progress import Progress
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.workflows.candidates.measure import Verification, record_source_outputs
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import get_file_suffix, prepare_dataset
from nnpipe.workflows.comparison.contest import Contest, run_comparison
from nnpipe.workflows.comparison.result import ComparisonResult
from nnpipe.workflows.pipeline.file import make_file_name
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.recipes import AS_IS, USUAL, PlannedRecipe, Recipe, plan_recipe
from nnpipe.workflows.user_inputs.inputs import Models, create_working_folder, import_inputs
from nnpipe.workflows.verification.compare_outputs import VerifyOptions

log = logging.getLogger("nnpipe")


def compare(
    model: Any,
    *,
    data: Any,
    ways: Sequence[str | Recipe] | None = None,
    preparation: Mapping[str, Any] | None = None,
    calibration: Any = None,
    class_names: Sequence[str] = (),
    calibration_samples: int = 128,
    batch_size: int = 1,
    confidence: float = 0.95,
    margin: float | None = None,
    precision: float | None = None,
    max_seconds: float = 60.0,
    seed: int = 0,
    time_limit: float = 3600.0,
    folder: str | Path | None = None,
    title: str = "",
    progress: Progress = show_progress,
) -> ComparisonResult:
    """Compile a model in several ways, measure them side by side, and return which is faster and
    better.

    Each candidate runs in its own subprocess.  First each one runs all test samples alone, which
    gives the metrics of its task, such as the accuracy, and its outputs are compared with those of
    the uncompiled model.  Then all candidates take turns in short blocks, in random order, and are
    restarted many times, until the differences are known with the requested precision or
    ``max_seconds`` are over.

    Parameters
    ----------
    model
        The path of a model file (``.onnx``, ``.tflite``, ``.keras``, ``.h5``, ``.pt2``), an
        ``nn.Module`` of PyTorch, a model of Keras, or a :class:`~nnpipe.core.live_model.LiveModel`.
    data
        ``(inputs, labels)`` as arrays or tensors; a PyTorch ``DataLoader``, a ``tf.data.Dataset``
        or another iterable of such pairs in batches, or of dicts with ``labels``; or a
        :class:`~nnpipe.core.dataset.Dataset`, whose test split is used.  Several inputs are a dict
        by name, or a tuple.  Labels are class numbers or texts, or numbers to predict.  Arrays of
        floats are used unchanged, unless ``preparation`` or the description beside the model's file
        says otherwise.
    ways
        Short names as :func:`~nnpipe.workflows.recipes.recipes` lists them, or a
        :class:`~nnpipe.workflows.recipes.Recipe`; by default those of ONNX Runtime, OpenVINO and
        TensorFlow Lite, in floats and in integers, that fit the model. The uncompiled model in its
        own framework is the reference and always takes part.
    preparation
        The preprocessing that the model expects, as options of its wrapper: ``{"scale": 255}`` for
        pixels from 0 to 1.
    calibration
        Samples for quantisers to observe, in the form of ``data``.  By default
        ``calibration_samples`` of ``data``, but at most a fifth, are reserved for this and not
        tested on; of a :class:`~nnpipe.core.dataset.Dataset`, the training split is used.
    class_names
        Names of the classes in order of their number.
    calibration_samples
        Number of samples for quantisers to observe.
    batch_size
        Number of samples in one call.
    confidence, margin, precision, seed
        As in :class:`~nnpipe.measuring.paired_comparison.ComparisonPlan`: the confidence of all
        intervals together, the difference that does not matter, the precision of each interval, and
        the seed of the order of turns.
    max_seconds
        The greatest time in seconds for which candidates take turns.
    time_limit
        The greatest time of each step in seconds, after which its process is ended; 0 for no limit.
    folder
        The folder for compiled models; by default a temporary folder that is removed with the
        result.
    title
        The title of the comparison.
    progress
        Shows the progress.

    Returns
    -------
    ComparisonResult
        The measured candidates: ``show()`` prints them, ``best()`` chooses one.

    Raises
    ------
    ConfigError
        If model, data and ways do not fit together, or fewer than two candidates can be measured.
    NNPipeError
        If the model cannot be read.

    Examples
    --------
    >>> import nnpipe
    >>> result = nnpipe.compare("model.onnx", data=(images, labels), ways=["onnx", "onnx-int8"], max_seconds=1)
    >>> print(result.best(accuracy_loss=0.5, by="latency_median").title in result.titles)
    True
    """
    check_call(compare, locals())
    plan = ComparisonPlan(
        confidence=confidence,
        margin=margin,
        precision=precision,
        max_seconds=max_seconds,
        seed=seed,
    )
    if ways is not None and not len(ways):
        raise ConfigError("ways should be a list of at least one, such as ['onnx', 'onnx-int8']")
    with ExitStack() as stack:
        place = stack.enter_context(create_working_folder(folder))
        taken = import_inputs(
            model,
            data,
            place,
            preparation=preparation,
            calibration=calibration,
            calibration_samples=calibration_samples,
            class_names=class_names,
            seed=seed,
            progress=progress,
        )
        models, dataset = taken.models, taken.dataset
        if dataset is None:
            raise ConfigError(
                "data should be samples with their classes, or a data set; there are none"
            )
        prepare_dataset(dataset)
        chosen = _select_recipes(models, ways, batch_size)
        measure = MeasureOptions(measure_seconds=0.0, inference_batch_size=batch_size)
        with ExitStack() as sources:
            contest, files = _compile_recipes(
                chosen, dataset, measure, place, calibration_samples, time_limit, sources
            )
            found, interrupted = run_comparison(
                contest,
                plan,
                title=title or f"Ways to ship {_get_model_name(model)}",
                progress=progress,
            )
        result = ComparisonResult(found, files, chosen[0].title, interrupted)
        # a temporary folder is removed together with the result
        weakref.finalize(result, stack.pop_all().close)
    return result


def _select_recipes(
    models: Models, ways: Sequence[str | Recipe] | None, batch_size: int
) -> list[PlannedRecipe]:
    """Return the uncompiled model, and the requested ways, or else the default ways that fit."""
    found = [plan_recipe(AS_IS, models)]
    for way in USUAL if ways is None else ways:
        try:
            each = plan_recipe(way, models, batch_size=batch_size)
        except NNPipeError as error:
            if ways is not None:
                raise
            log.info("left out: %s", error)
            continue
        if each.runtime is None:  # the uncompiled model, which always takes part
            continue
        if any(each.title == other.title for other in found):
            raise ConfigError(f"two ways are called {each.title!r}; give each a title of its own")
        found.append(each)
    return found


def _compile_recipes(
    chosen: Sequence[PlannedRecipe],
    dataset: Dataset,
    measure: MeasureOptions,
    place: Path,
    calibration_samples: int,
    limit: float,
    stack: ExitStack,
) -> tuple[Contest, dict[str, Path]]:
    """Compile each way; each wrapper's subprocess runs until all of its ways are compiled."""
    candidates: list[tuple[CandidateSpec, Verification | None]] = []
    failures: dict[str, str] = {}
    files: dict[str, Path] = {}
    for wrapper in dict.fromkeys(each.wrapper for each in chosen):
        own = [each for each in chosen if each.wrapper is wrapper]
        path = own[0].path
        with ModelProcess(wrapper, dataset, path) as source:
            compiling = [each for each in own if each.plan is not None]
            reference = (
                stack.enter_context(record_source_outputs(source, VerifyOptions(), limit))
                if compiling
                else None
            )
            for each in own:
                artifact = None
                if each.plan is not None:
                    suffix = get_file_suffix(each.plan, each.compilers)
                    number = chosen.index(each)
                    to = place / f"{number:02d}-{make_file_name(each.title)}{suffix}"
                    try:
                        artifact = source.compile(
                            each.plan, each.compilers, to, calibration_samples, limit
                        )
                    except NNPipeError as error:
                        log.error("%s failed: %s", each.title, error)
                        failures[each.title] = str(error)
                        continue
                files[each.title] = path if artifact is None else artifact.path
                made = CandidateSpec(
                    each.title, wrapper, path, each.compilers, each.runtime, artifact
                )
                candidates.append((made, reference))
    candidates.sort(key=lambda pair: [each.title for each in chosen].index(pair[0].title))
    return Contest(candidates, dataset, measure, limit, failures), files


def _get_model_name(model: Any) -> str:
    return Path(model).name if isinstance(model, (str, Path)) else type(model).__name__
