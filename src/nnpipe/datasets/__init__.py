"""Data sets, all of which pass :class:`nnpipe.testing.dataset.DatasetContract`.

This package offers the classes; each is imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.datasets.anomaly_folder import AnomalyFolderDataset as AnomalyFolderDataset
    from nnpipe.datasets.anomaly_folder import AnomalySoundsDataset as AnomalySoundsDataset
    from nnpipe.datasets.anomaly_scores import AnomalyScoresDataset as AnomalyScoresDataset
    from nnpipe.datasets.arrays import ArraysDataset as ArraysDataset
    from nnpipe.datasets.cifar10 import CIFAR10Dataset as CIFAR10Dataset
    from nnpipe.datasets.coco import COCODataset as COCODataset
    from nnpipe.datasets.coco_instances import COCOInstancesDataset as COCOInstancesDataset
    from nnpipe.datasets.coco_results import COCOResultsDataset as COCOResultsDataset
    from nnpipe.datasets.digits import DigitsDataset as DigitsDataset
    from nnpipe.datasets.digits import WornDigitsDataset as WornDigitsDataset
    from nnpipe.datasets.image_files import ImageFolderDataset as ImageFolderDataset
    from nnpipe.datasets.in_memory import InMemoryDataset as InMemoryDataset
    from nnpipe.datasets.magic_wand import MagicWandDataset as MagicWandDataset
    from nnpipe.datasets.mask_folder import MaskFolderDataset as MaskFolderDataset
    from nnpipe.datasets.mnist import FashionMNISTDataset as FashionMNISTDataset
    from nnpipe.datasets.mnist import MNISTDataset as MNISTDataset
    from nnpipe.datasets.open_images import OpenImagesDataset as OpenImagesDataset
    from nnpipe.datasets.pascal_voc import PascalVOCDataset as PascalVOCDataset
    from nnpipe.datasets.pascal_voc import PascalVOCMasksDataset as PascalVOCMasksDataset
    from nnpipe.datasets.pets import PetDataset as PetDataset
    from nnpipe.datasets.plugin import PluginDataset as PluginDataset
    from nnpipe.datasets.posed_images import COCOKeypointsDataset as COCOKeypointsDataset
    from nnpipe.datasets.posed_images import KeypointsTableDataset as KeypointsTableDataset
    from nnpipe.datasets.series import SeriesDataset as SeriesDataset
    from nnpipe.datasets.series import SeriesFolderDataset as SeriesFolderDataset
    from nnpipe.datasets.series_anomalies import SeriesAnomaliesDataset as SeriesAnomaliesDataset
    from nnpipe.datasets.series_anomalies import SeriesScoresDataset as SeriesScoresDataset
    from nnpipe.datasets.speech_commands import SpeechCommandsDataset as SpeechCommandsDataset
    from nnpipe.datasets.synthetic import SyntheticAnomaliesDataset as SyntheticAnomaliesDataset
    from nnpipe.datasets.synthetic import SyntheticImagesDataset as SyntheticImagesDataset
    from nnpipe.datasets.synthetic import SyntheticRegressionDataset as SyntheticRegressionDataset
    from nnpipe.datasets.synthetic import (
        SyntheticSegmentationDataset as SyntheticSegmentationDataset,
    )
    from nnpipe.datasets.synthetic import (
        SyntheticSeriesAnomaliesDataset as SyntheticSeriesAnomaliesDataset,
    )
    from nnpipe.datasets.synthetic import SyntheticSeriesDataset as SyntheticSeriesDataset
    from nnpipe.datasets.synthetic import SyntheticSoundsDataset as SyntheticSoundsDataset
    from nnpipe.datasets.synthetic import SyntheticTabularDataset as SyntheticTabularDataset
    from nnpipe.datasets.synthetic import SyntheticVectorsDataset as SyntheticVectorsDataset
    from nnpipe.datasets.synthetic_pictures import (
        SyntheticDefectsDataset as SyntheticDefectsDataset,
    )
    from nnpipe.datasets.synthetic_pictures import (
        SyntheticDetectionDataset as SyntheticDetectionDataset,
    )
    from nnpipe.datasets.synthetic_pictures import (
        SyntheticEmbeddingDataset as SyntheticEmbeddingDataset,
    )
    from nnpipe.datasets.synthetic_pictures import (
        SyntheticInstancesDataset as SyntheticInstancesDataset,
    )
    from nnpipe.datasets.synthetic_pictures import SyntheticPosesDataset as SyntheticPosesDataset
    from nnpipe.datasets.tabular import TabularClassificationDataset as TabularClassificationDataset
    from nnpipe.datasets.tabular import TabularRegressionDataset as TabularRegressionDataset
    from nnpipe.datasets.texts import PromptsDataset as PromptsDataset
    from nnpipe.datasets.texts import SyntheticPromptsDataset as SyntheticPromptsDataset
    from nnpipe.datasets.texts import TextClassificationDataset as TextClassificationDataset
    from nnpipe.datasets.wav_files import WavFolderDataset as WavFolderDataset
    from nnpipe.datasets.yolo_folder import YOLOFolderDataset as YOLOFolderDataset

__getattr__ = lazy_getattr(
    __name__,
    {
        "anomaly_folder": ("AnomalyFolderDataset", "AnomalySoundsDataset"),
        "anomaly_scores": ("AnomalyScoresDataset",),
        "arrays": ("ArraysDataset",),
        "cifar10": ("CIFAR10Dataset",),
        "coco": ("COCODataset",),
        "coco_instances": ("COCOInstancesDataset",),
        "coco_results": ("COCOResultsDataset",),
        "digits": ("DigitsDataset", "WornDigitsDataset"),
        "image_files": ("ImageFolderDataset",),
        "in_memory": ("InMemoryDataset",),
        "magic_wand": ("MagicWandDataset",),
        "mask_folder": ("MaskFolderDataset",),
        "mnist": ("FashionMNISTDataset", "MNISTDataset"),
        "open_images": ("OpenImagesDataset",),
        "pascal_voc": ("PascalVOCDataset", "PascalVOCMasksDataset"),
        "pets": ("PetDataset",),
        "plugin": ("PluginDataset",),
        "posed_images": ("COCOKeypointsDataset", "KeypointsTableDataset"),
        "series": ("SeriesDataset", "SeriesFolderDataset"),
        "series_anomalies": ("SeriesAnomaliesDataset", "SeriesScoresDataset"),
        "speech_commands": ("SpeechCommandsDataset",),
        "synthetic": (
            "SyntheticAnomaliesDataset",
            "SyntheticImagesDataset",
            "SyntheticRegressionDataset",
            "SyntheticSegmentationDataset",
            "SyntheticSeriesAnomaliesDataset",
            "SyntheticSeriesDataset",
            "SyntheticSoundsDataset",
            "SyntheticTabularDataset",
            "SyntheticVectorsDataset",
        ),
        "synthetic_pictures": (
            "SyntheticDefectsDataset",
            "SyntheticDetectionDataset",
            "SyntheticEmbeddingDataset",
            "SyntheticInstancesDataset",
            "SyntheticPosesDataset",
        ),
        "tabular": ("TabularClassificationDataset", "TabularRegressionDataset"),
        "texts": ("PromptsDataset", "SyntheticPromptsDataset", "TextClassificationDataset"),
        "wav_files": ("WavFolderDataset",),
        "yolo_folder": ("YOLOFolderDataset",),
    },
)
