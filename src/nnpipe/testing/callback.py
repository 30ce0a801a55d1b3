"""The contract of callbacks."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.errors import ConfigError
from nnpipe.testing.discoverable import DiscoverableContract
from nnpipe.testing.trainings import (
    Interrupted,
    Interruption,
    WatchedTraining,
    list_files,
    run_keras_training,
    run_torch_training,
    run_unwatched,
)
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import check_frameworks

FRAMEWORKS = ("torch", "keras")


class CallbackContract(DiscoverableContract):
    """What every callback must do; subclass it and define the fixture ``callback``.

    ``callback``
        A callback that has not observed a training yet.
    ``training``
        Only if the callback needs a special training: its model and data, as a
        :class:`nnpipe.testing.trainings.WatchedTraining`.  By default samples have a feature ``x``
        ``(n, 8)`` and a ``label`` ``(n,)`` of three classes, and the model's output is named
        ``kind``.

    It is tested in trainings with the frameworks that it supports; a framework that is not
    installed is skipped.
    """

    @pytest.fixture
    def callback(self) -> Callback:
        raise NotImplementedError("a subclass of CallbackContract gives the fixture `callback`")

    @pytest.fixture
    def training(self) -> WatchedTraining:
        return WatchedTraining()

    @pytest.fixture
    def discovered(self, callback: Callback) -> type[Discoverable]:
        return type(callback)

    def test_it_says_whose_trainings_it_can_look_on(self, callback: Callback) -> None:
        assert callback.frameworks
        assert set(callback.frameworks) <= set(FRAMEWORKS)
        check_frameworks([callback], callback.frameworks[0])
        for framework in set(FRAMEWORKS) - set(callback.frameworks):
            with pytest.raises(ConfigError, match=type(callback).__name__):
                check_frameworks([callback], framework)

    def test_its_docstring_says_what_its_options_mean(self, callback: Callback) -> None:
        lacking = [option.name for option in type(callback).options() if not option.help]
        assert lacking == [], "describe them in the docstring's section Parameters"

    def test_it_can_be_closed_before_a_training_and_twice(self, callback: Callback) -> None:
        callback.close()
        callback.close()

    def test_a_training_with_pytorch_is_the_same_with_it_and_files_lie_in_its_folder(
        self,
        callback: Callback,
        training: WatchedTraining,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        _skip_unless_supported(callback, "torch")
        here = tmp_path / "here"
        here.mkdir()
        monkeypatch.chdir(here)
        alone = run_unwatched(training)
        found = run_torch_training(training, tmp_path / "run", [callback])
        assert [part for part in alone if found[part] != alone[part]] == []
        assert list_files(here) == []

    def test_a_training_that_was_interrupted_goes_on_with_it(
        self, callback: Callback, training: WatchedTraining, tmp_path: Path
    ) -> None:
        _skip_unless_supported(callback, "torch")
        again, alone = copy.deepcopy(callback), run_unwatched(training)
        with pytest.raises(Interrupted):
            run_torch_training(training, tmp_path / "run", [callback, Interruption(2)])
        found = run_torch_training(training, tmp_path / "run", [again, Interruption(0)])
        assert [part for part in ("weights", "history") if found[part] != alone[part]] == []

    def test_a_training_with_keras_is_the_same_with_it(
        self, callback: Callback, tmp_path: Path
    ) -> None:
        _skip_unless_supported(callback, "keras")
        alone = run_keras_training(tmp_path / "alone", [])
        found = run_keras_training(tmp_path / "watched", [callback])
        assert [part for part in alone if found[part] != alone[part]] == []


def _skip_unless_supported(callback: Callback, framework: str) -> None:
    if framework not in callback.frameworks:
        pytest.skip(f"supports only {' and '.join(callback.frameworks)}")
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    absent = type(callback).missing()
    if absent:
        pytest.skip(f"needs {', '.join(absent)}, which is not installed")
