from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences import map as map_module
from nnpipe.training.sequences._batch_work import TransformError, WorkerError
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import ClassBalancedSampler, RandomSampler

sys.path.append(str(Path(__file__).parent))
import pipeline_functions as functions

SOURCE = Path(__file__).resolve().parents[3] / "src"


class Interrupted:
    """Iterates a sequence whose source is interrupted, as by Ctrl-C, once."""

    def __init__(self, sequence):
        self.sequence = sequence

    def __iter__(self):
        whole = self.sequence.source.stream

        def stream(epoch, position=None):
            for number, item in enumerate(whole(epoch, position)):
                if number == 3:
                    del self.sequence.source.stream
                    raise KeyboardInterrupt
                yield item

        self.sequence.source.stream = stream
        return iter(self.sequence)


def source(samples=40, batch=8, sampler=None):
    inputs = np.arange(samples, dtype=np.float64).reshape(samples, 1) * np.ones((1, 4))
    return ArraySequence(
        {"input": inputs, "target": np.arange(samples) % 3},
        batch=batch,
        sampler=sampler or RandomSampler(),
        seed=1,
    )


def same(one, other):
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert left.keys() == right.keys()
        for name, value in left.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, right[name])
            else:
                assert value == right[name]


def gone(pids, seconds=10.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        alive = [
            pid
            for pid in pids
            if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"
        ]
        if not alive:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_any_number_of_workers_gives_the_same_bits_in_the_same_order(start):
    wanted = list(
        source().map(functions.noisy, seed=5).map(functions.noisy_batch, each="batch", seed=5)
    )
    with source().map(functions.noisy, workers=2, seed=5, start=start) as first:
        chain = first.map(functions.noisy_batch, each="batch", seed=5)
        same(wanted, list(chain))
        chain.set_epoch(1)
        assert any(
            (a["input"] != b["input"]).any() for a, b in zip(wanted, list(chain), strict=True)
        )


def test_order_holds_where_samples_take_different_times():
    with source().map(functions.uneven, workers=2, prefetch=3) as sequence:
        batches = list(sequence)
    assert [b["sample_id"].tolist() for b in batches] == [b["sample_id"].tolist() for b in source()]
    assert len(set(np.concatenate([batch["pid"] for batch in batches]))) == 2
    assert all(batch["text"] == list(map(str, batch["sample_id"])) for batch in batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_continues_amid_an_epoch_to_the_bit(workers):
    def chain():
        return source().map(functions.noisy, workers=workers, seed=5).rebatch(3)

    with chain() as sequence:
        sequence.set_epoch(4)
        whole = list(sequence)
        for done in (0, 1, 2, 5, len(whole)):
            batches = iter(sequence)
            for _ in range(done):
                next(batches)
            state = sequence.state_dict()
            batches.close()
            with chain() as other:
                other.load_state_dict(state)
                same(whole[done:], list(other))


def test_two_maps_with_one_seed_draw_differently():
    once = np.concatenate([b["input"] for b in source().map(functions.noisy, seed=5)])
    plain = np.concatenate([b["input"] for b in source()])
    twice = np.concatenate(
        [b["input"] for b in source().map(functions.noisy, seed=5).map(functions.noisy, seed=5)]
    )
    assert not np.allclose(twice - once, once - plain)


def test_a_repeated_sample_is_augmented_differently_each_time():
    sequence = source(sampler=ClassBalancedSampler(samples=120), batch=120).map(functions.noisy)
    (batch,) = sequence
    assert len(np.unique(batch["input"][:, 0])) == 120


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("function", [functions.forgets_ids, functions.lies_about_ids])
def test_ids_survive_what_a_function_does_to_them(workers, function):
    with source().map(function, workers=workers) as sequence:
        for batch in sequence:
            assert (batch["sample_id"] == batch["input"][:, 0]).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_names_the_sample(workers):
    with source().map(functions.fails_for_17, workers=workers) as sequence:
        sequence.set_epoch(3)
        with pytest.raises(
            TransformError,
            match="fails_for_17 failed for sample 17 in epoch 3: ValueError: no good",
        ) as e:
            list(sequence)
        assert e.value.sample_id == 17
        assert "raise ValueError" in e.value.trace
    with source().map(functions.batch_fails_for_17, workers=workers, each="batch") as sequence:
        with pytest.raises(TransformError) as e:
            list(sequence)
        assert e.value.sample_id is None
        assert 17 in e.value.sample_ids


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_after_all_batches_before_it(workers):
    with source(sampler=None).map(functions.fails_for_17, workers=workers) as sequence:
        before = [17 in batch["sample_id"] for batch in source()].index(True)
        batches = iter(sequence)
        for _ in range(before):
            next(batches)
        with pytest.raises(TransformError):
            next(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_fail_may_be_left_out(workers, caplog):
    with source().map(functions.fails_for_17, workers=workers, errors="drop") as sequence:
        seen = np.concatenate([batch["sample_id"] for batch in sequence])
        assert sorted(seen) == [number for number in range(40) if number != 17]
        found = sequence.diagnosis()
    assert (found.dropped, found.dropped_ids) == (1, (17,))
    assert "sample 17" in caplog.text


def test_a_batch_of_which_nothing_is_left_does_not_come():
    sequence = source(batch=1).map(functions.fails_for_17, errors="drop")
    assert [len(batch["sample_id"]) for batch in sequence] == [1] * 39


@pytest.mark.parametrize(
    ("function", "workers", "said"),
    [
        (functions.not_a_dictionary, 0, "sample .*not a dictionary"),
        (functions.cannot_travel, 1, "cannot be sent between processes"),
    ],
)
def test_results_of_no_use_are_refused(function, workers, said):
    with (
        source().map(function, workers=workers) as sequence,
        pytest.raises(TransformError, match=said),
    ):
        list(sequence)


def test_results_may_grow_beyond_what_was_shared():
    with source(200, batch=50).map(functions.grows, workers=1) as sequence:
        for batch in sequence:
            assert all(
                (row == number).all()
                for row, number in zip(batch["input"], batch["sample_id"], strict=True)
            )


def test_a_function_that_no_worker_can_get_is_refused_before_any_starts():
    with pytest.raises(ConfigError, match="top level of a module"):
        list(source().map(lambda sample, random: sample, workers=1))


def test_a_worker_that_cannot_start_says_why():
    with source().map(functions.CannotArrive(), workers=1) as sequence:
        with pytest.raises(WorkerError, match="could not start: OSError: no licence"):
            list(sequence)


@pytest.mark.parametrize(
    ("function", "said"), [(functions.dies, "SIGKILL"), (functions.leaves, "status 3")]
)
def test_a_worker_that_dies_names_the_samples_in_its_hands(function, said):
    with (
        source().map(function, workers=2) as sequence,
        pytest.raises(WorkerError, match=said) as error,
    ):
        list(sequence)
    assert error.value.sample_ids


def test_after_an_error_workers_start_anew():
    with source().map(functions.noisy, workers=2) as sequence:
        batches = iter(sequence)
        next(batches)
        os.kill(sequence.pids[0], signal.SIGKILL)
        with pytest.raises(WorkerError):
            list(batches)
        assert len(list(sequence)) == 5


@pytest.mark.parametrize("function", [functions.stuck, functions.stuck_in_c])
def test_a_stuck_worker_is_ended_by_a_time_limit(function):
    with (
        source().map(function, workers=1, time_limit=0.5) as sequence,
        pytest.raises(WorkerError, match=r"0\.5 s"),
    ):
        list(sequence)


@pytest.mark.parametrize("function", [functions.noisy, functions.stuck, functions.stuck_in_c])
def test_closing_ends_the_processes_with_jobs_queued(function):
    sequence = source().map(function, workers=2, prefetch=4, time_limit=0.3)
    batches = iter(sequence)
    pids = []

    def look():
        while not pids:
            pids.extend(sequence.pids)

    thread = threading.Thread(target=look)
    thread.start()
    with contextlib.suppress(WorkerError):
        next(batches)
    thread.join()
    sequence.close()
    assert len(pids) == 2
    assert gone(pids)
    sequence.close()


def test_closing_from_another_thread_wakes_who_waits():
    sequence = source().map(functions.stuck, workers=1)
    closer = threading.Timer(0.5, sequence.close)
    closer.start()
    with pytest.raises(WorkerError, match="closed"):
        next(iter(sequence))
    closer.join()


def test_closing_while_the_processes_are_started(monkeypatch):
    sequence = source().map(functions.noisy, workers=2)
    started = []

    class Closed(map_module.Pool):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            started.extend(self.pids)
            sequence.close()

    monkeypatch.setattr(map_module, "Pool", Closed)
    with pytest.raises(WorkerError, match="closed"):
        next(iter(sequence))
    assert gone(started)


def test_closing_where_all_workers_are_dead():
    sequence = source().map(functions.noisy, workers=2)
    batches = iter(sequence)
    next(batches)
    pids = sequence.pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    sequence.close()
    assert gone(pids)


def test_an_iteration_that_was_given_up_does_not_disturb_the_next():
    with source().map(functions.uneven, workers=2) as sequence:
        wanted = [batch["sample_id"].tolist() for batch in source()]
        for _ in range(3):
            batches = iter(sequence)
            next(batches)
            del batches
        assert [batch["sample_id"].tolist() for batch in sequence] == wanted


def test_after_ctrl_c_in_the_midst_workers_start_anew():
    with source().map(functions.uneven, workers=2) as sequence:
        next(iter(sequence))
        pids = sequence.pids
        with pytest.raises(KeyboardInterrupt):
            for _ in Interrupted(sequence):
                pass
        assert gone(pids)
        assert len(list(sequence)) == 5


def test_a_forgotten_sequence_takes_its_workers_along():
    sequence = source().map(functions.noisy, workers=1)
    list(sequence)
    pids = sequence.pids
    del sequence
    assert gone(pids)


SCRIPT = """
    import sys, time
    sys.path.append({folder!r})
    import numpy as np
    import pipeline_functions as functions
    from nnpipe.training.sequences.array import ArraySequence

    if __name__ == "__main__":
        sequence = ArraySequence({{"input": np.zeros((64, 4))}}, batch=4).map(functions.{function}, workers=2)
        if {reservoir}:
            sequence = sequence.reservoir(16, 4, batches=10**6)
        batches = iter(sequence)
        mapped = sequence.source if {reservoir} else sequence
        if {function!r} == "noisy":
            next(batches)
        else:
            import threading
            threading.Thread(target=lambda: next(batches), daemon=True).start()
            while len(mapped.pids) < 2:
                time.sleep(0.01)
        time.sleep(0.5)
        print(*mapped.pids, flush=True)
        {then}
"""


def started(tmp_path, function, then, reservoir=False):
    script = tmp_path / "script.py"
    folder = str(Path(__file__).parent)
    text = textwrap.dedent(SCRIPT).format(
        folder=folder, function=function, then=then, reservoir=reservoir
    )
    script.write_text(text, "utf-8")
    process = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 2, process.communicate()
    return process, pids


@pytest.mark.parametrize(
    ("function", "then", "number", "reservoir"),
    [
        ("noisy", "time.sleep(1000)", signal.SIGINT, False),
        ("stuck_in_c", "time.sleep(1000)", signal.SIGKILL, False),
        pytest.param("stuck", "time.sleep(1000)", signal.SIGTERM, False, marks=pytest.mark.slow),
        pytest.param(
            "noisy",
            "raise RuntimeError('an error of the script')",
            None,
            False,
            marks=pytest.mark.slow,
        ),
        ("stuck", "raise RuntimeError('an error of the script')", None, False),
        ("noisy", "pass", None, True),
        pytest.param("noisy", "time.sleep(1000)", signal.SIGINT, True, marks=pytest.mark.slow),
    ],
)
def test_no_process_is_left_behind(tmp_path, function, then, number, reservoir):
    process, pids = started(tmp_path, function, then, reservoir)
    try:
        if number == signal.SIGINT:  # as a terminal does it
            os.killpg(process.pid, number)
        elif number is not None:
            process.send_signal(number)
        process.communicate(timeout=30)
        assert gone(pids)
    finally:
        for pid in [process.pid, *pids]:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"each": "epoch"}, "each"),
        ({"errors": "ignore"}, "errors"),
        ({"start": "fork"}, "start"),
        ({"workers": -1}, "workers"),
        ({"prefetch": 0}, "prefetch"),
        ({"time_limit": 0}, "time_limit"),
    ],
)
def test_arguments_that_cannot_work_are_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        source().map(functions.noisy, **changes)


def test_descriptors_are_given_back():
    def used():
        return len(list(Path("/proc/self/fd").iterdir()))

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc here")
    with source().map(functions.noisy, workers=1) as sequence:
        list(sequence)
    before = used()
    for _ in range(3):
        with source().map(functions.noisy, workers=1) as sequence:
            list(sequence)
    assert used() <= before + 1
    assert not multiprocessing.active_children()
