"""Training models: a trainer, outputs with losses and metrics, input pipelines, callbacks and
checkpoints.

The public names can be imported from here; each is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nnpipe.training.averages import estimate_statistics as estimate_statistics
    from nnpipe.training.callbacks.callback import Callback as Callback
    from nnpipe.training.callbacks.callback import WritingCallback as WritingCallback
    from nnpipe.training.checkpoints import load_weights as load_weights
    from nnpipe.training.checkpoints import read_weights as read_weights
    from nnpipe.training.experiment import Training as Training
    from nnpipe.training.final_weights import StartingWeights as StartingWeights
    from nnpipe.training.fit import TrainingRun as TrainingRun
    from nnpipe.training.network import Adversaries as Adversaries
    from nnpipe.training.network import Head as Head
    from nnpipe.training.network import Network as Network
    from nnpipe.training.network import ViewNetwork as ViewNetwork
    from nnpipe.training.optimization import SGD as SGD
    from nnpipe.training.optimization import AdamW as AdamW
    from nnpipe.training.optimization import ConstantRate as ConstantRate
    from nnpipe.training.optimization import Cosine as Cosine
    from nnpipe.training.optimization import Exponential as Exponential
    from nnpipe.training.optimization import Milestones as Milestones
    from nnpipe.training.optimization import Schedule as Schedule
    from nnpipe.training.optimization import TorchSchedule as TorchSchedule
    from nnpipe.training.options import TrainerOptions as TrainerOptions
    from nnpipe.training.run_page import write_run_page as write_run_page
    from nnpipe.training.step import LearningStep as LearningStep
    from nnpipe.training.trainer import Trainer as Trainer
    from nnpipe.training.view_average import BatchView as BatchView
    from nnpipe.training.view_average import average_views as average_views
    from nnpipe.training.view_average import make_mirror_view as make_mirror_view

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "averages": ("estimate_statistics",),
        "callbacks.callback": ("Callback", "WritingCallback"),
        "checkpoints": ("load_weights", "read_weights"),
        "experiment": ("Training",),
        "final_weights": ("StartingWeights",),
        "fit": ("TrainingRun",),
        "network": ("Adversaries", "Head", "Network", "ViewNetwork"),
        "optimization": (
            "AdamW",
            "ConstantRate",
            "Cosine",
            "Exponential",
            "Milestones",
            "SGD",
            "Schedule",
            "TorchSchedule",
        ),
        "options": ("TrainerOptions",),
        "run_page": ("write_run_page",),
        "step": ("LearningStep",),
        "trainer": ("Trainer",),
        "view_average": ("BatchView", "average_views", "make_mirror_view"),
    },
)
