"""Explanations against what must hold of them; source and profile."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
needs("sklearn")
import digit_toys as digits
import training_toys as toys

from nnpipe.training.callbacks.explanations import Explanations, explain
from nnpipe.training.callbacks.resource_monitor import ProfilerTrace
from nnpipe.training.callbacks.run_page import SourceSnapshot
from nnpipe.training.optimization import AdamW
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.trainer import Trainer


def batch_of(count: int) -> dict[str, Any]:
    return {name: torch.from_numpy(value) for name, value in digits.arrays(0, count).items()}


@pytest.fixture(scope="module")
def explained() -> tuple[Any, dict[str, Any], Any, dict[str, Any]]:
    """A trained model, four samples, what it says of them, and the maps."""
    model = digits.model()
    Trainer(TrainerOptions(num_epochs=8)).fit(
        model, digits.sequences(256, 40), optimiser=AdamW(rate=0.01)
    )
    model.eval()
    found = explain(model, batch_of(4), "image", "digit")
    assert found is not None
    return model, batch_of(4), *found


@pytest.mark.usefixtures("sketched")
def test_explanations_of_the_first_samples_are_drawn(tmp_path: Path) -> None:
    trainer = Trainer(
        TrainerOptions(num_epochs=1), [Explanations("image", "digit", 2, ["gradient"])]
    )
    trainer.fit(digits.model(), digits.sequences(32, 20), folder=tmp_path)
    assert (tmp_path / "pictures" / "explanations-digits-test.png").is_file()


def test_pictures_in_whole_numbers_are_explained_too(explained: Any) -> None:
    model, batch, said, _ = explained

    class OfBytes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: dict[str, Any]) -> Any:
            return self.model(given | {"image": given["image"] / 16})

    pictures = batch | {"image": (batch["image"] * 16).round().to(torch.uint8)}
    found = explain(OfBytes(), pictures, "image", "digit")
    assert found is not None
    assert found[0].tolist() == said.tolist()
    assert all(np.isfinite(maps).all() and np.abs(maps).max() > 0 for maps in found[1].values())


def test_a_model_without_the_output_explains_nothing(explained: Any) -> None:
    assert explain(explained[0], explained[1], "image", "other") is None


def test_integrated_gradients_add_up_to_the_difference_of_the_logits(explained: Any) -> None:
    model, batch, said, maps = explained
    with torch.no_grad():
        there = model(batch)["digit"].output.numpy()
        black = model(batch | {"image": torch.zeros(4, 1, 8, 8)})["digit"].output.numpy()
    for place in range(4):
        expected = there[place, said[place]] - black[place, said[place]]
        assert maps["integrated-gradients"][place].sum() == pytest.approx(
            expected, abs=0.02 * float(abs(there).max())
        )


def test_the_methods_agree_with_captum(explained: Any) -> None:
    attributions = pytest.importorskip("captum.attr", reason="captum is not installed")
    model, batch, said, maps = explained

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, image: Any) -> Any:
            return self.inner({"image": image, "label": batch["label"][: len(image)]})[
                "digit"
            ].output

    whole, image, target = Logits().eval(), batch["image"], torch.from_numpy(said)
    expected = {
        "gradient": attributions.Saliency(whole).attribute(image, target, abs=False).sum(1),
        "guided-backpropagation": attributions.GuidedBackprop(whole)
        .attribute(image, target)
        .sum(1),
        "grad-cam": attributions.LayerAttribution.interpolate(
            attributions.LayerGradCam(whole, model.features[2]).attribute(
                image, target, relu_attributions=True
            ),
            (8, 8),
            "bilinear",
        )[:, 0],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(maps[name], values.detach().numpy(), atol=1e-5, err_msg=name)


def test_guided_back_propagation_sees_rectifiers_that_are_no_layers() -> None:
    class Doubled(torch.nn.Module):
        def forward(self, batch: dict[str, Any]) -> Any:
            x = batch["image"].flatten(1)
            return ClassificationOutput(
                torch.stack([-torch.relu(x).sum(1), torch.relu(x).sum(1)], 1), batch["label"]
            )

    batch = {"image": torch.tensor([[[[1.0, -1.0], [2.0, 3.0]]]]), "label": torch.tensor([0])}
    _, maps = explain(Doubled(), batch, "image", "", ["gradient", "guided-backpropagation"])  # type: ignore[misc]
    assert (
        maps["gradient"].tolist() == maps["guided-backpropagation"].tolist() == [[[1, 0], [1, 1]]]
    )
    batch["image"] = -batch["image"]  # the class 1 again, by a tie of one rectified value
    _, maps = explain(Doubled(), batch, "image", "", ["guided-backpropagation"])  # type: ignore[misc]
    assert maps["guided-backpropagation"].min() >= 0


def test_blurring_what_is_marked_takes_more_of_the_class_than_blurring_the_rest(
    explained: Any,
) -> None:
    model, batch, said, maps = explained
    image, marked = batch["image"], torch.from_numpy(maps["meaningful-perturbation"])[:, None]
    assert 0 <= marked.min() < marked.max() <= 1
    grey = image.mean((2, 3), keepdim=True)

    def chance(part: Any) -> Any:
        with torch.no_grad():
            logits = model(batch | {"image": image * (1 - part) + grey * part})["digit"].output
        return logits.softmax(1)[range(4), said].mean()

    flat = marked.flatten(1)
    most = (marked >= flat.quantile(0.6, 1)[:, None, None, None]).float()
    least = (marked <= flat.quantile(0.4, 1)[:, None, None, None]).float()
    assert chance(most) < chance(least) - 0.2


def test_explaining_changes_nothing(tmp_path: Path) -> None:
    watched, alone = digits.model(), digits.model()
    for model, callbacks in (
        (watched, [Explanations("image", "digit", 2), ProfilerTrace()]),
        (alone, []),
    ):
        Trainer(TrainerOptions(num_epochs=1), callbacks).fit(
            model, digits.sequences(64, 20), folder=tmp_path / "a", resume=False
        )
    assert toys.equal(toys.weights(watched), toys.weights(alone))


def test_a_profile_is_a_trace_and_a_table(tmp_path: Path) -> None:
    callbacks = [ProfilerTrace(skip=1, batches=2)]
    Trainer(TrainerOptions(num_epochs=1), callbacks).fit(
        toys.fresh(), toys.sequences(), folder=tmp_path
    )
    with gzip.open(tmp_path / "profile" / "trace.json.gz") as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert names.count("Optimizer.step#AdamW.step") == 2
    assert "aten::addmm" in (tmp_path / "tables" / "profile.txt").read_text()
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["trace.json.gz"]


def test_a_snapshot_holds_the_source_and_is_the_same_for_the_same(tmp_path: Path) -> None:
    source = tmp_path / "mine"
    for name in ("a.py", "b/c.py", ".git/d.py", "data.bin", "e.yaml"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    archives = []
    for folder in (tmp_path / "1", tmp_path / "2"):
        callbacks = [SourceSnapshot([source, source / "data.bin"])]
        Trainer(TrainerOptions(num_epochs=1), callbacks).fit(
            toys.fresh(), toys.sequences(), folder=folder
        )
        archives.append((folder / "source" / "source.zip").read_bytes())
    assert archives[0] == archives[1]
    with zipfile.ZipFile(tmp_path / "1" / "source" / "source.zip") as archive:
        assert archive.namelist() == ["0-mine/a.py", "0-mine/b/c.py", "0-mine/e.yaml", "1-data.bin"]
        assert archive.read("0-mine/b/c.py") == b"b/c.py"
