"""Following a training in Weights & Biases."""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.state import State
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.writing_callback import folder_of, pictures_of

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class WandbLog(Callback):
    """Send each epoch's figures to Weights & Biases when the epoch ends, and the run's pictures at its end.

    Offline, nothing leaves the machine: ``wandb sync`` sends what lies in the folder ``wandb`` of the run's folder.
    A resumed training continues the run by its identity; offline it makes a further folder, which is synchronised
    to the same run, and epochs that are repeated are sent once.

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

    def on_fit_begin(self, fit: Fit) -> None:
        """Begin the run, or continue it."""
        self.check_installed()
        if fit.folder is None:
            raise ConfigError("WandbLog writes files: give the training a folder, Trainer.fit(..., folder=...)")
        import wandb

        folder = folder_of(fit).path
        folder.mkdir(parents=True, exist_ok=True)
        self.state.run = self.state.run or secrets.token_hex(4)
        # It would take hold of outputs and signals, and read the source code.
        settings = wandb.Settings(console="off", save_code=False, disable_git=True, silent=True, x_disable_stats=True)
        self._run = wandb.init(
            project=self.project, name=self.name or folder.name, dir=str(folder), mode=self.mode, id=self.state.run,
            resume="allow", config=dict(fit.options.to_json()), settings=settings,
        )  # fmt: skip

    def on_epoch_end(self, fit: Fit) -> None:
        """Log the epoch's figures."""
        row = fit.history.last
        self._run.log({name: value for name, value in row.items() if math.isfinite(value)}, step=fit.epoch)

    def on_fit_end(self, fit: Fit) -> None:
        """Log the pictures, and finish the run."""
        import wandb

        drawn = [path for path in pictures_of(fit) if path.suffix == ".png"]
        if self.pictures and drawn:
            # A further step, since those of epochs are complete.
            self._run.log({path.stem: wandb.Image(str(path)) for path in drawn}, step=fit.epoch + 1)
        self.close()

    def close(self) -> None:
        """End the connection; a run that has not ended can be continued."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()
