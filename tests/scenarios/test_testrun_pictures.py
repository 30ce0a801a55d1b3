"""``nnpipe testrun`` draws into pictures what models say, side by side for two of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from finder_model import OPTIONS, write_finder
from installed import needs

from nnpipe.scenarios.testrun import main

needs("onnx", "onnxruntime", "PIL")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a grey picture, and one with a red square."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    grey = np.full((128, 256, 3), 90, np.uint8)
    Image.fromarray(grey).save("pictures/a-grey.png")
    grey[32:96, 64:128] = (250, 40, 40)
    Image.fromarray(grey).save("pictures/b-red.png")
    write_finder(tmp_path / "finder.onnx")
    (tmp_path / "names.txt").write_text("red\ngreen\n")
    return tmp_path


def shown() -> list[str]:
    return sorted(path.name for path in Path("tried/output").iterdir())


def test_boxes_are_drawn_into_pictures(capfd: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    assert main(["finder.onnx", "pictures", "tried", *OPTIONS, "--class-list", "names.txt"]) == 0
    assert "page: tried/index.html (2 files)" in capfd.readouterr().out
    assert shown() == ["1-a-grey.jpg", "2-b-red.jpg"]
    grey, red = (
        np.asarray(Image.open(f"tried/output/{name}")).astype(int)[-128:] for name in shown()
    )
    blue = (red[..., 2] > 120) & (red[..., 0] < 60)  # the first class's colour
    assert np.ptp(np.argwhere(blue), axis=0) == pytest.approx([64, 64], abs=14)
    assert not ((grey[..., 2] > 120) & (grey[..., 0] < 60)).any()
    assert "data:image/jpeg" in Path("tried/index.html").read_text()


def test_of_two_models_pictures_that_they_see_differently_come_first(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from PIL import Image

    write_finder(Path("rounded.onnx"), step=2.5)
    assert main(["finder.onnx", "pictures", "tried", "--beside", "rounded.onnx", *OPTIONS]) == 0
    assert shown() == ["1-b-red.jpg", "2-a-grey.jpg"]
    with Image.open("tried/output/1-b-red.jpg") as drawn:
        assert drawn.width == 2 * 256 + 4
    assert (
        "2 pictures, 1 of which the models see differently come first"
        in Path("tried/index.html").read_text()
    )


@pytest.mark.slow
def test_the_second_model_may_have_other_options(capfd: pytest.CaptureFixture[str]) -> None:
    own = "--scale 255 --fit squeeze --decoder YOLODecoder --decoder-options score_threshold=0.2"
    assert (
        main(
            [
                "finder.onnx",
                "pictures",
                "tried",
                "--beside",
                "finder.onnx",
                "--beside-options",
                own,
                *OPTIONS,
            ]
        )
        == 0
    )
    assert (
        "2 pictures, 0 of which the models see differently" in Path("tried/index.html").read_text()
    )
    blind = own.replace("--scale 255", "--scale 2550")
    words = [
        "finder.onnx",
        "pictures",
        "tried",
        "--every",
        "2",
        "--beside",
        "finder.onnx",
        "--beside-options",
        blind,
    ]
    assert main([*words, *OPTIONS]) == 0
    assert shown() == ["1-a-grey.jpg"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nowhere",), "nowhere: no such folder, image or video; a camera is named camera"),
        (("camera:x",), "camera:N with its number"),
        (("names.txt",), "neither an image nor a video; --plugin names"),
        (("pictures", "--task", "embedding"), "'embedding' does not draw into pictures"),
        (
            ("pictures", "--beside", "finder.onnx", "--beside-options", "--scal 2"),
            "did you mean --scale?",
        ),
        (("pictures", "--beside", "finder.onnx", "--beside-options", "'"), "No closing quotation"),
        (
            ("pictures", "--beside", "finder.onnx", "--beside-options", "--scale 2"),
            "for detection, and the other for",
        ),
        (("pictures", "--beside-options", "--scale 2"), "name its file with --beside"),
        (("pictures", "--keep-going"), "is for plugins"),
        (("pictures", "--plugin", "x.py", "--beside", "finder.onnx"), "is for pictures"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(
    words: tuple[str, ...], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["finder.onnx", words[0], "tried", *words[1:], *OPTIONS]) == 2
    assert told in capfd.readouterr().err
    assert not Path("tried").exists()


def test_a_video_needs_opencv(capfd: pytest.CaptureFixture[str]) -> None:
    from importlib.util import find_spec

    Path("street.mp4").write_bytes(b"no video")
    assert main(["finder.onnx", "street.mp4", "tried", *OPTIONS]) == 2
    told = "OpenCV finds no picture in it" if find_spec("cv2") else "pip install 'nnpipe[video]'"
    (line,) = capfd.readouterr().err.splitlines()
    assert told in line
