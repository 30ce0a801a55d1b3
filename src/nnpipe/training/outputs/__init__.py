"""Outputs: what a model's ``forward`` returns in training, with targets, losses and metrics.

The public names can be imported from here; each is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nnpipe.training.outputs.classification import BalancedWeights as BalancedWeights
    from nnpipe.training.outputs.classification import BinaryOutput as BinaryOutput
    from nnpipe.training.outputs.classification import ClassificationOutput as ClassificationOutput
    from nnpipe.training.outputs.classification import DistillationOutput as DistillationOutput
    from nnpipe.training.outputs.classification import (
        compute_balanced_weights as compute_balanced_weights,
    )
    from nnpipe.training.outputs.ctc import CTCOutput as CTCOutput
    from nnpipe.training.outputs.detection import DetectionOutput as DetectionOutput
    from nnpipe.training.outputs.embedding import CentreOutput as CentreOutput
    from nnpipe.training.outputs.embedding import ContrastiveOutput as ContrastiveOutput
    from nnpipe.training.outputs.embedding import EmbeddingOutput as EmbeddingOutput
    from nnpipe.training.outputs.embedding import MinedTripletOutput as MinedTripletOutput
    from nnpipe.training.outputs.embedding import PairOutput as PairOutput
    from nnpipe.training.outputs.embedding import TripletOutput as TripletOutput
    from nnpipe.training.outputs.output import Metric as Metric
    from nnpipe.training.outputs.output import Output as Output
    from nnpipe.training.outputs.regression import RegressionOutput as RegressionOutput
    from nnpipe.training.outputs.regression import TotalVariationOutput as TotalVariationOutput
    from nnpipe.training.outputs.segmentation import SegmentationOutput as SegmentationOutput

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "classification": (
            "BalancedWeights",
            "BinaryOutput",
            "ClassificationOutput",
            "DistillationOutput",
            "compute_balanced_weights",
        ),
        "ctc": ("CTCOutput",),
        "detection": ("DetectionOutput",),
        "embedding": (
            "CentreOutput",
            "ContrastiveOutput",
            "EmbeddingOutput",
            "MinedTripletOutput",
            "PairOutput",
            "TripletOutput",
        ),
        "output": ("Metric", "Output"),
        "regression": ("RegressionOutput", "TotalVariationOutput"),
        "segmentation": ("SegmentationOutput",),
    },
)
