"""Outputs: what a model's ``forward`` returns in training, with targets, losses and metrics.

The public names can be imported from here; each is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nnpipe.training.outputs.binary import BinaryOutput as BinaryOutput
    from nnpipe.training.outputs.centres import CentreOutput as CentreOutput
    from nnpipe.training.outputs.class_weights import BalancedWeights as BalancedWeights
    from nnpipe.training.outputs.class_weights import balanced_weights as balanced_weights
    from nnpipe.training.outputs.classification import ClassificationOutput as ClassificationOutput
    from nnpipe.training.outputs.contrastive import ContrastiveOutput as ContrastiveOutput
    from nnpipe.training.outputs.ctc import CTCOutput as CTCOutput
    from nnpipe.training.outputs.detection import DetectionOutput as DetectionOutput
    from nnpipe.training.outputs.distillation import DistillationOutput as DistillationOutput
    from nnpipe.training.outputs.embedding import EmbeddingOutput as EmbeddingOutput
    from nnpipe.training.outputs.metric import Metric as Metric
    from nnpipe.training.outputs.mined_triplets import MinedTripletOutput as MinedTripletOutput
    from nnpipe.training.outputs.output import Output as Output
    from nnpipe.training.outputs.pairs import PairOutput as PairOutput
    from nnpipe.training.outputs.regression import RegressionOutput as RegressionOutput
    from nnpipe.training.outputs.segmentation import SegmentationOutput as SegmentationOutput
    from nnpipe.training.outputs.total_variation import TotalVariationOutput as TotalVariationOutput
    from nnpipe.training.outputs.triplets import TripletOutput as TripletOutput

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "binary": ("BinaryOutput",),
        "centres": ("CentreOutput",),
        "class_weights": ("BalancedWeights", "balanced_weights"),
        "classification": ("ClassificationOutput",),
        "contrastive": ("ContrastiveOutput",),
        "ctc": ("CTCOutput",),
        "detection": ("DetectionOutput",),
        "distillation": ("DistillationOutput",),
        "embedding": ("EmbeddingOutput",),
        "metric": ("Metric",),
        "mined_triplets": ("MinedTripletOutput",),
        "output": ("Output",),
        "pairs": ("PairOutput",),
        "regression": ("RegressionOutput",),
        "segmentation": ("SegmentationOutput",),
        "total_variation": ("TotalVariationOutput",),
        "triplets": ("TripletOutput",),
    },
)
