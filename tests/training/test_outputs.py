"""Outputs: losses a sample, and metrics that do not depend on how samples are cut into batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed

from nnpipe.core.errors import ConfigError
from nnpipe.training.outputs.classification import (
    BinaryOutput,
    ClassificationOutput,
    DistillationOutput,
    compute_balanced_weights,
)
from nnpipe.training.outputs.ctc import CTCOutput, edit_distance
from nnpipe.training.outputs.detection import DetectionOutput
from nnpipe.training.outputs.embedding import (
    CentreOutput,
    ContrastiveOutput,
    EmbeddingOutput,
    MinedTripletOutput,
    PairOutput,
    TripletOutput,
)
from nnpipe.training.outputs.output import Output, compute_figure, compute_mean_loss
from nnpipe.training.outputs.regression import (
    RegressionOutput,
    TotalVariationOutput,
    total_variation,
)
from nnpipe.training.outputs.segmentation import SegmentationOutput

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional
sk = ImportedWhenUsed("sklearn.metrics")

N = 50


def rng() -> Any:
    return torch.Generator().manual_seed(3)


def noise(*shape: int) -> Any:
    return torch.randn(*shape, generator=rng())


def classes(count: int, *shape: int) -> Any:
    return torch.randint(0, count, shape, generator=rng())


FACTORS = torch.tensor([0.5, 1.0, 2.0, 0.0, 3.0])
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
    "regression": (
        (noise(N, 2), noise(N, 2) * 0.5),
        lambda o, t, w: RegressionOutput(o, t, weights=w),
    ),
    "huber": (
        (noise(N), noise(N) * 0.5),
        lambda o, t, w: RegressionOutput(o, t, weights=w, distance="huber"),
    ),
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
    "focal": (
        (noise(N, 5), classes(5, N)),
        lambda o, t, w: ClassificationOutput(o, t, weights=w, focal=2.0, class_weights=FACTORS),
    ),
    "binary focal": (
        (noise(N), classes(2, N)),
        lambda o, t, w: BinaryOutput(o, t, weights=w, focal=2.0),
    ),
    "segmentation focal": (
        (noise(N, 3, 4, 4), classes(3, N, 4, 4)),
        lambda o, t, w: SegmentationOutput(
            o, t, weights=w, ignore=1, focal=1.5, class_weights=FACTORS[:3]
        ),
    ),
    "pairs": (
        (noise(N, 4), noise(N, 4).flip(0), classes(2, N)),
        lambda o, p, t, w: PairOutput(o, t, other=p, weights=w, margin=4.0),
    ),
    "centres": (
        (noise(N, 4), classes(3, N)),
        lambda o, t, w: CentreOutput(o, t, centres=noise(3, 4), weights=w),
    ),
    "total variation": (
        (noise(N, 3, 4, 5),),
        lambda o, w: TotalVariationOutput(o, weights=w, power=2.0),
    ),
    "ctc": (
        (noise(N, 9, 5), 1 + classes(4, N, 4), 8 + classes(2, N), 1 + classes(4, N)),
        lambda o, t, n, m, w: CTCOutput(o, t, lengths=n, target_lengths=m, weights=w),
    ),
    "detection": (
        (noise(N, 16, 7), 4 + 20 * noise(N, 3, 4).sigmoid(), classes(3, N, 3) - 1),
        lambda o, t, c, w: DetectionOutput(o, t, classes=c, size=(32, 32), strides=(8,), weights=w),
    ),
    "triplets": (
        (noise(N, 4), noise(N, 4) * 0.5, noise(N, 4).flip(0)),
        lambda a, p, n, w: TripletOutput(a, positive=p, negative=n, weights=w),
    ),
}


def figures(
    cuts: list[slice], tensors: tuple[Any, ...], make: Callable[..., Output], weights: Any
) -> dict[str, float]:
    sums: dict[str, list[Any]] = {}
    for cut in cuts:
        output = make(*(t[cut] for t in tensors), None if weights is None else weights[cut])
        assert output.losses.shape == (len(tensors[0][cut]),)
        for name, metric in {"loss": output.loss_metric(), **output.metrics()}.items():
            above = metric.numerator.double().sum(0).numpy()
            below = (
                len(metric.numerator)
                if metric.denominator is None
                else metric.denominator.double().sum(0).numpy()
            )
            old = sums.setdefault(name, [0.0, 0.0, metric.finish])
            old[0], old[1] = old[0] + above, old[1] + below
    return {name: compute_figure(*values) for name, values in sums.items()}


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
    assert torch.equal(output.losses.mean(), torch.nn.functional.cross_entropy(logits, target))
    found = figures(
        [slice(0, N)], (logits, target), lambda o, t, w: ClassificationOutput(o, t, top=(2,)), None
    )
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(target, logits.argmax(1)))
    assert found["top2"] == pytest.approx(
        sk.top_k_accuracy_score(target, logits, k=2, labels=range(5))
    )


def test_the_mean_of_losses_has_the_gradients_of_pytorchs_mean_to_the_bit() -> None:
    for size in (1, 7, 49, 64):
        ours, theirs = (torch.arange(1.0, size + 1).div(3).requires_grad_() for _ in range(2))
        with torch.inference_mode():
            assert compute_mean_loss(ours) == pytest.approx(float(theirs.mean()))
        compute_mean_loss(ours).backward()
        theirs.mean().backward()
        assert torch.equal(ours.grad, theirs.grad)
    assert torch.isnan(compute_mean_loss(torch.ones(0)))
    assert compute_mean_loss(torch.ones(3, dtype=torch.float16)).dtype == torch.float16


def test_distillation_draws_the_student_to_the_teacher() -> None:
    (student, target, teacher), _ = TENSORS["distillation"]
    soft = DistillationOutput(student, target, teacher=teacher, temperature=2.0, hard=0.0)
    p, q = (teacher / 2).softmax(1).double(), (student / 2).softmax(1).double()
    assert torch.allclose(soft.losses.double(), 4 * (p * (p / q).log()).sum(1), atol=1e-5)
    assert float(
        DistillationOutput(teacher, target, teacher=teacher, hard=0.0).loss()
    ) == pytest.approx(0, abs=1e-6)
    hard = DistillationOutput(student, target, teacher=teacher, hard=1.0)
    assert torch.allclose(hard.losses, ClassificationOutput(student, target).losses)


@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_focal_losses_are_those_of_the_paper(gamma: float) -> None:
    logits, target = TENSORS["classification"][0]
    chance = logits.softmax(1)[torch.arange(N), target]
    expected = FACTORS[target] * -((1 - chance) ** gamma) * chance.log()
    found = ClassificationOutput(logits, target, focal=gamma, class_weights=FACTORS).losses
    assert torch.allclose(found, expected, atol=1e-6)
    single, truth = TENSORS["binary"][0]
    right = torch.where(truth == 1, single.sigmoid(), 1 - single.sigmoid())
    assert torch.allclose(
        BinaryOutput(single, truth, focal=gamma).losses, -((1 - right) ** gamma) * right.log()
    )


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    labels = np.array([0, 0, 0, 1, 2, 2])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert compute_balanced_weights(labels, 3).tolist() == pytest.approx(expected)
    assert compute_balanced_weights(labels, 4)[3] == 0


def test_pairs_of_one_kind_are_drawn_together_and_others_apart() -> None:
    near, far = torch.zeros(2, 2, requires_grad=True), torch.tensor([[3.0, 0.0], [0.6, 0.0]])
    output = PairOutput(near, torch.tensor([1, 0]), other=far, margin=1.0)
    assert output.losses.tolist() == pytest.approx([4.5, 0.08])
    output.loss().backward()
    # of the mean of both
    assert near.grad.numpy() == pytest.approx(np.array([[-1.5, 0.0], [0.2, 0.0]]))
    assert (
        compute_figure(output.metrics()["accuracy"].numerator.sum().numpy(), np.array(2.0), "mean")
        == 0.5
    )


@pytest.mark.parametrize("supervised", [False, True])
def test_contrastive_losses_are_those_of_the_papers(supervised: bool) -> None:
    one, other, kinds = (
        noise(6, 4).requires_grad_(),
        noise(6, 4).flip(0),
        torch.tensor([0, 1, 1, 2, 0, 1]),
    )
    found = ContrastiveOutput(one, kinds if supervised else None, other=other, temperature=0.3)
    views = F.normalize(torch.cat([one, other]).detach().double(), dim=1)
    labels = kinds.repeat(2) if supervised else torch.arange(6).repeat(2)
    expected = []
    for i in range(12):
        others = [j for j in range(12) if j != i]
        below = sum(torch.exp(views[i] @ views[j] / 0.3) for j in others)
        alike = [j for j in others if labels[j] == labels[i]]
        expected.append(
            -sum((torch.exp(views[i] @ views[j] / 0.3) / below).log() for j in alike) / len(alike)
        )
    halves = torch.stack(expected).reshape(2, 6).mean(0)
    assert found.losses.tolist() == pytest.approx(halves.tolist())
    found.loss().backward()
    assert bool(one.grad.isfinite().all())


@pytest.mark.parametrize("mining", ["hard", "semi-hard", "all"])
def test_triplets_are_mined_as_in_the_papers(mining: Any) -> None:
    features = noise(12, 3).double().requires_grad_()
    kinds = torch.tensor([0, 0, 0, 1, 1, 2, 0, 1, 3, 2, 0, 1])  # 3 has no other of its class
    output = MinedTripletOutput(features, kinds, mining=mining, margin=0.5)
    d = torch.cdist(features, features).detach()
    expected = []
    for a in range(12):
        positive = [p for p in range(12) if p != a and kinds[p] == kinds[a]]
        negative = [n for n in range(12) if kinds[n] != kinds[a]]
        if mining == "hard":
            chosen = (
                [(max(positive, key=lambda p: d[a, p]), min(negative, key=lambda n: d[a, n]))]
                if positive
                else []
            )
        elif mining == "all":
            chosen = [(p, n) for p in positive for n in negative]
        else:
            chosen = []
            for p in positive:
                beyond = [n for n in negative if d[a, n] > d[a, p]]
                chosen.append(
                    (
                        p,
                        min(beyond, key=lambda n: d[a, n])
                        if beyond
                        else max(negative, key=lambda n: d[a, n]),
                    )
                )
        expected.append(
            np.mean([max(0.0, float(d[a, p] - d[a, n]) + 0.5) for p, n in chosen])
            if chosen
            else 0.0
        )
    assert output.losses.tolist() == pytest.approx(expected)
    assert float(output.metrics()["ordered"].denominator.sum()) == 11
    output.loss().backward()
    assert bool(features.grad.isfinite().all())


def test_centres_and_features_move_towards_each_other() -> None:
    centres = torch.zeros(2, 2, requires_grad=True)
    features = torch.tensor([[3.0, 4.0]], requires_grad=True)
    output = CentreOutput(features, torch.tensor([1]), centres=centres)
    output.loss().backward()
    assert output.losses.tolist() == [12.5]
    assert output.metrics()["distance"].numerator.tolist() == [5.0]
    assert centres.grad.tolist() == [[0, 0], [-3, -4]]
    with pytest.raises(ConfigError, match=r"features are \(1, 3\) and centres \(2, 2\)"):
        CentreOutput(torch.zeros(1, 3), torch.tensor([0]), centres=centres).loss()


def test_the_total_variation_is_that_of_neighbours() -> None:
    image = torch.tensor([[[[0.0, 1.0, 3.0], [0.0, 2.0, 2.0]]]])
    assert total_variation(image).tolist() == pytest.approx([5 / 4 + 2 / 3])
    assert total_variation(image, 2.0).tolist() == pytest.approx([9 / 4 + 2 / 3])
    assert total_variation(torch.ones(2, 3, 4, 4, 4)).tolist() == [0, 0]


def test_ctc_agrees_with_pytorch_and_counts_the_errors_of_what_is_read() -> None:
    (logits, target, lengths, target_lengths), _ = TENSORS["ctc"]
    output = CTCOutput(logits, target, lengths=lengths, target_lengths=target_lengths)
    chances = logits.log_softmax(2).transpose(0, 1)
    assert torch.allclose(output.loss(), F.ctc_loss(chances, target, lengths, target_lengths))
    # What is said is 1 1 2 after repeats and blanks are left out; 4 is beyond the steps.
    steps = F.one_hot(torch.tensor([[1, 1, 0, 1, 2, 2, 4]]), 5).float() * 9
    read = CTCOutput(
        steps,
        torch.tensor([[1, 2, 3, 3]]),
        lengths=torch.tensor([6]),
        target_lengths=torch.tensor([3]),
    )
    assert read.predictions() == [[1, 1, 2]]
    error = read.metrics()["error_rate"]
    assert (float(error.numerator), float(error.denominator)) == (2, 3)


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [([], [1, 2], 2), ([1, 2, 3], [1, 2, 3], 0), ([1, 2, 3], [2, 3, 4], 2), ([5], [], 1)],
)
def test_the_distance_of_sequences_counts_the_least_changes(
    one: list[int], other: list[int], distance: int
) -> None:
    assert edit_distance(one, other) == distance


def test_binary_metrics_agree_with_scikit_learn() -> None:
    tensors, make = TENSORS["binary"]
    weights = torch.rand(N, generator=rng())
    found = figures([slice(0, 30), slice(30, N)], tensors, make, weights)
    said, truth = (tensors[0] > 0).numpy(), tensors[1].numpy()
    for name, function in (
        ("precision", sk.precision_score),
        ("recall", sk.recall_score),
        ("f1", sk.f1_score),
    ):
        assert found[name] == pytest.approx(
            function(truth, said, sample_weight=weights.numpy()), rel=1e-6
        )


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
    assert compute_figure(np.array([1.0, 0.0]), np.array([2.0, 0.0]), "mean") == 0.5
    assert np.isnan(compute_figure(np.array([0.0]), np.array([0.0]), "mean"))
