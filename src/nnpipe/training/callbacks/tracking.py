"""Following a training live in MLflow and in Weights & Biases."""

from __future__ import annotations

import math
import secrets
import time
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.exports.export import open_mlflow_client, to_mlflow_key
from nnpipe.experiment.settings import iterate_leaves
from nnpipe.experiment.state import State
from nnpipe.training.callbacks.callback import Callback, get_run_folder, render_pictures

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun

_OTHERS = ("epoch", "step")


class MlflowLog(Callback):
    """Send each epoch's figures to MLflow when the epoch ends, and the run's pictures and tables at
    its end.

    A resumed training continues its run in MLflow; epochs that are repeated are sent once.  The
    options of the trainer become parameters.

    Parameters
    ----------
    address
        MLflow's tracking address, such as ``http://host:5000`` or ``sqlite:///mlflow.db``, or a
        folder; by default the folder ``mlflow`` of the run's folder.
    experiment
        The name of the experiment.
    name
        The name of the run; by default that of the run's folder.
    files
        Whether to send pictures and tables.
    """

    requires = ("mlflow",)
    install = "nnpipe[tracking]"
    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("MLFlowLogger",)

    def __init__(
        self,
        address: str | None = None,
        experiment: str = "nnpipe",
        name: str | None = None,
        files: bool = True,
    ) -> None:
        check_call(MlflowLog, locals())
        self.address = address
        self.experiment = experiment
        self.name = name
        self.files = files
        self.state = State(run="")  # its identity in MLflow
        self._client: Any = None
        self._sent = 0  # the last epoch that MLflow has

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Begin a run in MLflow, or find the one to continue."""
        self.check_installed()
        if self.address is None and fit.folder is None:
            raise ConfigError(
                "MlflowLog: give an address, or the training a folder, Trainer.fit(..., folder=...)"
            )
        address = self.address or str(get_run_folder(fit).path / "mlflow")
        with open_mlflow_client(address, self.experiment) as (client, experiment):
            self._client = client
            if self.state.run:
                client.set_terminated(self.state.run, "RUNNING")
                self._sent = max(
                    (m.step for m in client.get_metric_history(self.state.run, "epoch")), default=0
                )
                return
            name = self.name or (get_run_folder(fit).path.name if fit.folder is not None else None)
            self.state.run = client.create_run(experiment, run_name=name).info.run_id
            self._sent = 0
            from mlflow.entities import Param

            told = {
                to_mlflow_key(path): str(value)[:6000]
                for path, value in iterate_leaves(fit.options.to_json())
            }
            client.log_batch(
                self.state.run,
                params=[Param(key, value) for key, value in list(told.items())[:100]],
            )

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Send the epoch's figures."""
        if fit.epoch <= self._sent:
            return
        from mlflow.entities import Metric

        row, now = fit.history.last, round(1000 * time.time())
        figures = {
            name: value
            for name, value in row.items()
            if name not in _OTHERS and math.isfinite(value)
        }
        metrics = [
            Metric(to_mlflow_key(name), float(value), now, fit.step)
            for name, value in figures.items()
        ]
        # The epoch comes last: a run that has it has all figures of it.
        for start in range(0, len(metrics), 1000):
            self._client.log_batch(self.state.run, metrics=metrics[start : start + 1000])
        self._client.log_metric(self.state.run, "epoch", fit.epoch, now, fit.epoch)
        self._sent = fit.epoch

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Send the files, and end the run in MLflow."""
        if self.files and fit.folder is not None:
            for path in (*render_pictures(fit), *fit.folder.tables()):
                place = path.parent.relative_to(fit.folder.path).as_posix()
                self._client.log_artifact(self.state.run, str(path), artifact_path=place)
        self._client.set_terminated(self.state.run, "FINISHED")

    def close(self) -> None:
        """Forget the connection; a run that has not ended stays open, for the next training to
        continue.
        """
        self._client = None


class WandbLog(Callback):
    """Send each epoch's figures to Weights & Biases when the epoch ends, and the run's pictures at
    its end.

    Offline, nothing leaves the machine: ``wandb sync`` sends what lies in the folder ``wandb`` of
    the run's folder. A resumed training continues the run by its identity; offline it makes a
    further folder, which is synchronised to the same run, and epochs that are repeated are sent
    once.

    Parameters
    ----------
    project
        The project.
    name
        The name of the run; by default that of the run's folder.
    mode
        ``offline``, or ``online`` with the login of this machine.
    pictures
        Whether to send the pictures at the end.
    """

    requires = ("wandb",)
    install = "nnpipe[wandb]"
    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("WandbLogger",)

    def __init__(
        self,
        project: str = "nnpipe",
        name: str | None = None,
        mode: Literal["offline", "online"] = "offline",
        pictures: bool = True,
    ) -> None:
        check_call(WandbLog, locals())
        self.project = project
        self.name = name
        self.mode = mode
        self.pictures = pictures
        self.state = State(run="")  # its identity
        self._run: Any = None

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Begin the run, or continue it."""
        self.check_installed()
        if fit.folder is None:
            raise ConfigError(
                "WandbLog writes files: give the training a folder, Trainer.fit(..., folder=...)"
            )
        import wandb

        folder = get_run_folder(fit).path
        folder.mkdir(parents=True, exist_ok=True)
        self.state.run = self.state.run or secrets.token_hex(4)
        # It would take hold of outputs and signals, and read the source code.
        settings = wandb.Settings(
            console="off", save_code=False, disable_git=True, silent=True, x_disable_stats=True
        )
        self._run = wandb.init(
            project=self.project,
            name=self.name or folder.name,
            dir=str(folder),
            mode=self.mode,
            id=self.state.run,
            resume="allow",
            config=dict(fit.options.to_json()),
            settings=settings,
        )

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Log the epoch's figures."""
        row = fit.history.last
        self._run.log(
            {name: value for name, value in row.items() if math.isfinite(value)}, step=fit.epoch
        )

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Log the pictures, and finish the run."""
        import wandb

        drawn = [path for path in render_pictures(fit) if path.suffix == ".png"]
        if self.pictures and drawn:
            # A further step, since those of epochs are complete.
            self._run.log({path.stem: wandb.Image(str(path)) for path in drawn}, step=fit.epoch + 1)
        self.close()

    def close(self) -> None:
        """End the connection; a run that has not ended can be continued."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()
