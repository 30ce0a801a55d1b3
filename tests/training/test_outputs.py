"""Outputs: losses a sample, and metrics that do not depend on how samples are cut into batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed

from nnpipe.core.errors import ConfigError
from nnpipe.training.outputs.binary import BinaryOutput
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.distillation import DistillationOutput
from nnpipe.training.outputs.embedding import EmbeddingOutput
from nnpipe.training.outputs.metric import figure
from nnpipe.training.outputs.output import Output
from nnpipe.training.outputs.regression import RegressionOutput
from nnpipe.training.outputs.segmentation import SegmentationOutput
from nnpipe.training.outputs.triplets import TripletOutput

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
sk = ImportedWhenUsed("sklearn.metrics")

N = 50


def rng() -> Any:
    return torch.Generator().manual_seed(3)


def noise(*shape: int) -> Any:
    return torch.randn(*shape, generator=rng())


def classes(count: int, *shape: int) -> Any:
    return torch.randint(0, count, shape, generator=rng())


TENSORS: dict[str, tuple[tuple[Any, ...], Callable[..., Output]]] = {
    "classification": (
        (noise(N, 5), classes(5, N)),
        lambda o, t, w: ClassificationOutput(o, t, weights=w, top=(2,)),
    ),
    "binary": ((noise(N), classes(2, N)), lambda o, t, w: BinaryOutput(o, t, weights=w)),
    "labels": (
        (noise(N, 3), classes(2, N, 3)),
        lambda o, t, w: BinaryOutput(o, t, weights=w, positive_weight=2.0),
    ),
    "regression": ((noise(N, 2), noise(N, 2) * 0.5), lambda o, t, w: RegressionOutput(o, t, weights=w)),
    "huber": ((noise(N), noise(N) * 0.5), lambda o, t, w: RegressionOutput(o, t, weights=w, distance="huber")),
    "segmentation": (
        (noise(N, 3, 4, 4), classes(3, N, 4, 4)),
        lambda o, t, w: SegmentationOutput(o, t, weights=w, ignore=1),
    ),
    "dice": (
        (noise(N, 3, 4, 4), classes(3, N, 4, 4)),
        lambda o, t, w: SegmentationOutput(o, t, weights=w, criterion="dice"),
    ),
    "distillation": (
        (noise(N, 5), classes(5, N), noise(N, 5).flip(0)),
        lambda o, t, e, w: DistillationOutput(o, t, teacher=e, weights=w),
    ),
    "triplets": (
        (noise(N, 4), noise(N, 4) * 0.5, noise(N, 4).flip(0)),
        lambda a, p, n, w: TripletOutput(a, positive=p, negative=n, weights=w),
    ),
}


def figures(cuts: list[slice], tensors: tuple[Any, ...], make: Callable[..., Output], weights: Any) -> dict[str, float]:
    sums: dict[str, list[Any]] = {}
    for cut in cuts:
        output = make(*(t[cut] for t in tensors), None if weights is None else weights[cut])
        assert output.losses.shape == (len(tensors[0][cut]),)
        for name, metric in {"loss": output.loss_metric(), **output.metrics()}.items():
            above = metric.numerator.double().sum(0).numpy()
            below = len(metric.numerator) if metric.denominator is None else metric.denominator.double().sum(0).numpy()
            old = sums.setdefault(name, [0.0, 0.0, metric.finish])
            old[0], old[1] = old[0] + above, old[1] + below
    return {name: figure(*values) for name, values in sums.items()}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", TENSORS)
def test_figures_do_not_depend_on_the_batch_size(name: str, weighted: bool) -> None:
    tensors, make = TENSORS[name]
    weights = torch.rand(N, generator=rng()) if weighted else None
    whole = figures([slice(0, N)], tensors, make, weights)
    for size in (1, 7, 16):
        cuts = [slice(start, start + size) for start in range(0, N, size)]
        assert figures(cuts, tensors, make, weights) == pytest.approx(whole, rel=1e-6)
    assert all(np.isfinite(value) for value in whole.values())


@pytest.mark.parametrize("name", TENSORS)
def test_a_weight_counts_as_that_many_samples(name: str) -> None:
    tensors, make = TENSORS[name]
    repeats = classes(3, N)
    repeated = tuple(t.repeat_interleave(repeats, 0) for t in tensors)
    found = figures([slice(0, N)], tensors, make, repeats.float())
    assert found == pytest.approx(figures([slice(None)], repeated, make, None), rel=1e-5)


def test_classification_agrees_with_pytorch() -> None:
    logits, target = TENSORS["classification"][0]
    output = ClassificationOutput(logits, target, top=(2,))
    assert torch.equal(output.loss(), torch.nn.functional.cross_entropy(logits, target))
    found = figures([slice(0, N)], (logits, target), lambda o, t, w: ClassificationOutput(o, t, top=(2,)), None)
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(target, logits.argmax(1)))
    assert found["top2"] == pytest.approx(sk.top_k_accuracy_score(target, logits, k=2, labels=range(5)))


def test_distillation_draws_the_student_to_the_teacher() -> None:
    (student, target, teacher), _ = TENSORS["distillation"]
    soft = DistillationOutput(student, target, teacher=teacher, temperature=2.0, hard=0.0)
    p, q = (teacher / 2).softmax(1).double(), (student / 2).softmax(1).double()
    assert torch.allclose(soft.losses.double(), 4 * (p * (p / q).log()).sum(1), atol=1e-5)
    assert float(DistillationOutput(teacher, target, teacher=teacher, hard=0.0).loss()) == pytest.approx(0, abs=1e-6)
    hard = DistillationOutput(student, target, teacher=teacher, hard=1.0)
    assert torch.allclose(hard.losses, ClassificationOutput(student, target).losses)


def test_binary_metrics_agree_with_scikit_learn() -> None:
    tensors, make = TENSORS["binary"]
    weights = torch.rand(N, generator=rng())
    found = figures([slice(0, 30), slice(30, N)], tensors, make, weights)
    said, truth = (tensors[0] > 0).numpy(), tensors[1].numpy()
    for name, function in (("precision", sk.precision_score), ("recall", sk.recall_score), ("f1", sk.f1_score)):
        assert found[name] == pytest.approx(function(truth, said, sample_weight=weights.numpy()), rel=1e-6)


def test_segmentation_metrics_agree_with_scikit_learn() -> None:
    tensors, make = TENSORS["segmentation"]
    found = figures([slice(0, 30), slice(30, N)], tensors, make, None)
    counted = tensors[1].flatten() != 1
    said, truth = tensors[0].argmax(1).flatten()[counted], tensors[1].flatten()[counted]
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(truth, said))
    # Class 1 is ignored in the truth, so where it is said it only takes away from the others.
    present = [0, 2]
    dice = sk.f1_score(truth, said, labels=present, average=None)
    iou = sk.jaccard_score(truth, said, labels=present, average=None)
    assert found["dice"] == pytest.approx(np.mean([*dice, 0.0]))
    assert found["iou"] == pytest.approx(np.mean([*iou, 0.0]))


def test_regression_metrics_are_what_they_are_called() -> None:
    tensors, make = TENSORS["regression"]
    error = (tensors[0] - tensors[1]).double()
    found = figures([slice(0, 30), slice(30, N)], tensors, make, None)
    assert found["mae"] == pytest.approx(float(error.abs().mean()), rel=1e-6)
    assert found["rmse"] == pytest.approx(float(error.square().mean().sqrt()), rel=1e-6)


def test_the_gradient_of_a_sample_follows_its_weight() -> None:
    tensors, make = TENSORS["classification"]
    logits = tensors[0].clone().requires_grad_()
    weights = torch.ones(N)
    weights[4] = 3.0
    make(logits, tensors[1], weights).loss().backward()
    plain = tensors[0].clone().requires_grad_()
    make(plain, tensors[1], None).loss().backward()
    assert torch.allclose(logits.grad[4], 3 * plain.grad[4])
    assert torch.equal(logits.grad[5], plain.grad[5])


def test_shapes_that_would_broadcast_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(50, 1\) and the target \(50,\)"):
        RegressionOutput(noise(N, 1), noise(N)).loss()


def test_an_embedding_has_no_loss_of_its_own() -> None:
    assert float(EmbeddingOutput(noise(N, 4)).loss()) == 0.0
    given = noise(N).abs()
    assert torch.equal(EmbeddingOutput(noise(N, 4), given=given).losses, given)


def test_losses_are_computed_in_single_precision() -> None:
    output = ClassificationOutput(noise(N, 5).bfloat16(), classes(5, N))
    assert output.losses.dtype == torch.float32


def test_a_class_that_is_nowhere_does_not_count() -> None:
    assert figure(np.array([1.0, 0.0]), np.array([2.0, 0.0]), "mean") == 0.5
    assert np.isnan(figure(np.array([0.0]), np.array([0.0]), "mean"))
