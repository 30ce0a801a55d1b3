"""A password or a token given to a command is in nothing that the command prints, writes, or
shows in ``ps``.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml
from tests.scenarios.test_wrong_arguments import options
from tests.tools.installed import needs

from nnpipe.__main__ import main
from nnpipe.core.errors import ConfigError
from nnpipe.core.secret import OPTIONS
from nnpipe.datasets.arrays import write_arrays
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios._cli.index import list_scenarios
from nnpipe.scenarios._cli.option_types import secret_assignment
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.background_jobs import submit_job

SOURCE = Path(__file__).resolve().parents[2] / "src"
SECRET = "wxyz5ecret"
ADDRESS = f"postgresql://ann:{SECRET}@127.0.0.1:9/runs"

TRAIN = """
import os, pathlib, time
pathlib.Path("length.txt").write_text(str(len(os.environ["API_KEY"])))
time.sleep(float(os.environ.get("STAY", "0.2")))
"""
MODULE = """
import os, time
def trained(n):
    time.sleep(0.1)
    return n + len(os.environ["API_KEY"])
"""
SEARCH = {
    "title": "hidden",
    "function": "secret_search_module.trained",
    "objectives": {"value": "maximize"},
    "trials": 3,
    "space": {"n": {"kind": "discrete", "values": [1, 2, 3, 4]}},
}
MEASURED = ["ONNXModel", "ArraysDataset", "--dataset-root", "arrays", "--model-path", "model.onnx"]
BRIEFLY = ["--measure-seconds", "0.2"]

# Complete command lines whose work leaves files, each with a secret in every place that can hold
# one; what a command lacks here has no option for a secret, and is in
# test_no_message_of_any_command_holds_a_secret like all others.
COMPLETE: Sequence[Sequence[str]] = (
    (
        "jobs",
        "submit",
        "train.py",
        "--env",
        f"API_KEY={SECRET}",
        "--output",
        "length.txt",
        "--storage",
        "store",
        "--folder",
        "jobs",
        "--watch",
    ),
    ("jobs", "list", "--json", "jobs.json"),
    ("jobs", "logs", "train.py"),
    ("runs", "list"),
    ("runs", "show", "train.py"),
    (
        "search",
        "search.yaml",
        "--workers",
        "2",
        f"--env=API_KEY={SECRET}",
        "--folder",
        "workers",
        "--report",
        "search.html",
        "--optuna",
        "sqlite:///study.db",
    ),
    ("search", "search.yaml", f"--env=API_KEY={SECRET}", "--workers", "2", "--optuna", ADDRESS),
    ("runs", "export", "hidden", "--optuna", ADDRESS),
    ("runs", "export", "hidden", "--mlflow", f"http://ann:{SECRET}@127.0.0.1:9"),
    ("inference_performance", *MEASURED[:2], "result.json", *MEASURED[2:], *BRIEFLY),
    (
        "inference_tester",
        "ONNXModel",
        "none",
        "ONNXRuntime",
        "ArraysDataset",
        "result.json",
        *MEASURED[2:],
        *BRIEFLY,
    ),
    ("runs", "list", "--columns", "configuration.title"),
    ("render_report", "result.json", "results", "report.html"),
    ("render_report", "result.json", "results", "report.rst"),
    ("storage", "put", "model.onnx", "untrained-models", "--at", "store"),
    ("storage", "list", "--at", "s3://bucket/x", "--endpoint", f"http://ann:{SECRET}@127.0.0.1:9"),
)


OWN = """
from nnpipe.core.arguments import argument
from nnpipe.datasets.arrays import ArraysDataset
class StoredArrays(ArraysDataset):
    \"\"\"Arrays that a server has, too.\"\"\"
    address: str = argument("", help="of the server")
    password: str = argument("", help="for the server")
def trained(n, address, password):
    return n
class Part:
    def __init__(self, address, password):
        self.steps = 0
    def state_dict(self):
        return {"steps": self.steps}
    def load_state_dict(self, state):
        self.steps = state["steps"]
    def __call__(self, session):
        self.steps += 1
        return {"loss": 1.0 / self.steps} if self.steps < 3 else None
"""
HIDDEN_ARGUMENTS = {"address": ADDRESS, "password": SECRET}
STORED = {
    "class": "own_settings.StoredArrays",
    "arguments": {"dataset_root": "arrays", **HIDDEN_ARGUMENTS},
}
ONNX = {"class": "nnpipe.modelwrappers.files.onnx.ONNXModel", "path": "model.onnx"}
RUNTIME = "nnpipe.runtimes.onnxruntime.ONNXRuntime"
SHORT = {"measure_seconds": 0.1}
SETTINGS = {
    "pipeline": {
        "title": "piped",
        "output": "piped",
        "dataset": STORED,
        "model": ONNX,
        "measure": SHORT,
        "candidates": [{"title": "onnx", "runtime": RUNTIME}],
    },
    "sweep": {
        "title": "swept",
        "output": "swept",
        "dataset": STORED,
        "models": [{"title": "m", **ONNX}],
        "measure": SHORT,
        "runtimes": [RUNTIME],
        "objectives": ["latency_median"],
        "accept_doubts": ["chance"],
    },
    "function": {
        "title": "searched",
        "function": "own_settings.trained",
        "arguments": HIDDEN_ARGUMENTS,
        "trials": 2,
        "objectives": {"value": "maximize"},
        "space": {"n": {"kind": "int", "low": 1, "high": 9}},
    },
    "searched": {
        "title": "searched pipeline",
        "output": "searched",
        "pipeline": "pipeline.yaml",
        "trials": 2,
        "objectives": ["latency_median"],
        "accept_doubts": ["chance"],
        "space": {"model.arguments.num_threads": {"kind": "int", "low": 1, "high": 2}},
    },
    "experiment": {"experiment": {"class": "own_settings.Part", "arguments": HIDDEN_ARGUMENTS}},
}
"""Files of settings of a user's own, each with a password."""
OF_SETTINGS: Sequence[Sequence[str]] = (
    ("run", "pipeline.yaml"),
    ("sweep", "sweep.yaml"),
    (
        "search",
        "function.yaml",
        "--workers",
        "1",
        "--database",
        "runs.sqlite",
        "--report",
        "function.html",
    ),
    ("search", "searched.yaml", "--database", "runs.sqlite", "--report", "searched.html"),
    ("experiment", "experiment.yaml", "--database", "runs.sqlite"),
    (
        "inference_performance",
        "ONNXModel",
        "own_settings.StoredArrays",
        "result.json",
        "--dataset-root",
        "arrays",
        "--model-path",
        "model.onnx",
        "--measure-seconds",
        "0.1",
        "--address",
        ADDRESS,
        "--password",
        SECRET,
        "--database",
        "runs.sqlite",
    ),
    ("render_report", "result.json", "results", "report.html"),
    ("runs", "show", "experiment", "--database", "runs.sqlite"),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the working folder, HOME and the folder of temporary files, with
    the inputs there.
    """
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "secret_search_module.py").write_text(MODULE)
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(SEARCH))
    for name in ("home", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    for name, value in variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NNPIPE_RUNS", raising=False)
    return tmp_path


def variables(folder: Path) -> dict[str, str]:
    here = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "temporary")}
    return {
        **here,
        "PYTHONPATH": str(SOURCE),
        "AWS_EC2_METADATA_DISABLED": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    }


def holders(folder: Path) -> list[str]:
    """Return the files that hold the secret, other than the private ones that must."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and SECRET.encode() in path.read_bytes():
            found.append(f"{path.relative_to(folder)} {stat.filemode(path.stat().st_mode)}")
    return found


def processes(folder: Path, since: float) -> Iterator[psutil.Process]:
    """Yield the processes that work in a folder, by which jobs are found, too; all have started
    since a time.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            # reading the environments of all others would keep a core busy
            young = process.create_time() >= since
            if (
                young
                and process.environ().get("HOME") == str(folder / "home")
                and process.pid != os.getpid()
            ):
                yield process


class Watch:
    """Looks at the arguments of all processes of a folder until the block ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self.found = folder, 0, []  # type: ignore[var-annotated]
        self._began = time.time() - 1  # the system's clock of processes is coarse
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            for process in processes(self.folder, self._began):
                with contextlib.suppress(psutil.Error):
                    words = process.cmdline()
                    self.seen += 1
                    # A command hides its own arguments as soon as Python has started.
                    young = time.time() - process.create_time() < 5 and words[1:3] == [
                        "-m",
                        "nnpipe",
                    ]
                    if any(SECRET in word for word in words) and not young:
                        self.found.append(words)


def told(argv: Sequence[str]) -> tuple[int, str]:
    """Run a command in this process; return its status and all that it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            status = main(argv)
        except SystemExit as left:
            status = int(left.code or 0)
    return status, out.getvalue()


def test_the_complete_command_lines_are_of_every_command_that_takes_a_secret() -> None:
    takes = {"--env", "--database", "--optuna", "--mlflow", "--endpoint"}
    wanted = {option.command for option in options() if takes & {*option.action.option_strings}}
    alike = {
        "sweep": "search",
        "experiment": "runs",
        "model_training": "inference_tester",
    }  # read by the same functions
    assert {alike.get(command, command) for command in wanted} <= {argv[0] for argv in COMPLETE}
    assert {option.command for option in options()} == {*list_scenarios()}


def test_every_option_whose_value_is_a_secret_is_hidden() -> None:
    declared = {option.name for option in options() if option.action.type is secret_assignment}
    assert declared == {*OPTIONS}


@pytest.mark.parametrize("command", list_scenarios())
def test_no_message_of_any_command_holds_a_secret(command: str, home: Path) -> None:
    """Each option and positional argument in turn is an address with a password."""
    failed = []
    for option in options():
        if option.command == command and option.action.nargs != 0:
            status, text = told(option.wrong(ADDRESS))
            if SECRET in text or status not in (0, 1, 2):
                failed.append((str(option), status, text))
    assert failed == []
    assert holders(home) == []


@contextlib.contextmanager
def database(kind: str) -> Iterator[str]:
    """Yield the address of a run database, with a password if it is a server, which accepts any."""
    if kind == "sqlite":
        yield "runs.sqlite"
        return
    needs("psycopg")
    sys.path.append(str(SOURCE.parent / "benchmarks"))
    from _postgresql import postgresql

    with postgresql(sync=False) as address:
        if address is None:
            pytest.skip("PostgreSQL is not installed here, or does not start")
        yield address.replace("://tester@", f"://tester:{SECRET}@")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kept_in", ["sqlite", "postgresql"])
def test_nothing_that_commands_write_or_show_holds_a_secret(kept_in: str, home: Path) -> None:
    databases = [option.command for option in options() if option.name == "--database"]
    needs("onnx")
    needs("onnxruntime")
    needs("optuna")
    needs("mlflow")
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((8, 4, 4, 1)).astype(np.float32), rng.integers(0, 2, 8)
    write_onnx_classifier(home / "model.onnx", images, labels)
    write_arrays(home / "arrays", {"image": images}, labels)
    said = {}
    with database(kept_in) as address, Watch(home) as watch:
        for argv in COMPLETE:
            where = ["--database", address, "--store", "files"] if argv[0] in databases else []
            done = subprocess.run(
                [sys.executable, "-m", "nnpipe", *argv, *where],
                cwd=home,
                capture_output=True,
                text=True,
                timeout=300,
            )
            said[" ".join(argv)] = (done.returncode, done.stdout, done.stderr)
    assert [line for line, (_, out, err) in said.items() if SECRET in out + err] == []
    refused = [" ".join(line.split()[:2]) for line, (status, *_) in said.items() if status]
    assert refused == ["search search.yaml", "runs export", "runs export", "storage list"], said
    assert watch.seen > 50
    assert watch.found == []
    private = [line for line in holders(home) if not line.endswith(" -rw-------")]
    assert private == []
    # which a resumed job reads
    assert {line.split("/")[-1] for line in holders(home)} == {"job.json -rw-------"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_that_commands_make_of_a_file_of_settings_holds_its_secrets(home: Path) -> None:
    needs("onnx")
    needs("onnxruntime")
    needs("sqlalchemy")
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((64, 4, 4, 1)).astype(np.float32), rng.integers(0, 2, 64)
    write_onnx_classifier(home / "model.onnx", images, labels)
    write_arrays(home / "arrays", {"image": images}, labels)
    (home / "own_settings.py").write_text(OWN)
    for name, settings in SETTINGS.items():
        (home / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE), str(home)))}
    for argv in OF_SETTINGS:
        done = subprocess.run(
            [sys.executable, "-m", "nnpipe", *argv],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert SECRET not in done.stdout + done.stderr
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
    own = {f"{name}.yaml" for name in SETTINGS}
    assert {line.split()[0] for line in holders(home)} == own - {"searched.yaml"}


def test_an_experiment_goes_on_although_its_password_is_not_recorded(home: Path) -> None:
    needs("sqlalchemy")
    arguments = {"class": "own_settings.Part", "arguments": HIDDEN_ARGUMENTS}
    with RunDatabase("runs.sqlite") as database:
        first = database.runs.find_or_create("e", Configuration({"experiment": arguments}))
        assert first.configuration["experiment"]["arguments"]["password"] == "***"
        database.runs.enter(first.id, "failed", "it was killed")
        assert (
            database.runs.find_or_create("e", Configuration({"experiment": arguments})).id
            == first.id
        )
        with pytest.raises(ConfigError, match=r"another configuration \(seed differs\)"):
            database.runs.find_or_create("e", Configuration({"experiment": arguments, "seed": 1}))
    assert holders(home) == []


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems keep the list of processes themselves"
)
def test_a_command_hides_its_own_arguments(home: Path) -> None:
    needs("sqlalchemy")
    command = [
        sys.executable,
        "-m",
        "nnpipe",
        "jobs",
        "submit",
        "train.py",
        "--no-output",
        "--watch",
    ]
    given = ["--env", f"API_KEY={SECRET}", "--env", "STAY=3"]
    with subprocess.Popen(
        [*command, *given], cwd=home, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "train.py" in process.stdout.readline()
        words = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
        assert words[3:5] == ["jobs", "submit"]
        assert words[8:10] == ["--env", "API_KEY=" + "***".ljust(len(SECRET), "*")]
        process.terminate()


def test_a_secret_for_a_script_is_refused_as_an_argument(home: Path) -> None:
    needs("sqlalchemy")
    with RunDatabase("runs.sqlite") as database:
        for argument in (f"--password={SECRET}", ADDRESS, f"--api-key={SECRET}"):
            with pytest.raises(
                ValueError, match=r"argument 2 of train.py holds a password.*--env"
            ) as caught:
                submit_job(database, "train.py", ["--epochs=3", argument], without_output=True)
            assert SECRET not in str(caught.value)
    assert holders(home) == []


def test_an_error_names_no_password(home: Path) -> None:
    """Whoever catches it, in whichever program."""
    needs("sqlalchemy")
    with pytest.raises(ValueError) as caught:
        RunDatabase(ADDRESS.replace("postgresql", "nosuch"))
    assert SECRET not in str(caught.value)


def test_a_traceback_names_no_password(home: Path) -> None:
    program = f"""
import sys
from nnpipe.scenarios._cli.command import execute
def body(argv):
    raise RuntimeError("no answer from {ADDRESS}")
sys.exit(execute(body, [], "run"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=home)
    assert done.returncode == 1
    assert "RuntimeError: no answer from postgresql://ann:***@127.0.0.1:9/runs" in done.stderr
    assert SECRET not in done.stderr
