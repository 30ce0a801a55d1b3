"""Tasks, one folder each: how predictions are judged, the metrics, and how results are shown.

This package offers the classes; each is imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nnpipe.tasks.anomaly.task import AnomalyDetection as AnomalyDetection
    from nnpipe.tasks.anomaly_map.task import AnomalyMaps as AnomalyMaps
    from nnpipe.tasks.classification.task import Classification as Classification
    from nnpipe.tasks.detection.task import Detection as Detection
    from nnpipe.tasks.embedding.task import EmbeddingSearch as EmbeddingSearch
    from nnpipe.tasks.forecast.task import Forecast as Forecast
    from nnpipe.tasks.generation.task import Generation as Generation
    from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation as InstanceSegmentation
    from nnpipe.tasks.pose.task import Pose as Pose
    from nnpipe.tasks.regression.task import Regression as Regression
    from nnpipe.tasks.segmentation.task import Segmentation as Segmentation
    from nnpipe.tasks.series_anomaly.task import SeriesAnomaly as SeriesAnomaly

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "anomaly.task": ("AnomalyDetection",),
        "anomaly_map.task": ("AnomalyMaps",),
        "classification.task": ("Classification",),
        "detection.task": ("Detection",),
        "embedding.task": ("EmbeddingSearch",),
        "forecast.task": ("Forecast",),
        "generation.task": ("Generation",),
        "instance_segmentation.task": ("InstanceSegmentation",),
        "pose.task": ("Pose",),
        "regression.task": ("Regression",),
        "segmentation.task": ("Segmentation",),
        "series_anomaly.task": ("SeriesAnomaly",),
    },
)
