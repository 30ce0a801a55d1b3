"""Models for masks are measured from their ONNX files on pictures with polygons, batches of YOLO
and one by one.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from installed import needs

from nnpipe.core.evaluation import Evaluation
from nnpipe.datasets import COCOInstancesDataset
from nnpipe.measuring.sample_route import SampleRoute
from nnpipe.modelwrappers.files.onnx import ONNXModel

pytestmark = pytest.mark.slow


def squares(root: Path) -> COCOInstancesDataset:
    """Write pictures of a bright square each, whose outline is stated."""
    from PIL import Image

    (root / "annotations").mkdir()
    (root / "val").mkdir()
    random = np.random.default_rng(0)
    images, annotations = [], []
    for number in range(6):
        height, width = (int(each) for each in random.integers(60, 120, 2))
        pixels = np.full((height, width, 3), 40, np.uint8)
        left, top, side = (int(each) for each in random.integers([5, 5, 20], [30, 30, 28]))
        pixels[top : top + side, left : left + side] = 220
        Image.fromarray(pixels).save(root / "val" / f"{number}.png")
        images.append(
            {"id": number, "file_name": f"{number}.png", "height": height, "width": width}
        )
        right, bottom = left + side, top + side
        outline = [left, top, right, top, right, bottom, left, bottom]
        annotations.append(
            {"id": number, "image_id": number, "category_id": 1, "segmentation": [outline]}
        )
    stated = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 1, "name": "square"}],
    }
    (root / "annotations" / "instances_val.json").write_text(json.dumps(stated))
    return COCOInstancesDataset(dataset_root=root)


def exported(path: Path, of_boxes: bool) -> None:
    """Write a model that says that bright pixels are one thing: by a prototype, or in one box of
    the whole input.
    """
    import torch

    class Prototypes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Parameter(
                torch.tensor([[32.0], [32.0], [64.0], [64.0], [0.9], [1.0]])
            )

        def forward(self, image):
            bright = image.mean(dim=1, keepdim=True) - 0.5
            boxes = self.one + 0 * bright.mean(dim=(1, 2, 3), keepdim=True)[:, 0]
            return torch.cat([boxes] + [0 * boxes] * 7, dim=2), bright

    class Boxes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.box = torch.nn.Parameter(torch.tensor([[0.0, 0.0, 64.0, 64.0]]))
            self.score = torch.nn.Parameter(torch.tensor([0.9]))

        def forward(self, image):
            bright = image.mean(dim=1, keepdim=True)
            # a number of boxes that depends on values
            sure = torch.nonzero(bright.flatten().max()[None] > 0.5)[:, 0]
            return (
                self.box[sure - sure],
                torch.ones_like(sure),
                self.score[sure - sure],
                bright[sure - sure],
            )

    names = ["boxes", "labels", "scores", "masks"] if of_boxes else ["output0", "output1"]
    torch.onnx.export(
        (Boxes() if of_boxes else Prototypes()).eval(),
        (torch.rand(1, 3, 64, 64),),
        str(path),
        dynamo=False,
        input_names=["images"],
        output_names=names,
        dynamic_axes={name: {0: "k"} for name in names}
        if of_boxes
        else {name: {0: "n"} for name in ("images", *names)},
    )


@pytest.mark.filterwarnings(
    "ignore:You are using the legacy TorchScript-based ONNX export:DeprecationWarning"
)
@pytest.mark.parametrize(("decoder", "size"), [("YOLOMasksDecoder", 3), ("MaskRCNNDecoder", 1)])
def test_bright_squares_are_found_by_models_of_either_kind(
    decoder: str, size: int, tmp_path: Path
) -> None:
    needs("torch", "onnx", "onnxruntime", "PIL")
    dataset = squares(tmp_path)
    dataset.prepare()
    exported(tmp_path / "net.onnx", of_boxes=size == 1)
    wrapper = ONNXModel(
        model_path=tmp_path / "net.onnx", scale=255.0, fit="letterbox-centre", decoder=decoder
    ).for_dataset(dataset.spec)
    with wrapper.open(wrapper.model_path) as live, live.session() as session:
        route = SampleRoute(dataset, wrapper, wrapper.io, session.io, size)
        items = list(route.items(np.arange(6)))
        parts = [
            part for item in items for part in route.evaluate([item], [session.infer(item.inputs)])
        ]
    found = Evaluation.concat(parts)
    assert dataset.task.metric("mask_ap50").compute(found) == 1
    assert dataset.task.primary.compute(found) > 0.7
