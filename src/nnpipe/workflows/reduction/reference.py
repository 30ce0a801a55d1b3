"""What a graph is reduced against: the values of every tensor of the whole, and whether a part
computes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.analysis.agreement import AgreementAccumulator, Tolerances
from nnpipe.core.errors import NNPipeError, NotSupported
from nnpipe.core.messages import format_one_line
from nnpipe.core.tensors import Batch, IOSpec, generate_random_batch
from nnpipe.formats.onnx import read_onnx
from nnpipe.frameworks.onnxruntime import open_model
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.reduction.onnx_parts import DivisibleGraph, ONNXPart, TensorValues
from nnpipe.workflows.verification.compare_outputs import prepare_samples

_MOST_BYTES = 4 << 30  # of recorded values


def record(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the whole graph and write what every tensor holds; return how many samples there are
    and by what they ran.
    """
    whole = DivisibleGraph(Path(request["model"]))
    folder = Path(request["folder"])
    path = folder / "all.onnx"
    ONNXPart(whole.with_all_outputs(), (), ()).write(path)
    names = [*whole.inputs, *whole.tensors]
    io = read_onnx(Path(request["model"])).with_score_tensors().io()
    samples = _load_samples(request, io)
    run, by = _make_runner(path)
    values, size = TensorValues(Path(request["values"]), names, 0), 0
    for number, sample in enumerate(samples):
        for name, array in {**sample, **run(whole.tensors, sample)}.items():
            if isinstance(array, np.ndarray) and array.dtype.kind in "biuf":
                values.write(name, number, array)
                size += array.nbytes
        values.samples += 1
        if size > _MOST_BYTES:
            break
    return {"samples": values.samples, "by": by, "names": names}


def _load_samples(request: Mapping[str, Any], io: IOSpec) -> Iterator[Batch]:
    count = request["samples"]
    # A model for a fixed number of samples takes that many at a time.
    size = next((spec.shape[0] for spec in io.inputs if spec.shape and spec.shape[0]), 1) or 1
    if request["candidate"] is None:
        for number in range(count):
            yield generate_random_batch(io, size, number)
        return
    spec = CandidateSpec.from_json(request["candidate"]).fit_wrapper()
    assert spec.dataset is not None
    found = prepare_samples(spec.wrapper, spec.dataset, count * size)
    for start in range(0, len(found) - size + 1, size):
        group = found[start : start + size]
        joined = {name: np.concatenate([sample[name] for sample in group]) for name in group[0]}
        if len(joined) == len(io.inputs) == 1:
            joined = {io.inputs[0].name: next(iter(joined.values()))}
        io.check_inputs(joined)
        yield joined


def _make_runner(path: Path) -> tuple[Any, str]:
    """Return a function that computes tensors of a model as its file says, and the name of what
    does it.
    """
    try:
        session = open_model(read_onnx(path), 1, optimisation="none")
    except NNPipeError as refused:
        import onnx
        from onnx.reference import ReferenceEvaluator

        try:
            evaluator = ReferenceEvaluator(onnx.load_model(str(path)))
        except Exception as error:  # of any class
            raise NotSupported(
                f"nothing computes the reference: {refused}; nor ONNX's own: "
                f"{format_one_line(error)}"
            ) from None

        def evaluate(names: list[str], batch: Batch) -> dict[str, Any]:
            try:
                return dict(zip(names, evaluator.run(names, dict(batch)), strict=True))
            except Exception as error:  # of any class
                raise NotSupported(
                    f"nothing computes the reference: ONNX's own cannot: {format_one_line(error)}"
                ) from None

        return evaluate, "ONNX's reference evaluator"

    def run(names: list[str], batch: Batch) -> dict[str, Any]:
        try:
            return dict(zip(names, session.run(names, dict(batch)), strict=True))
        except Exception as error:  # its errors share no base but Exception
            raise NotSupported(
                f"ONNX Runtime cannot compute the reference: {format_one_line(error)}; give "
                f"samples that fit with --dataset"
            ) from None

    return run, "ONNX Runtime without optimisations"


def check_reference(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether a part of the graph computes the recorded values by itself."""
    values = TensorValues(Path(request["values"]), request["names"], request["samples"])
    run, _ = _make_runner(Path(request["model"]))
    comparison = AgreementAccumulator()
    for sample in range(values.samples):
        outputs = run(
            request["outputs"],
            {name: np.array(values.read(name, sample)) for name in request["inputs"]},
        )
        comparison.add({name: values.read(name, sample) for name in outputs}, outputs, samples=1)
    verdict, _ = comparison.result().verdict(Tolerances())
    return {"valid": verdict != "different"}
