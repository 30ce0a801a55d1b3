from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.training.sequences._batch_work import TransformError
from nnpipe.training.sequences.array import ArraySequence

sys.path.append(str(Path(__file__).parent))
import pipeline_functions as functions


def source(samples=64, batch=8):
    return ArraySequence(
        {"input": np.arange(samples, dtype=np.float64), "text": list(map(str, range(samples)))},
        batch=batch,
    )


def test_batches_keep_what_belongs_together():
    with source().reservoir(32, 12, batches=30) as sequence:
        batches = list(sequence)
    assert len(batches) == len(sequence) == 30
    for batch in batches:
        assert len(batch["sample_id"]) == 12
        assert (batch["input"] == batch["sample_id"]).all()
        assert batch["text"] == list(map(str, batch["sample_id"]))


def test_an_epoch_is_as_long_as_the_source_unless_told_otherwise():
    assert len(source().reservoir(32, 10)) == 7


class Slow(ArraySequence):
    """Gives a batch whenever it is allowed to."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.allowed = threading.Semaphore(0)

    def stream(self, epoch, position=None):
        for item in super().stream(epoch, position):
            self.allowed.acquire()
            yield item


def test_a_slow_source_does_not_stall_the_consumer_and_the_reuse_is_told():
    slow = Slow({"input": np.arange(64.0)}, batch=8)
    slow.allowed.release(2)
    sequence = slow.reservoir(16, 8, batches=50, fill=16)
    seen = Counter(number for batch in sequence for number in batch["sample_id"].tolist())
    assert set(seen) == set(range(16))
    assert min(seen.values()) >= 5  # drawn at random, about 25 times each
    found = sequence.diagnosis()
    assert found.reuse == 50 * 8 / 16
    assert any("fresh" in sentence for sentence in found.advice)
    slow.allowed.release(100)
    sequence.close()


def test_new_samples_come_at_once_and_replace_the_oldest():
    slow = Slow({"input": np.arange(64.0)}, batch=8)
    slow.allowed.release(2)
    sequence = slow.reservoir(16, 8, batches=10**6, fill=16)
    batches = iter(sequence)
    assert next(batches)["sample_id"].tolist() == list(range(8))
    assert next(batches)["sample_id"].tolist() == list(range(8, 16))
    slow.allowed.release(1)
    batch = next(batches)
    while 16 not in batch["sample_id"]:
        batch = next(batches)
    assert batch["sample_id"].tolist() == list(range(16, 24))
    for _ in range(50):
        assert min(next(batches)["sample_id"]) >= 8
    slow.allowed.release(100)
    sequence.close()


def test_nothing_is_handed_out_twice_where_the_source_is_fast():
    with source().reservoir(64, 4, batches=48, fill=64) as sequence:
        seen = []
        for batch in sequence:
            seen += batch["sample_id"].tolist()
            while sequence._stock is not None and len(sequence._stock._unseen) < 4:
                time.sleep(0.001)
        assert seen == list(range(64)) * 3
        assert sequence.diagnosis().reuse == 1


def test_a_function_that_raises_stops_the_iteration_with_the_sample():
    with (
        source().map(functions.fails_for_17, workers=1).reservoir(16, 4, batches=10**6) as sequence
    ):
        with pytest.raises(TransformError, match="sample 17"):
            for _ in sequence:
                pass


def test_closing_ends_a_thread_that_waits_for_a_stuck_worker():
    sequence = source().map(functions.stuck, workers=2).reservoir(16, 4)
    closer = threading.Timer(0.3, sequence.close)
    closer.start()
    with pytest.raises(TrainingError, match="closed"):
        next(iter(sequence))
    closer.join()
    assert not [thread for thread in threading.enumerate() if thread.name == "reservoir"]


def test_closing_ends_a_thread_that_waits_for_place():
    sequence = source().map(functions.noisy_scalar, workers=2).reservoir(16, 4)
    next(iter(sequence))
    sequence.close()
    sequence.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "reservoir"]
    assert len(list(sequence)) == 16
    sequence.close()


def test_shapes_that_change_are_refused():
    rows = [np.zeros(2), np.zeros(2), np.zeros(3), np.zeros(3)]
    with ArraySequence({"input": rows}, batch=2).collate().reservoir(4, 4) as sequence:
        with pytest.raises(ConfigError, match=r"\(2,\)"):
            next(iter(sequence))


def test_arguments_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="larger"):
        source().reservoir(8, 16)
    with pytest.raises(ConfigError, match="batches"):
        source().reservoir(8, 4, batches=0)


def test_it_says_that_it_cannot_be_repeated():
    assert source().map(functions.noisy).rebatch(3).exact
    assert not source().reservoir(8, 4).rebatch(3).exact
