"""A session records what it does and goes on after any end as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.provenance import CURRENT_FOLDER
from nnpipe.experiment.session import HISTORY, STATE, Session
from nnpipe.experiment.triggers import CallbackFailed

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

WALK = '''
import time
import numpy as np
from nnpipe.experiment.module import Module
from nnpipe.experiment.state import State


class Walk(Module):
    """Takes random steps, with numpy's generator as part of the state."""

    def __init__(self, steps, size=1.0, pause=0.0, fail_at=-1):
        self.steps, self.size, self.pause, self.fail_at = steps, size, pause, fail_at
        self.state = State(step=0, place=np.zeros(3), generator=np.random.PCG64(1).state)

    def __len__(self):
        return self.steps

    def __call__(self, session):
        if self.state.step == self.steps:
            return None
        if self.state.step == self.fail_at:
            raise ZeroDivisionError("the floor ends here")
        time.sleep(self.pause)
        bits = np.random.PCG64(1)
        bits.state = self.state.generator
        self.state.place = self.state.place + self.size * np.random.Generator(bits).normal(size=3)
        self.state.generator = bits.state
        self.state.step += 1
        session.statistics.add("far", np.linalg.norm(self.state.place))
        return {"step": self.state.step, "x": float(self.state.place[0])}
'''


@pytest.fixture
def walks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "walking_for_sessions.py").write_text(WALK)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("walking_for_sessions", None)


def walk(**arguments: object) -> Configuration:
    return Configuration(
        {"experiment": {"class": "walking_for_sessions.Walk", "arguments": arguments}}
    )


@pytest.fixture
def database(tmp_path: Path):
    with RunDatabase(tmp_path / "runs.sqlite") as opened:
        yield opened


def outcome(database: RunDatabase, run: str) -> tuple[object, ...]:
    """Return all that a run led to, bit by bit."""
    state = database.artifacts.get_state(run, STATE)
    return (
        list(database.figures.history(run, HISTORY).rows()),
        database.figures.statistics(run),
        state["parts.experiment"]["state"]["place"].tobytes(),
        state["parts.experiment"]["state"]["generator"],
        state["history"],
        {name: times for name, times in state["callbacks"].items() if name != "times.start"},
    )


def test_a_session_is_recorded(walks, database):
    session = Session(walk(steps=5), experiment="walk", database=database, save_every=2)
    record = session.run()
    assert (record.status, record.experiment, record.done, record.total) == (
        "completed",
        "walk",
        5,
        5,
    )
    assert record.environment["packages"]["numpy"] == np.__version__
    assert record.process is None
    assert [row["step"] for row in database.figures.history(record.id, HISTORY).rows()] == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert database.figures.statistics(record.id)["far"].count == 5
    (origin,) = [origin for origin in database.origins(record.id) if origin.path != CURRENT_FOLDER]
    assert origin.path == "walking_for_sessions.Walk"
    assert len(origin.sha256) == 64


@pytest.mark.parametrize(("cost", "saves"), [(0.0, 11), (0.1, 11), (1.0, 3), (100.0, 2)])
def test_saving_takes_a_tenth_of_the_time_if_nothing_else_is_asked_for(
    cost: float, saves: int, walks, database, monkeypatch: pytest.MonkeyPatch
):
    now = 1000.0  # seconds; each step takes one
    monkeypatch.setattr("nnpipe.experiment.session.monotonic", lambda: now)
    session = Session(walk(steps=10), experiment="walk", database=database)
    counts = {"step": 0, "save": 0}

    def count(trigger: str, seconds: float) -> None:
        nonlocal now
        counts[trigger] += 1
        now += seconds

    session.callbacks.on("step", lambda session: count("step", 1.0))
    session.callbacks.on("save", lambda session: count("save", cost))
    assert session.run().done == 10
    assert counts == {"step": 10, "save": saves}


def test_a_completed_experiment_is_not_run_again(walks, database):
    first = Session(walk(steps=2), experiment="walk", database=database).run()
    again = Session(walk(steps=2), experiment="walk", database=database)
    again.callbacks.on("start", lambda session: pytest.fail("it began again"))
    assert again.run() == first


@pytest.mark.slow
@pytest.mark.parametrize("save_every", [1, 3])
@pytest.mark.parametrize("stop", [0, 1, 4, 6])
def test_a_failed_session_goes_on_as_if_nothing_had_happened(walks, database, stop, save_every):
    whole = Session(
        walk(steps=7), experiment="whole", database=database, save_every=save_every
    ).run()

    class Broken(Exception):
        pass

    def breaks(session):
        if len(session.history) == stop + 1:
            raise Broken

    session = Session(walk(steps=7), experiment="halves", database=database, save_every=save_every)
    session.callbacks.on("step", breaks)
    with pytest.raises(CallbackFailed):
        session.run()
    failed = database.runs.get("halves")
    assert failed.status == "failed"
    assert failed.reason.startswith("CallbackFailed: ")
    record = Session(
        walk(steps=7), experiment="halves", database=database, save_every=save_every
    ).run()
    assert record.id == failed.id
    ours, wanted = outcome(database, record.id), outcome(database, whole.id)
    assert ours[:-1] == wanted[:-1]  # the callback that broke it was called once more


@pytest.mark.slow
def test_a_killed_session_goes_on_by_itself(walks, database):
    whole = Session(
        walk(steps=40, pause=0.02), experiment="whole", database=database, save_every=3
    ).run()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from nnpipe.experiment.configuration import Configuration\n"
        "from nnpipe.experiment.database.database import RunDatabase\n"
        "from nnpipe.experiment.session import Session\n"
        "tree = {'experiment': {'class': 'walking_for_sessions.Walk', 'arguments': {'steps': 40, "
        "'pause': 0.02}}}\n"
        "with RunDatabase(sys.argv[1] + '/runs.sqlite') as database:\n"
        "    Session(Configuration(tree), experiment='killed', database=database, "
        "save_every=3).run()\n"
    )
    seen = 0
    for wanted in (3, 12, 27):
        process = subprocess.Popen([sys.executable, "-c", code, str(walks)])
        end = time.monotonic() + 60
        while seen < wanted and time.monotonic() < end:
            time.sleep(0.005)
            try:
                seen = database.runs.get("killed").done
            except ConfigError:
                continue
        process.kill()
        assert process.wait(10) == -signal.SIGKILL
        assert database.runs.get("killed").status == "running"
    done = subprocess.run([sys.executable, "-c", code, str(walks)], timeout=120, check=False)
    assert done.returncode == 0
    assert len(database.runs.find("experiment = killed")) == 1
    assert outcome(database, "killed") == outcome(database, whole.id)


def test_what_a_part_raises_is_recorded_and_raised(walks, database):
    with pytest.raises(ZeroDivisionError):
        Session(walk(steps=5, fail_at=2), experiment="walk", database=database, save_every=1).run()
    found = database.runs.get("walk")
    assert (found.status, found.reason, found.done) == (
        "failed",
        "ZeroDivisionError: the floor ends here",
        2,
    )


def test_ctrl_c_leaves_a_cancelled_run_that_goes_on(walks, database):
    session = Session(walk(steps=5), experiment="walk", database=database)
    session.callbacks.on("step", lambda session: os.kill(os.getpid(), signal.SIGINT), every=3)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    assert database.runs.get("walk").status == "cancelled"
    assert Session(walk(steps=5), experiment="walk", database=database).run().done == 5


def test_another_configuration_needs_another_name(walks, database):
    Session(walk(steps=1), experiment="walk", database=database).run()
    with pytest.raises(
        ConfigError, match=r"another configuration \(experiment.arguments.steps differs\)"
    ):
        Session(walk(steps=2), experiment="walk", database=database).run()
    assert len(database.runs.find()) == 1


def test_a_mistake_that_kept_a_run_from_its_first_step_is_mended_under_its_name(walks, database):
    with pytest.raises(ConfigError):
        Session(walk(stepps=3), experiment="walk", database=database).run()
    assert Session(walk(steps=3), experiment="walk", database=database).run().done == 3
    assert [run.status for run in database.runs.find(order="created")] == ["failed", "completed"]


def test_two_sessions_of_one_experiment_do_not_meet(walks, database):
    run = database.runs.create("walk", walk(steps=1))
    database.runs.acquire(run)
    with pytest.raises(ConfigError, match=f"running in process {os.getpid()}"):
        Session(walk(steps=1), experiment="walk", database=database).run()
    assert (
        Session(walk(steps=1), experiment="walk", database=database).run(take_over=True).status
        == "completed"
    )


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"experimnt": {"class": "nnpipe.experiment.history.History"}},
            r"did you mean experimnt\?",
        ),
        ({"experiment": 5}, "has no module 'experiment' to call"),
        ({"experiment": {"class": "nowhere.Thing"}}, "nowhere.Thing cannot be found"),
    ],
)
def test_what_cannot_be_carried_out_is_told_and_recorded(database, tree, message):
    with pytest.raises(Exception, match=message):
        Session(Configuration(tree), experiment="x", database=database).run()
    assert database.runs.get("x").status == "failed"


FITTING = """
import torch
from nnpipe.experiment.module import Module
from nnpipe.experiment.state import State


class Fitting(Module):
    def __init__(self, model, optimiser, data, steps):
        self.model, self.optimiser, self.data, self.steps = model, optimiser, data, steps
        self.state = State(step=0)

    def __call__(self, session):
        if self.state.step == self.steps:
            return None
        self.state.step += 1
        batch = self.data()
        loss = (self.model(torch.from_numpy(batch["x"])) - torch.from_numpy(batch["y"])).square().mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return {"loss": loss.item()}
"""


def test_a_network_its_optimiser_and_its_data_go_on_to_the_bit(walks, database):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    (walks / "fitting_for_sessions.py").write_text(FITTING)
    x = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.savez(walks / "data.npz", x=x, y=x.sum(1, keepdims=True))
    tree = {
        "model": {"class": "torch.nn.Linear", "arguments": {"in_features": 4, "out_features": 1}},
        "optimiser": {
            "class": "torch.optim.Adam",
            "arguments": {"params": {"reference": "model", "call": "parameters"}, "lr": 0.1},
        },
        "data": {
            "class": "nnpipe.experiment.providers.DataProvider",
            "arguments": {
                "reader": {
                    "class": "nnpipe.experiment.readers.npz.NpzReader",
                    "arguments": {"path": str(walks / "data.npz")},
                },
                "batch_size": 8,
            },
        },
        "experiment": {
            "class": "fitting_for_sessions.Fitting",
            "arguments": {
                "model": {"reference": "model"},
                "optimiser": {"reference": "optimiser"},
                "data": {"reference": "data"},
                "steps": 20,
            },
        },
    }

    def session(name, stop=None):
        torch.manual_seed(0)
        made = Session(Configuration(tree), experiment=name, database=database, save_every=4)
        if stop is not None:
            made.callbacks.on("step", lambda s: 1 / (len(s.history) - stop))
        return made

    whole = session("whole")
    whole.run()
    with pytest.raises(CallbackFailed):
        session("halves", stop=11).run()
    halves = session("halves")
    torch.manual_seed(99)
    halves.run()
    assert list(halves.history.rows()) == list(whole.history.rows())
    assert torch.equal(halves.parts["model"].weight, whole.parts["model"].weight)
    assert {origin.path for origin in database.origins("halves")} >= {
        "torch.nn.Linear",
        "torch.optim.Adam",
    }
    sys.modules.pop("fitting_for_sessions", None)


def test_fresh_weights_come_from_the_seed_and_nobody_else_notices(walks, database):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def weights(name: str, **seed: object) -> list[float]:
        tree = walk(steps=1).tree | {
            "model": {
                "class": "torch.nn.Linear",
                "arguments": {"in_features": 3, "out_features": 1},
            }
        }
        session = Session(Configuration(tree | seed), experiment=name, database=database)
        session.run()
        return session.parts["model"].weight.flatten().tolist()

    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    first = weights("first", seed=1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    torch.rand(3)
    assert weights("again", seed=1) == first
    assert weights("other", seed=2) != first
    assert weights("none") == weights("zero", seed=0)


def test_what_the_main_part_keeps_itself_is_left_to_it(walks, database):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    (walks / "keeping_for_sessions.py").write_text(
        "from walking_for_sessions import Walk\n\n\n"
        "class Keeping(Walk):\n"
        "    def __init__(self, model, **arguments):\n"
        "        super().__init__(**arguments)\n"
        "        self.kept = model\n\n"
        "    def children(self):\n"
        "        yield 'state', self.state\n\n"
        "    def keeps(self):\n"
        "        return [self.kept]\n"
    )
    linear = {"class": "torch.nn.Linear", "arguments": {"in_features": 3, "out_features": 1}}
    arguments = {"steps": 1, "model": {"reference": "model"}}
    tree = {
        "model": linear,
        "other": linear,
        "experiment": {"class": "keeping_for_sessions.Keeping", "arguments": arguments},
    }
    run = Session(Configuration(tree), experiment="keeping", database=database).run()
    state = database.artifacts.get_state(run.id, STATE)
    assert "parts.model" not in state
    assert torch.is_tensor(state["parts.other"]["weight"])
