"""Two processes, started by ``torchrun``, learn what one does."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import spread
import training_toys as toys

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.state_file import read_state
from nnpipe.training._checkpointing import select_process_state
from nnpipe.training.checkpoints import load_weights
from nnpipe.training.distributed import check_sharded, gather_shards
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer

HERE = Path(__file__).parent


def distance(found: Any, expected: Any) -> float:
    """Return by how much a weight differs at most."""
    return max(
        float((found["model"][name] - value).abs().max())
        for name, value in expected["model"].items()
    )


@pytest.mark.slow
def test_two_processes_learn_what_one_does_and_resume_to_the_bit(tmp_path: Path) -> None:
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    (tmp_path / "one").mkdir()
    with torch.random.fork_rng():
        spread.main(tmp_path / "one")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    answer = subprocess.run(
        [
            sys.executable,
            *torchrun,
            str(HERE / "spread.py"),
            str(tmp_path / "two"),
            str(tmp_path / "one"),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
    )
    assert answer.returncode == 0, answer.stderr
    first, second = (
        read_state(tmp_path / "two" / f"result-{rank}.state", kind="result") for rank in range(2)
    )
    alone = read_state(tmp_path / "one" / "result-0.state", kind="result")
    assert alone["plain"]["history"][-1]["step"] == first["plain"]["history"][-1]["step"] == 12
    for kind in ("plain", "idle", "stepped", "sharded"):
        assert distance(first[kind], alone[kind]) <= 1e-6, kind
    assert first["evaluated"] == second["evaluated"] == pytest.approx(alone["evaluated"], abs=1e-6)
    assert 0 < first["evaluated"]["blobs/test/output/roc_auc"] < 1
    for split in ("test", "single"):
        ours, theirs = (
            first["evaluated"][f"blobs/{split}/output/{one}"]
            for one in ("roc_auc", "MulticlassAUROC")
        )
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert {"blobs/train/kind/MulticlassAUROC", "blobs/test/kind/MulticlassF1Score/2"} <= set(
        first["idle"]["history"][-1]
    )
    for kind in ("plain", "idle"):
        for row, expected in zip(first[kind]["history"], alone[kind]["history"], strict=True):
            assert row == pytest.approx(expected, abs=1e-6)
    # One process goes on with what two have left, and two with what one has left.
    with torch.random.fork_rng():
        shrunk = {
            kind: spread.train(tmp_path / "two" / f"left{kind}", **asked)
            for kind, asked in (("", {}), ("-sharded", spread.SHARDED))
        }
    for kind, expected in (("", alone["plain"]), ("-sharded", alone["sharded"])):
        for found in (shrunk[kind], first[f"grown{kind}"], second[f"grown{kind}"]):
            assert distance(found, expected) <= 1e-6
            assert found["history"] == [pytest.approx(row, abs=1e-6) for row in expected["history"]]
    # Files of divided weights are read as all others are.
    model = spread.Plain()
    load_weights(tmp_path / "two" / "sharded" / "checkpoints" / "last.state", model)
    assert toys.equal(toys.weights(model), first["sharded"]["model"])
    for one, other in (
        (first["plain"], second["plain"]),
        (first["dropout"], second["dropout"]),
        (first["resumed"], first["dropout"]),
        (second["resumed"], second["dropout"]),
        (alone["resumed"], alone["dropout"]),
        (first["again"], first["sharded"]),
        (second["again"], second["sharded"]),
        (second["sharded"], first["sharded"]),
    ):
        assert toys.equal(one["model"], other["model"])
        assert one["history"] == other["history"]
    # Each process draws numbers of its own for its samples.
    assert not toys.equal(first["dropout"]["model"], alone["dropout"]["model"])


@pytest.mark.parametrize("reduces", [True, False], ids=["sums", "means"])
@pytest.mark.parametrize(("before", "world"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_gradients_that_wait_are_divided_over_another_number_of_processes(
    before: int, world: int, reduces: bool
) -> None:
    parts = [torch.full((2,), 3.0 * rank + 1) for rank in range(before)]
    total = sum(parts)
    shared = before > 1 and not reduces

    def state(rank: int) -> dict[str, Any]:
        gradient = total / before if shared else parts[rank]
        waiting = {
            "batches": 2,
            "samples": 10 + rank,
            "gradients": {"0": gradient},
            "shared": shared,
        }
        return {"random": {"of": rank}, "tallies": {}, "gradients": {"optimiser": waiting}}

    saved = [state(rank) for rank in range(before)]
    taken = [
        select_process_state(saved, rank, world, reduces and world > 1) for rank in range(world)
    ]
    waiting = [one.gradients["optimiser"] for one in taken]
    zero = torch.zeros(2)
    found = [one["gradients"].get("0", zero) for one in waiting]
    if world > 1 and not reduces:  # each has the mean over processes
        found = [sum(found)] if all(torch.equal(one, found[0]) for one in found) else [zero]
    assert torch.allclose(sum(found), total)
    assert sum(one["samples"] for one in waiting) == sum(10 + rank for rank in range(before))
    assert {one["batches"] for one in waiting} == {2}
    assert [one.random for one in taken] == [
        {"of": n} if n < before else None for n in range(world)
    ]
    assert taken[0].tallies == [{}] * before


def test_what_cannot_be_divided_over_processes_is_refused() -> None:
    own = {"random": {}, "tallies": {"d/train": {"/whole": {"objects": {"label/auroc": {}}}}}}
    with pytest.raises(
        ConfigError,
        match="objects as of torchmetrics, and was stopped within an epoch by 2 processes",
    ):
        select_process_state([own, own], 0, 1, False)
    with pytest.raises(ConfigError, match="shard: Net has no layer 'lay'; did you mean layers"):
        Trainer(TrainerOptions(num_epochs=1, shard=("lay",))).fit(toys.fresh(), toys.sequences())
    with pytest.raises(ConfigError, match="float16; use bfloat16"):
        TrainerOptions(shard=("*",), precision="float16")
    with pytest.raises(ConfigError, match="one optimiser for all weights"):
        check_sharded((), {}, None)
    with pytest.raises(ConfigError, match=r"give callbacks=\(\)"):
        check_sharded((object(),), None, None)


def test_what_is_not_divided_is_whole_as_it_is() -> None:
    state = {"list": [1, {"weight": torch.ones(2)}], "text": "a"}
    assert str(gather_shards(state, False)) == str(state)
