"""What the result of a search for mixed precision says of the loss on samples that the search
never saw.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.task import get_task
from nnpipe.workflows.mixing.float_search import MixStep
from nnpipe.workflows.mixing.mix_result import FLOATS, MIXED, MixResult


def judged(wrong: int, samples: int) -> Any:
    predicted = np.zeros(samples, np.int64)
    predicted[:wrong] = 1
    arrays = {"truth": np.zeros(samples, np.int64), "predicted": predicted}
    return SimpleNamespace(evaluation=Evaluation("classification", arrays, ("a", "b")))


def result(wrong: int, samples: int, max_loss: float, chosen: bool = True) -> MixResult:
    runs = {FLOATS: judged(0, samples), MIXED: judged(wrong, samples)}
    comparison: Any = SimpleNamespace(comparison=SimpleNamespace(run_of=runs.__getitem__))
    step = MixStep(("x",), 0.0, 0.0, 0.0, 0.5, (0.4, 0.6))
    accuracy = get_task("classification").metric("accuracy")
    return MixResult(
        accuracy, max_loss, (), (step,), step if chosen else None, 10, comparison, None
    )


@pytest.mark.parametrize(
    ("wrong", "samples", "max_loss", "verdict"),
    [
        (0, 2000, 0.01, "proven"),
        (2, 100, 0.01, "not proven"),
        (100, 1000, 0.01, "refuted"),
        (5, 1000, 0.02, "proven"),
    ],
)
def test_a_loss_is_proven_only_if_its_whole_interval_is_allowed(
    wrong: int, samples: int, max_loss: float, verdict: str
) -> None:
    found = result(wrong, samples, max_loss)
    assert found.title == MIXED
    assert found.loss[0] == pytest.approx(wrong / samples)
    assert found.loss[1] <= found.loss[0] <= found.loss[2]
    assert found.verdict == verdict


def test_without_a_chosen_model_nothing_is_proven() -> None:
    assert result(0, 100, 0.5, chosen=False).verdict == "none"
