from __future__ import annotations

import numpy as np

from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.diagnosis import Meter, StageFigures, diagnose

S = 10**9


def advice(stall, step, *stages):
    meter = Meter(batches=10, samples=1000, stall_ns=int(stall * S), step_ns=int(step * S))
    return " ".join(diagnose(meter, stages).advice)


def mapped(busy, wall=0.0, workers=0, **more):
    return StageFigures(
        name="augment",
        workers=workers,
        busy_ns=int(busy * S),
        wall_ns=int(wall * S),
        samples=1000,
        **more,
    )


def test_counts_come_from_the_consumers_end():
    sequence = ArraySequence({"input": np.zeros(10)}, batch=4)
    list(sequence)
    list(sequence)
    found = sequence.diagnosis()
    assert (found.batches, found.samples, found.workers, found.worker_efficiency) == (
        6,
        20,
        0,
        None,
    )
    assert "20 samples in 6 batches" in str(found)


def test_nothing_read_is_said():
    assert diagnose(Meter(), []).advice == ("Nothing was read yet.",)


def test_input_that_keeps_up_is_left_alone():
    assert advice(0.01, 10) == "The input keeps up: the consumer hardly waited."


def test_a_function_in_the_consumers_process_gets_workers():
    assert "augment takes 4 ms a sample" in advice(4, 1, mapped(4))
    assert "workers=4" in advice(4, 1, mapped(4))


def test_busy_workers_get_company():
    assert "use 6 workers" in advice(4, 2, mapped(11.9, 6, 2))


def test_a_consumer_that_does_nothing_itself_is_given_no_number():
    assert "use more workers" in advice(6, 0.001, mapped(11.9, 6, 2))


def test_idle_workers_that_stall_wait_for_something_else():
    assert "busy for only 20%" in advice(4, 2, mapped(2.4, 6, 2))


def test_workers_that_have_nothing_to_do_may_go():
    assert "1 of the 4 workers would do" in advice(0, 10, mapped(4, 10, 4))


def test_a_slow_source_is_named():
    assert "the source does" in advice(5, 5)
    assert "waiting is for the source" in advice(5, 5, mapped(0.1))


def test_reuse_and_dropped_samples_are_told():
    assert "each sample 5 times" in advice(0, 10, StageFigures(fresh=100, delivered=500))
    assert "3 samples were left out" in advice(0, 10, mapped(1, dropped=3))


def test_efficiency_is_over_all_workers():
    found = diagnose(Meter(batches=1), [mapped(6, 10, 1), mapped(2, 10, 3)])
    assert found.workers == 4
    assert found.worker_efficiency == 8 / 40
