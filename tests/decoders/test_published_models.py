"""Published detectors have the mAP that their boxes have by pycocotools, with preparation,
decoder and data set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from installed import needs

from nnpipe.core.evaluation import Evaluation
from nnpipe.datasets import YOLOFolderDataset
from nnpipe.measuring.sample_route import SampleRoute
from nnpipe.modelwrappers import ONNXModel
from nnpipe.tasks.detection.task import Detection

DATA = Path(__file__).parents[3] / "shared" / "data"
FASTESTDET: dict[str, Any] = {
    "model_path": DATA / "models/fastestdet/FastestDet.onnx",
    "fit": "squeeze",
    "channel_order": "bgr",
    "scale": 255,
    "decoder": "FastestDetDecoder",
}
YOLOX: dict[str, Any] = {
    "model_path": DATA / "models/yolox/yolox_nano.onnx",
    "fit": "letterbox",
    "channel_order": "bgr",
    "scale": 1,
    "decoder": "YOLOXDecoder",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options", "wanted"),
    [
        (FASTESTDET, (), (0.2109, 0.3813)),
        (FASTESTDET, ("score_threshold=0.25",), (0.2100, 0.3770)),
        (YOLOX, (), (0.3565, 0.5158)),
        (YOLOX, ("score_threshold=0.25", "overlap=0.45"), (0.3080, 0.4311)),
    ],
)
def test_published_detectors(
    model: dict[str, Any], options: tuple[str, ...], wanted: tuple[float, float]
) -> None:
    needs("onnxruntime", "PIL")
    if not (DATA / "coco_val64").is_dir():
        pytest.skip(f"{DATA / 'coco_val64'} is not there")
    dataset = YOLOFolderDataset(dataset_root=DATA / "coco_val64")
    dataset.prepare()
    wrapper = ONNXModel(**model, decoder_options=options).for_dataset(dataset.spec)
    parts = []
    with wrapper.open() as live, live.session() as session:
        route = SampleRoute(dataset, wrapper, wrapper.io, session.io, 1)
        for item in route.items(dataset.split("test")):
            session.put(item.inputs)
            session.run()
            parts += route.evaluate([item], [session.get()])
    found = Evaluation.concat(parts)
    assert [Detection().metric(name).compute(found) for name in ("map", "ap50")] == pytest.approx(
        wanted, abs=1e-3
    )
    assert found.settings["decoder"]["arguments"]["suppression"] == "outside"
