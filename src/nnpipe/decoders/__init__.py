"""Output decoders, which turn the raw outputs of models into predictions.

This package offers the classes; each is imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.decoders.anomaly_maps import AnomalyMapDecoder as AnomalyMapDecoder
    from nnpipe.decoders.fastestdet import FastestDetDecoder as FastestDetDecoder
    from nnpipe.decoders.finished_boxes import FinishedBoxesDecoder as FinishedBoxesDecoder
    from nnpipe.decoders.heat_maps import HeatMapDecoder as HeatMapDecoder
    from nnpipe.decoders.mask_rcnn import MaskRCNNDecoder as MaskRCNNDecoder
    from nnpipe.decoders.movenet import MoveNetDecoder as MoveNetDecoder
    from nnpipe.decoders.reconstruction_error import ReconstructionErrorDecoder as ReconstructionErrorDecoder
    from nnpipe.decoders.scored_boxes import ScoredBoxesDecoder as ScoredBoxesDecoder
    from nnpipe.decoders.segmentation import SegmentationDecoder as SegmentationDecoder
    from nnpipe.decoders.ssd import SSDDecoder as SSDDecoder
    from nnpipe.decoders.yolo import YOLODecoder as YOLODecoder
    from nnpipe.decoders.yolo_heads import YOLOHeadsDecoder as YOLOHeadsDecoder
    from nnpipe.decoders.yolo_masks import YOLOMasksDecoder as YOLOMasksDecoder
    from nnpipe.decoders.yolox import YOLOXDecoder as YOLOXDecoder

__getattr__ = lazy_getattr(
    __name__,
    {
        "anomaly_maps": ("AnomalyMapDecoder",),
        "fastestdet": ("FastestDetDecoder",),
        "finished_boxes": ("FinishedBoxesDecoder",),
        "heat_maps": ("HeatMapDecoder",),
        "mask_rcnn": ("MaskRCNNDecoder",),
        "movenet": ("MoveNetDecoder",),
        "reconstruction_error": ("ReconstructionErrorDecoder",),
        "scored_boxes": ("ScoredBoxesDecoder",),
        "segmentation": ("SegmentationDecoder",),
        "ssd": ("SSDDecoder",),
        "yolo": ("YOLODecoder",),
        "yolo_heads": ("YOLOHeadsDecoder",),
        "yolo_masks": ("YOLOMasksDecoder",),
        "yolox": ("YOLOXDecoder",),
    },
)
