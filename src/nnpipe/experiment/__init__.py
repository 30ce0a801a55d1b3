"""Experiments as trees of modules whose state can be saved, restored and stored.

The public names can be imported from here; each is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nnpipe.experiment.configuration import Configuration as Configuration
    from nnpipe.experiment.database.database import RunDatabase as RunDatabase
    from nnpipe.experiment.database.records import RunRecord as RunRecord
    from nnpipe.experiment.history import History as History
    from nnpipe.experiment.history import Statistic as Statistic
    from nnpipe.experiment.history import Statistics as Statistics
    from nnpipe.experiment.module import Module as Module
    from nnpipe.experiment.module import StateError as StateError
    from nnpipe.experiment.providers import DataProvider as DataProvider
    from nnpipe.experiment.session import Session as Session
    from nnpipe.experiment.settings import read_settings as read_settings
    from nnpipe.experiment.state import State as State
    from nnpipe.experiment.state_file import read_state as read_state
    from nnpipe.experiment.state_file import write_state as write_state
    from nnpipe.experiment.status import Status as Status
    from nnpipe.experiment.triggers import CallbackFailed as CallbackFailed
    from nnpipe.experiment.triggers import Callbacks as Callbacks

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "configuration": ("Configuration",),
        "database.database": ("RunDatabase",),
        "database.records": ("RunRecord",),
        "history": ("History", "Statistic", "Statistics"),
        "module": ("Module", "StateError"),
        "providers": ("DataProvider",),
        "session": ("Session",),
        "settings": ("read_settings",),
        "state": ("State",),
        "state_file": ("read_state", "write_state"),
        "status": ("Status",),
        "triggers": ("CallbackFailed", "Callbacks"),
    },
)
