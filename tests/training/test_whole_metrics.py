"""Metrics of all samples: those of tasks and foreign objects, whatever the batches, processes
and kills.
"""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
sk = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
import training_toys as toys

from nnpipe.core.errors import ConfigError
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import get_task
from nnpipe.core.tensors import DatasetSpec
from nnpipe.training._whole_metrics import WholeMetrics, resolve_wanted_metrics
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import BinaryOutput, ClassificationOutput
from nnpipe.training.outputs.embedding import EmbeddingOutput
from nnpipe.training.outputs.regression import RegressionOutput, TotalVariationOutput
from nnpipe.training.outputs.segmentation import SegmentationOutput
from nnpipe.training.trainer import Trainer


class Fixed(torch.nn.Module):
    """Returns what the data holds."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.weight, self.make = torch.nn.Parameter(torch.zeros(1)), make

    def forward(self, batch: dict[str, Any]) -> Any:
        return {"out": self.make(batch)}


def evaluated(make: Any, arrays: dict[str, Any], metrics: Any, size: int) -> dict[str, float]:
    data = {"d": {"test": toys.ArraySequence(arrays, size, shuffle=False)}}
    found = Trainer().evaluate(Fixed(make), data, metrics={"out": metrics})
    return {name.removeprefix("d/test/out/"): value for name, value in found.items()}


def classes(count: int, samples: int = 101) -> dict[str, Any]:
    rng = np.random.default_rng(count)
    label = rng.integers(0, count, samples)
    logits = rng.normal(size=(samples, count)) + np.eye(count)[label]
    return {
        "x": logits.astype(np.float32),
        "label": label,
        "weight": rng.random(samples).astype(np.float32),
    }


AREAS = ["roc_auc", "pr_auc", "calibration_error"]


@pytest.mark.parametrize("size", [1, 7, 64, 512])
@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_of_classes_are_those_of_scikit_learn(size: int, weighted: bool) -> None:
    arrays = classes(20)  # more than reports keep the scores of
    weights = arrays["weight"] if weighted else None

    def make(batch: dict[str, Any]) -> Any:
        return ClassificationOutput(
            batch["x"], batch["label"], weights=batch["weight"] if weighted else None
        )

    found = evaluated(make, arrays, [*AREAS, "macro_f1", "accuracy"], size)
    chances, one_hot = (
        torch.from_numpy(arrays["x"]).double().softmax(1).numpy(),
        np.eye(20)[arrays["label"]],
    )
    said = arrays["x"].argmax(1)
    assert found["roc_auc"] == pytest.approx(
        sk.roc_auc_score(one_hot, chances, sample_weight=weights), abs=1e-6
    )
    expected = sk.average_precision_score(one_hot, chances, sample_weight=weights)
    assert found["pr_auc"] == pytest.approx(expected, abs=1e-6)
    expected = sk.f1_score(arrays["label"], said, average="macro", sample_weight=weights)
    assert found["macro_f1"] == pytest.approx(expected, abs=1e-6)
    expected = sk.accuracy_score(arrays["label"], said, sample_weight=weights)
    assert found["accuracy"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("labels", [0, 3])
def test_metrics_of_binary_outputs_are_means_over_labels(labels: int) -> None:
    rng = np.random.default_rng(0)
    shape = (101, labels) if labels else (101,)
    truth = rng.integers(0, 2, shape)
    arrays = {"x": (rng.normal(size=shape) + truth).astype(np.float32), "label": truth}
    found = evaluated(lambda b: BinaryOutput(b["x"], b["label"]), arrays, AREAS, 16)
    assert found["roc_auc"] == pytest.approx(sk.roc_auc_score(truth, arrays["x"]), abs=1e-6)
    assert found["pr_auc"] == pytest.approx(
        sk.average_precision_score(truth, arrays["x"]), abs=1e-6
    )


def test_the_metrics_of_other_tasks_are_theirs() -> None:
    rng = np.random.default_rng(0)
    values = {
        "x": rng.normal(size=(33, 2)).astype(np.float32),
        "y": rng.normal(size=(33, 2)).astype(np.float32),
    }
    found = evaluated(lambda b: RegressionOutput(b["x"], b["y"]), values, ["r2", "mae", "rmse"], 8)
    assert found["rmse"] == pytest.approx(
        sk.root_mean_squared_error(values["y"].ravel(), values["x"].ravel()), abs=1e-6
    )
    assert found["r2"] == pytest.approx(
        sk.r2_score(values["y"], values["x"], multioutput="variance_weighted"), abs=1e-6
    )
    masks = {
        "x": rng.normal(size=(9, 3, 8, 8)).astype(np.float32),
        "y": rng.integers(0, 3, (9, 8, 8)),
    }
    found = evaluated(
        lambda b: SegmentationOutput(b["x"], b["y"], ignore=2), masks, ["mean_iou"], 4
    )
    kept = masks["y"].ravel() != 2
    truth, said = masks["y"].ravel()[kept], masks["x"].argmax(1).ravel()[kept]
    jaccard = sk.jaccard_score(truth, said, labels=[0, 1], average="macro")
    assert found["mean_iou"] == pytest.approx(jaccard, abs=1e-6)
    vectors = {"x": np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 2]], "y": np.array([0, 0, 1, 1, 0])}
    found = evaluated(lambda b: EmbeddingOutput(b["x"], b["y"]), vectors, ["recall_at_1"], 2)
    assert found["recall_at_1"] == pytest.approx(4 / 5)


def test_a_trainings_metric_is_that_of_a_report() -> None:
    arrays = classes(5)
    found = evaluated(lambda b: ClassificationOutput(b["x"], b["label"]), arrays, AREAS, 16)
    task, names = get_task("classification"), tuple("abcde")
    chances = torch.from_numpy(arrays["x"]).softmax(1).numpy()
    judged = task.evaluate(
        {"p": chances}, {"label": arrays["label"]}, DatasetSpec(task.name, (), (), names)
    )
    for name in AREAS:
        assert found[name] == pytest.approx(task.metric(name).compute(judged), abs=1e-6), name


def test_the_metrics_of_each_output_agree_with_those_of_its_task() -> None:
    arrays = classes(3) | {"z": np.random.default_rng(1).normal(size=101).astype(np.float32)}
    arrays["y"] = arrays["z"] + arrays["x"][:, 0]

    def make(batch: dict[str, Any], name: str = "") -> Any:
        return RegressionOutput(batch["y"], batch["z"], weights=batch["weight"])

    plain, asked = (
        evaluated(make, arrays, metrics, 16) for metrics in ([], {"a": "mae", "b": "rmse"})
    )
    assert asked["a"] == pytest.approx(plain["mae"], rel=1e-6)
    assert asked["b"] == pytest.approx(plain["rmse"], rel=1e-6)


class Hits:
    """An object as of torchmetrics: the share of right ones, and how often each class was said."""

    def __init__(self) -> None:
        self.reset()

    def update(self, output: Any, target: Any) -> None:
        self.hits += int((output.argmax(1) == target).sum())
        self.said.append(output.argmax(1))

    def compute(self) -> Any:
        said = torch.cat(self.said)
        return {"share": self.hits / len(said), "said": torch.bincount(said, minlength=3)}

    def reset(self) -> None:
        self.hits, self.said = 0, []

    def state_dict(self) -> Any:
        return {"hits": self.hits, "said": list(self.said)}

    def load_state_dict(self, state: Any) -> None:
        self.hits, self.said = state["hits"], list(state["said"])


def trained(folder: Path, *callbacks: Callback) -> Any:
    metrics = {"label": {"auc": "roc_auc", "hits": Hits()}}
    options = TrainerOptions(
        num_epochs=2, checkpoint_every=3, monitor="blobs/test/label/auc", monitor_mode="max"
    )
    return Trainer(options, callbacks).fit(
        toys.fresh(), toys.sequences(), folder=folder, metrics=metrics
    )


def test_a_killed_training_ends_with_the_same_metrics(tmp_path: Path) -> None:
    expected = list(trained(tmp_path / "one").rows())
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "two", toys.Interrupting(10))
    assert list(trained(tmp_path / "two").rows()) == expected
    row = expected[-1]
    assert row["blobs/train/label/hits/share"] == row["blobs/train/label/accuracy"]
    assert sum(row[f"blobs/test/label/hits/said/{n}"] for n in range(3)) == 50
    one, two = (
        (tmp_path / name / "checkpoints" / "last.state").read_bytes() for name in ("one", "two")
    )
    assert one == two


def test_the_samples_of_several_processes_are_joined() -> None:
    arrays, wanted = classes(4), resolve_wanted_metrics({"out": AREAS})
    cut = [slice(0, 60, 2), slice(1, 60, 2), slice(60, 101)]
    whole, parts = WholeMetrics(wanted), []
    whole.add(
        {
            "out": ClassificationOutput(
                torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["label"])
            )
        }
    )
    for own in cut:
        part = WholeMetrics(wanted)
        part.add(
            {
                "out": ClassificationOutput(
                    *(torch.from_numpy(arrays[name][own]) for name in ("x", "label"))
                )
            }
        )
        parts.append(part.state_dict())
    joined = WholeMetrics(wanted)
    joined.join(parts)
    assert joined.figures() == pytest.approx(whole.figures(), abs=1e-12)


def test_objects_of_torchmetrics_are_metrics(tmp_path: Path) -> None:
    of_classes = pytest.importorskip(
        "torchmetrics.classification", reason="torchmetrics is not installed"
    )
    arrays = classes(4)
    given = {
        "auroc": of_classes.MulticlassAUROC(4),
        "error": of_classes.MulticlassCalibrationError(4, n_bins=15),
        "f1": of_classes.MulticlassF1Score(4, average=None),
    }
    found = evaluated(
        lambda b: ClassificationOutput(b["x"], b["label"]),
        arrays,
        {**given, "own": "roc_auc", "ece": "calibration_error", "macro": "macro_f1"},
        16,
    )
    assert found["auroc"] == pytest.approx(found["own"], abs=1e-6)
    assert found["error"] == pytest.approx(found["ece"], abs=1e-6)
    assert np.mean([found[f"f1/{n}"] for n in range(4)]) == pytest.approx(found["macro"], abs=1e-6)
    model = toys.fresh()
    metrics = {"label": [of_classes.MulticlassAUROC(3)]}
    rows = []
    for callbacks in ((), (toys.Interrupting(10),), ()):
        folder = tmp_path / ("one" if not rows else "two")
        options = TrainerOptions(num_epochs=2, checkpoint_every=3)
        try:
            model = toys.fresh()
            history = Trainer(options, callbacks).fit(
                model, toys.sequences(), folder=folder, metrics=metrics
            )
            rows.append(list(history.rows()))
        except KeyboardInterrupt:
            continue
    assert rows[0] == rows[1]


def objects_of_torchmetrics() -> dict[str, Any]:
    """Return objects with states that are arrays of all samples, sums, and moments that are
    joined by a formula.
    """
    metrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    of_classes = metrics.classification
    together = [
        of_classes.MulticlassF1Score(4),
        of_classes.MulticlassRecall(4),
        of_classes.MulticlassAUROC(4),
    ]
    return {
        "auroc": of_classes.MulticlassAUROC(4),
        "binned": of_classes.MulticlassAUROC(4, thresholds=50),
        "error": of_classes.MulticlassCalibrationError(4, n_bins=15),
        "each": metrics.wrappers.ClasswiseWrapper(of_classes.MulticlassAccuracy(4, average=None)),
        "sum": of_classes.MulticlassRecall(4) + of_classes.MulticlassPrecision(4),
        "together": metrics.MetricCollection(together),
    }


@pytest.mark.parametrize("size", [1, 7, 101])
def test_objects_do_not_depend_on_batches(size: int) -> None:
    """torchmetrics takes logits for probabilities where all of a batch happen to lie between 0
    and 1.
    """
    metrics = pytest.importorskip(
        "torchmetrics.classification", reason="torchmetrics is not installed"
    )
    arrays = classes(3)
    arrays["x"] *= np.float32(0.7)
    found = evaluated(
        lambda b: ClassificationOutput(b["x"], b["label"]),
        arrays,
        [metrics.MulticlassAUROC(3), "roc_auc"],
        size,
    )
    assert found["MulticlassAUROC"] == pytest.approx(found["roc_auc"], abs=1e-6)
    yes = {"x": arrays["x"][:, 0], "label": np.float32(arrays["label"] == 0)}
    found = evaluated(
        lambda b: BinaryOutput(b["x"], b["label"]), yes, [metrics.BinaryAUROC(), "roc_auc"], size
    )
    assert found["BinaryAUROC"] == pytest.approx(found["roc_auc"], abs=1e-6)


def parts(wanted: Any, arrays: dict[str, Any], cut: list[slice]) -> list[WholeMetrics]:
    """Return the metrics of each part of the samples; of a part without samples nothing is
    known.
    """
    found = []
    for own in cut:
        found.append(WholeMetrics(wanted))
        output, target = (torch.from_numpy(arrays[name][own]) for name in ("x", "label"))
        if len(output):
            found[-1].add({"out": ClassificationOutput(output, target)})
    return found


@pytest.mark.parametrize(
    "cut",
    [
        [slice(0, 60, 2), slice(1, 60, 2), slice(60, 101)],
        [slice(0, 0), slice(0, 101)],
        [slice(0, 101), slice(0, 0)],
    ],
    ids=["uneven", "first-idle", "second-idle"],
)
def test_objects_of_several_processes_are_joined(cut: list[slice]) -> None:
    wanted, arrays = (
        resolve_wanted_metrics(
            {"out": objects_of_torchmetrics(), "idle": objects_of_torchmetrics()}, 2
        ),
        classes(4),
    )
    (whole,) = parts(wanted, arrays, [slice(0, 101)])
    joined = WholeMetrics(wanted)
    joined.join([part.state_dict() for part in parts(wanted, arrays, cut)])
    expected = whole.figures()
    assert {"out/auroc", "out/together/MulticlassRecall", "out/sum"} <= set(expected)
    assert not [name for name in expected if name.startswith("idle")]
    assert joined.figures() == pytest.approx(expected, abs=1e-6)


def test_moments_of_several_processes_are_joined() -> None:
    metrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    wanted, arrays = resolve_wanted_metrics({"out": [metrics.PearsonCorrCoef()]}, 2), classes(2, 31)

    def of(own: slice) -> WholeMetrics:
        found = WholeMetrics(wanted)
        one, other = (torch.from_numpy(arrays[name][own]) for name in ("x", "weight"))
        found.add({"out": RegressionOutput(one[:, 0], other)})
        return found

    joined = WholeMetrics(wanted)
    joined.join(
        [
            of(slice(0, 20)).state_dict(),
            WholeMetrics(wanted).state_dict(),
            of(slice(20, 31)).state_dict(),
        ]
    )
    expected = np.corrcoef(arrays["x"][:, 0], arrays["weight"])[0, 1]
    assert joined.figures() == pytest.approx({"out/PearsonCorrCoef": expected}, abs=1e-6)


def test_an_object_that_cannot_be_joined_is_refused_in_several_processes() -> None:
    assert resolve_wanted_metrics({"out": [Hits()]})
    with pytest.raises(
        ConfigError, match="a Hits, which does not say how the states of 2 processes are joined"
    ):
        resolve_wanted_metrics({"out": [Hits()]}, 2)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["roc_auc"], "metrics is a list; give metrics by output"),
        ({"out": "roc_auc"}, r"metrics\['out'\] is a str; give a list"),
        (
            {"out": [3]},
            r"metrics\['out'\]\['int'\] is a int; give the name of a task's metric, a "
            r"QualityMetric, or",
        ),
        ({"out": [Hits(), Hits()]}, "two have one name"),
        (
            {"out": ["rocauc"]},
            "the task 'classification' has no metric 'rocauc'; it has accuracy, top_5_acc",
        ),
    ],
)
def test_what_is_no_metric_is_refused(metrics: Any, message: str) -> None:
    data = {"d": {"test": toys.ArraySequence(classes(3), 16)}}
    with pytest.raises(ConfigError, match=message):
        Trainer().evaluate(
            Fixed(lambda b: ClassificationOutput(b["x"], b["label"])), data, metrics=metrics
        )


def test_a_wrong_name_of_a_metric_or_an_output_is_an_error_before_the_first_step() -> None:
    trainer, model = Trainer(TrainerOptions(num_epochs=1)), toys.fresh()
    before = toys.weights(model)
    with pytest.raises(ConfigError, match="no metric 'rocauc'"):
        trainer.fit(model, toys.sequences(), metrics={"label": ["rocauc"]})
    wrong = "metrics: no output is called 'lable'; there are label; did you mean label"
    with pytest.raises(ConfigError, match=wrong):
        trainer.fit(model, toys.sequences(), metrics={"lable": ["roc_auc"]})
    with pytest.raises(ConfigError, match=wrong):
        trainer.evaluate(model, toys.sequences(), metrics={"lable": ["roc_auc"]})
    assert toys.equal(toys.weights(model), before)


def test_an_output_of_a_step_of_ones_own_is_looked_for_after_an_epoch() -> None:
    def step(fit: Any, batch: Any) -> Any:
        loss, outputs = fit.forward(batch)
        fit.backward(loss)
        fit.update()
        return {"other": outputs["label"]}

    data = {"blobs": {"train": toys.sequences()["blobs"]["train"]}}
    history = Trainer(TrainerOptions(num_epochs=1)).fit(
        toys.fresh(), data, step=step, metrics={"other": ["roc_auc"]}
    )
    assert "blobs/train/other/roc_auc" in history.last
    with pytest.raises(ConfigError, match="no output is called 'otter'; there are other"):
        Trainer(TrainerOptions(num_epochs=9)).fit(
            toys.fresh(), data, step=step, metrics={"otter": ["roc_auc"]}
        )


def test_an_output_without_a_task_is_named() -> None:
    arrays = {"x": np.zeros((4, 1, 3, 3), np.float32)}
    with pytest.raises(ConfigError, match="a TotalVariationOutput belongs to no task"):
        evaluated(lambda b: TotalVariationOutput(b["x"]), arrays, ["roc_auc"], 4)


def test_a_quality_metric_of_ones_own_is_computed() -> None:
    sure = QualityMetric(
        "sure",
        "Sure",
        "Sure",
        "share of sure ones",
        "share",
        False,
        values=lambda found: (found.arrays["scores"].max(1) > 1) * 1.0,
    )
    arrays = classes(3)
    found = evaluated(lambda b: ClassificationOutput(b["x"], b["label"]), arrays, [sure], 16)
    assert found["sure"] == pytest.approx((arrays["x"].max(1) > 1).mean())
