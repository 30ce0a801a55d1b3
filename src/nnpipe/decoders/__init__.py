"""Output decoders, which turn the raw outputs of models into predictions.

This package offers the classes; each is imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.decoders.box_decoders import FinishedBoxesDecoder as FinishedBoxesDecoder
    from nnpipe.decoders.box_decoders import MaskRCNNDecoder as MaskRCNNDecoder
    from nnpipe.decoders.box_decoders import ScoredBoxesDecoder as ScoredBoxesDecoder
    from nnpipe.decoders.box_decoders import SSDDecoder as SSDDecoder
    from nnpipe.decoders.key_points import HeatMapDecoder as HeatMapDecoder
    from nnpipe.decoders.key_points import MoveNetDecoder as MoveNetDecoder
    from nnpipe.decoders.pixel_maps import AnomalyMapDecoder as AnomalyMapDecoder
    from nnpipe.decoders.pixel_maps import ReconstructionErrorDecoder as ReconstructionErrorDecoder
    from nnpipe.decoders.pixel_maps import SegmentationDecoder as SegmentationDecoder
    from nnpipe.decoders.yolo import FastestDetDecoder as FastestDetDecoder
    from nnpipe.decoders.yolo import YOLODecoder as YOLODecoder
    from nnpipe.decoders.yolo import YOLOHeadsDecoder as YOLOHeadsDecoder
    from nnpipe.decoders.yolo import YOLOMasksDecoder as YOLOMasksDecoder
    from nnpipe.decoders.yolo import YOLOXDecoder as YOLOXDecoder

__getattr__ = lazy_getattr(
    __name__,
    {
        "box_decoders": (
            "FinishedBoxesDecoder",
            "MaskRCNNDecoder",
            "SSDDecoder",
            "ScoredBoxesDecoder",
        ),
        "key_points": ("HeatMapDecoder", "MoveNetDecoder"),
        "pixel_maps": ("AnomalyMapDecoder", "ReconstructionErrorDecoder", "SegmentationDecoder"),
        "yolo": (
            "FastestDetDecoder",
            "YOLODecoder",
            "YOLOHeadsDecoder",
            "YOLOMasksDecoder",
            "YOLOXDecoder",
        ),
    },
)
