"""Names lead to classes, or to the nearest right name."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ComponentNotFound
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import FAMILIES, components, find
from nnpipe.core.runtime import Runtime
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.runtimes.onnxruntime import ONNXRuntime


def test_a_dotted_path_leads_to_its_class() -> None:
    assert find("nnpipe.datasets.digits.DigitsDataset", Dataset) is DigitsDataset


def test_a_short_name_leads_to_the_only_class_that_bears_it() -> None:
    assert find("ONNXRuntime", Runtime) is ONNXRuntime


@pytest.mark.parametrize(
    "wrong",
    [
        "nnpipe.runtimes.onnxruntime.OnnxRuntime",
        "nnpipe.runtime.onnxruntime.ONNXRuntime",
        "nnpipe.runtimes.onnx.ONNXRuntime",
        "runtimes.onnxruntime.ONNXRuntime",
        "ONNXRuntim",
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_right_one(wrong: str) -> None:
    with pytest.raises(
        ComponentNotFound, match=r"did you mean nnpipe\.runtimes\.onnxruntime\.ONNXRuntime\?"
    ):
        find(wrong, Runtime)


@pytest.mark.parametrize(
    "strange",
    ["", ".", "..", "a..b", ".a", "a.", "nnpipe.", "x y", "nnpipe.core.errors.NNPipeError"],
)
def test_a_strange_name_is_an_error_of_ours(strange: str) -> None:
    with pytest.raises(ComponentNotFound):
        find(strange, Runtime)


def test_a_module_that_is_not_found_is_told_with_where_to_put_it() -> None:
    with pytest.raises(
        ComponentNotFound,
        match=r"start nnpipe in the folder that holds my_own_things\.py, or name that",
    ):
        find("my_own_things.Data", Dataset)


def test_a_class_that_a_module_lacks_is_told_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    text = (
        "from nnpipe.core.runtime import Runtime\n\n\nclass Own(Runtime):\n    def _load(self, "
        "artifact): return None\n"
    )
    (tmp_path / "own_runtimes_here.py").write_text(text, "utf-8")
    importlib.invalidate_caches()
    with pytest.raises(ComponentNotFound, match=r"own_runtimes_here\.py has Own"):
        find("own_runtimes_here.Wrong", Runtime)
    with pytest.raises(ComponentNotFound, match=r"own_runtimes_here\.py has no Dataset"):
        find("own_runtimes_here.Wrong", Dataset)


def test_files_name_classes_that_the_program_itself_has_declared() -> None:
    from nnpipe.core.registry import map_names_to_classes

    class Declared(Runtime):
        """Of this test."""

        def _load(self, artifact):  # type: ignore[no-untyped-def]
            raise NotImplementedError

    class LiteRTRuntime(Declared):
        """Bears a name of nnpipe's."""

    found = map_names_to_classes(Runtime)
    assert found["Declared"] is Declared
    assert found["LiteRTRuntime"].__module__ == "nnpipe.runtimes.litert"
    assert found[LiteRTRuntime.get_dotted_path()] is LiteRTRuntime


def test_a_class_of_another_family_is_refused() -> None:
    with pytest.raises(ComponentNotFound, match=r"is not a Runtime"):
        find("nnpipe.datasets.digits.DigitsDataset", Runtime)


def test_a_base_class_is_refused() -> None:
    with pytest.raises(ComponentNotFound, match="a base to build on"):
        find("nnpipe.core.model.ModelWrapper", ModelWrapper)


def test_all_families_together_are_all_components() -> None:
    apart = {cls for base in FAMILIES.values() for cls in components(base)}
    assert apart == set(components(Component))
    assert len(apart) > 10


@pytest.mark.parametrize("base", [Component, Runtime, Dataset, DigitsDataset, ONNXRuntime])
def test_only_the_families_in_which_a_class_can_be_are_looked_through(
    base: type[Component],
) -> None:
    assert FAMILIES.find_families(base) == [
        f for f, root in FAMILIES.items() if issubclass(root, base) or issubclass(base, root)
    ]


def test_families_are_a_mapping_that_imports_a_base_when_it_is_asked_for() -> None:
    assert dict(FAMILIES)["runtimes"] is Runtime
    assert len(FAMILIES) == len([*FAMILIES]) == 10
    assert "datasets" in FAMILIES
    assert "nowhere" not in FAMILIES
    with pytest.raises(KeyError):
        FAMILIES["nowhere"]
    script = (
        "import sys; from nnpipe.core.registry import FAMILIES, find; from nnpipe.core.runtime "
        "import Runtime\n"
        "assert 'datasets' in list(FAMILIES)\n"
        "find('nnpipe.testing.fakes.FakeRuntime', Runtime)\n"
        "print(*(name for name in ('dataset', 'model', 'compiler') if f'nnpipe.core.{name}' in "
        "sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_every_component_says_what_it_is_and_how_to_get_what_it_needs() -> None:
    for cls in components(Component):
        assert cls.summary().endswith("."), cls
        assert not cls.requires or cls.install, cls


def test_a_plugin_that_is_installed_meanwhile_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = components(Runtime)
    text = (
        "from nnpipe.core.runtime import Runtime\n\n\n"
        "class LateRuntime(Runtime):\n"
        "    def _load(self, artifact): raise NotImplementedError\n"
    )
    (tmp_path / "late_plugin.py").write_text(text, "utf-8")
    installed = tmp_path / "late_plugin-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: late-plugin\nVersion: 1.0\n", "utf-8"
    )
    (installed / "entry_points.txt").write_text("[nnpipe.plugins]\nlate = late_plugin\n", "utf-8")
    importlib.invalidate_caches()
    late = [cls.get_dotted_path() for cls in components(Runtime) if cls not in before]
    assert late == ["late_plugin.LateRuntime"]


def test_a_name_that_was_found_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from nnpipe.core import registry
    from nnpipe.runtimes.litert import LiteRTRuntime

    assert find("LiteRTRuntime", Runtime) is LiteRTRuntime

    def looking(*_: object) -> None:
        raise AssertionError("all modules are looked through again")

    with monkeypatch.context() as patched:
        patched.setattr(registry, "_search_modules", looking)
        assert find("LiteRTRuntime", Runtime) is LiteRTRuntime


def test_a_name_that_a_plugin_bears_too_since_is_no_longer_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find("LiteRTRuntime", Runtime)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = (
        "from nnpipe.core.runtime import Runtime\n\n\n"
        "class LiteRTRuntime(Runtime):\n"
        "    def _load(self, artifact): raise NotImplementedError\n"
    )
    (tmp_path / "rival_plugin.py").write_text(text, "utf-8")
    installed = tmp_path / "rival_plugin-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: rival-plugin\nVersion: 1.0\n", "utf-8"
    )
    (installed / "entry_points.txt").write_text("[nnpipe.plugins]\nrival = rival_plugin\n", "utf-8")
    importlib.invalidate_caches()
    with pytest.raises(ComponentNotFound, match="give the whole path"):
        find("LiteRTRuntime", Runtime)


def test_names_of_before_lead_to_their_classes() -> None:
    from nnpipe.core.onnx_conversion import ONNXConversion
    from nnpipe.onnxconverters.keras import KerasONNXConversion
    from nnpipe.runtimes.litert import LiteRTRuntime

    assert find("TFLiteRuntime", Runtime) is LiteRTRuntime
    assert find("TensorFlowONNXConversion", ONNXConversion) is KerasONNXConversion
    with pytest.raises(
        ComponentNotFound, match=r"it is nnpipe\.runtimes\.litert\.LiteRTRuntime here"
    ):
        find("nnpipe.runtimes.tflite.TFLiteRuntime", Runtime)
    with pytest.raises(
        ComponentNotFound, match=r"it is nnpipe\.onnxconverters\.keras\.KerasONNXConversion here"
    ):
        find("nnpipe.onnxconverters.tensorflow.TensorFlowONNXConversion", ONNXConversion)
    with pytest.raises(ComponentNotFound, match=r"did you mean nnpipe\.datasets\.pets\.PetDataset"):
        find("nnpipe.datasets.pet_dataset.PetDataset", Dataset)


@pytest.mark.parametrize(
    "name", ["ImageNetDataset", "VisualWakeWordsDataset", "kenning.datasets.x.ImageNetDataset"]
)
def test_what_is_done_in_another_way_here_is_answered(name: str) -> None:
    with pytest.raises(
        ComponentNotFound, match=r"is called .* here: use ImageFolderDataset with --dataset-root"
    ) as caught:
        find(name, Dataset)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["OpenImagesDatasetV6", "COCODataset2017", "MagicWandDataset", "AnomalyDetectionDataset"],
)
def test_data_sets_of_other_systems_are_found_by_their_names_there(name: str) -> None:
    assert issubclass(find(name, Dataset), Dataset)


def test_no_two_classes_of_a_family_claim_one_name() -> None:
    for base in FAMILIES.values():
        found = components(base)
        claimed = [name for cls in found for name in cls.formerly]
        assert len(set(claimed)) == len(claimed)
        assert not set(claimed) & {cls.__name__ for cls in found}
