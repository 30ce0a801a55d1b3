"""Exporting the trained model to ONNX, and checking the file against the model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, ConversionError
from nnpipe.core.files import replace_atomically
from nnpipe.training._batches import to_tensors
from nnpipe.training.callbacks.callback import WritingCallback, get_run_folder, write_table
from nnpipe.training.callbacks.samples import read_first_batch

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


class OnnxExport(WritingCallback):
    """Export the model at the end to ``model/model.onnx``, and compare the outputs of both.

    The file's inputs are features of the batch, with their names and a free batch
    axis, but not ``sample_id`` or targets.  Its outputs are those of the model,
    with their names and tensors (for a classifier, its logits).  ONNX Runtime runs
    the file on batches of the example's size and of one sample; the greatest
    difference is written to ``tables/onnx.json``.

    Parameters
    ----------
    inputs
        The features that the model needs to predict.
    tolerance
        The greatest difference that is accepted, relative to the greatest value.

    Raises
    ------
    ConversionError
        If the model cannot be exported, or the file's outputs differ from the model's.
    """

    requires = ("onnx", "onnxscript", "onnxruntime")
    install = "nnpipe[torch,onnx]"

    def __init__(self, inputs: Sequence[str], tolerance: float = 1e-4) -> None:
        check_call(OnnxExport, locals())
        self.inputs = tuple(inputs)
        self.tolerance = tolerance
        self._checked = False

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Raise :class:`ConfigError` if there are no inputs to export."""
        super().on_fit_begin(fit)
        if not self.inputs:
            raise ConfigError(
                'OnnxExport needs the names of the features that are inputs, such as ["image"]'
            )

    def on_batch_begin(self, fit: TrainingRun, batch: dict[str, Any]) -> None:
        """Raise :class:`ConfigError` at the first batch if an input does not exist."""
        if not self._checked:
            missing = [name for name in self.inputs if name not in batch]
            if missing:
                raise ConfigError(
                    f"OnnxExport: a batch has no {missing[0]!r}; it has {', '.join(batch)}"
                )
            self._checked = True

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Export the model and check the file."""
        import copy

        import torch

        example = self._select_example(fit)
        if not example:
            raise ConfigError(
                f"OnnxExport: no training split has batches with {', '.join(self.inputs)}"
            )
        model = copy.deepcopy(fit.model).cpu().eval()
        plain = _wrap_for_export(model, self.inputs, example)
        given = tuple(example[name] for name in self.inputs)
        names = plain.names
        with replace_atomically(get_run_folder(fit).onnx) as path:
            batch = torch.export.Dim("batch", min=1)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the exporter's own deprecations
                    program = torch.onnx.export(
                        plain,
                        given,
                        dynamo=True,
                        input_names=list(self.inputs),
                        output_names=names,
                        dynamic_shapes=(tuple({0: batch} for _ in given),),
                        verbose=False,
                    )
                    program.save(str(path))
            except Exception as error:
                raise ConversionError(f"the model cannot be exported to ONNX: {error}") from error
            rows = self._compare(path, names, given, plain)
        write_table(fit, "onnx", rows)

    def _select_example(self, fit: TrainingRun) -> dict[str, Any]:
        """Return some samples of the first epoch: the same ones, however often the run was
        killed.
        """
        for parts in fit.datasets.values():
            for split, sequence in parts.items():
                found = read_first_batch(sequence, 1) if split in fit.options.train_splits else None
                if found is not None and all(name in found for name in self.inputs):
                    return to_tensors(
                        {name: v[:4] for name, v in found.items() if hasattr(v, "dtype")}, "cpu"
                    )
        return {}

    def _compare(self, path: Any, names: list[str], given: Any, plain: Any) -> list[dict[str, Any]]:
        import onnxruntime
        import torch

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        own = [own.name for own in session.get_inputs()]
        if own != list(self.inputs):
            raise ConversionError(f"the ONNX file's inputs are {own}, not {list(self.inputs)}")
        rows = []
        for size in sorted({len(given[0]), 1}):
            cut = tuple(value[:size] for value in given)
            with torch.no_grad():
                expected = plain(*cut)
            found = session.run(
                names, {n: v.numpy() for n, v in zip(self.inputs, cut, strict=True)}
            )
            for name, one, other in zip(names, expected, found, strict=True):
                reference = one.numpy()
                if other.shape != reference.shape:
                    raise ConversionError(
                        f"ONNX output {name} is {other.shape}, not {reference.shape}"
                    )
                difference = float(np.abs(other.astype(np.float64) - reference).max(initial=0))
                largest = float(np.abs(reference).max(initial=0))
                if not difference <= self.tolerance * max(largest, 1e-30):
                    raise ConversionError(
                        f"ONNX output {name} differs by {difference:.3g} where the greatest value "
                        f"is {largest:.3g}"
                    )
                rows.append(
                    {"output": name, "batch": size, "difference": difference, "greatest": largest}
                )
        return rows


def _wrap_for_export(model: Any, inputs: tuple[str, ...], example: dict[str, Any]) -> Any:
    """Return a module from the inputs' tensors to the outputs' tensors; it fills in targets,
    which have no effect.
    """
    import torch

    class Plain(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            found = self._outputs(tuple(example[name] for name in inputs))
            self.names = list(found)

        def _outputs(self, values: Any) -> dict[str, Any]:
            batch = dict(zip(inputs, values, strict=True))
            for name, value in example.items():
                if name not in batch:
                    batch[name] = torch.zeros((), dtype=value.dtype).expand(
                        values[0].shape[0], *value.shape[1:]
                    )
            found = self.model(batch)
            return found if isinstance(found, dict) else {"output": found}

        def forward(self, *values: Any) -> Any:
            return tuple(output.output for output in self._outputs(values).values())

    return Plain()
