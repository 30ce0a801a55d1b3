"""Darknet's files: what is read, and that damaged or absurd files are refused in one line before
memory is taken.
"""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from darknet_files import TINY, Section, drawn_parameters, drawn_sections, write_cfg, write_weights
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.darknet import DarknetNetwork, read_network, read_weights

IN_A_FOLDER = settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def network(tmp_path: Path) -> DarknetNetwork:
    return read_network(write_cfg(tmp_path / "tiny.cfg", TINY))


def refused(path: Path, *, weights_of: DarknetNetwork | None = None) -> str:
    def read() -> object:
        return read_network(path) if weights_of is None else read_weights(path, weights_of)

    with pytest.raises(ArtifactError) as caught:
        read()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed(number: int, **options: object) -> list[Section]:
    """Return the tiny network with other options of one section."""
    return [
        (kind, own | options) if n == number else (kind, own) for n, (kind, own) in enumerate(TINY)
    ]


def test_shapes_heads_and_anchors(network: DarknetNetwork) -> None:
    assert network.picture == (3, 32, 64)
    assert [layer.shape for layer in network.layers] == [
        (4, 32, 64),
        (4, 16, 32),
        (8, 8, 16),
        (8, 8, 16),
        (8, 8, 16),
        (8, 8, 16),
        (14, 8, 16),
        (14, 8, 16),
        (8, 8, 16),
        (8, 16, 32),
        (12, 16, 32),
        (14, 16, 32),
        (14, 16, 32),
    ]
    assert {n: head.anchors for n, head in network.heads.items()} == {
        7: ((12, 20), (30, 25)),
        12: ((4, 5), (8, 9)),
    }
    assert network.weights == 3 * 4 * 9 + 16 + 4 * 8 * 9 + 32 + 64 + 32 + 8 * 14 + 14 + 12 * 14 + 14


@pytest.mark.parametrize("version", [(0, 1), (0, 2), (2, 5)])
def test_both_forms_of_the_header(
    network: DarknetNetwork, tmp_path: Path, version: tuple[int, int]
) -> None:
    parameters = drawn_parameters(TINY)
    found = read_weights(write_weights(tmp_path / "tiny.weights", parameters, version), network)
    assert list(found) == [0, 2, 3, 6, 11]
    np.testing.assert_array_equal(found[6][0], parameters[3]["kernel"])
    np.testing.assert_array_equal(found[11][1], parameters[4]["bias"])


@IN_A_FOLDER
@given(seed=st.integers(0, 1 << 32), cut=st.integers(-64, 64).filter(bool))
def test_weights_of_another_length_are_refused(tmp_path: Path, seed: int, cut: int) -> None:
    sections = drawn_sections(seed)
    network = read_network(write_cfg(tmp_path / "drawn.cfg", sections))
    path = write_weights(tmp_path / "drawn.weights", drawn_parameters(sections, seed))
    assert sum(kernel.size for kernel, _ in read_weights(path, network).values()) < network.weights
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] if cut < 0 else whole + bytes(cut))
    assert "of another network" in refused(path, weights_of=network) or len(whole) + cut < 16


@IN_A_FOLDER
@given(data=st.data())
def test_any_cfg_is_read_or_refused_in_one_line(tmp_path: Path, data: st.DataObject) -> None:
    """Lines of a real network are dropped, doubled, swapped, and their values replaced."""
    path = write_cfg(tmp_path / "any.cfg", drawn_sections(data.draw(st.integers(0, 999))))
    lines = path.read_text().splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        value = data.draw(
            st.sampled_from(
                ["", "-1", "0", "7", "99999", "1e9", "9" * 30, "-1,-2", "nan", "leaky", "\x00"]
            )
        )
        name = lines[place].partition("=")[0]
        lines[place] = data.draw(
            st.sampled_from([f"{name}={value}", value, "", f"[{value}]", "[yolo]", "[route]"])
        )
        lines.insert(data.draw(st.integers(0, len(lines))), data.draw(st.sampled_from(lines)))
    path.write_text("\n".join(lines))
    try:
        found = read_network(path)
    except ArtifactError:
        refused(path)
        return
    assert found.heads
    assert all(min(layer.shape) > 0 for layer in found.layers)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (changed(0, width=1 << 20), "width is 1048576, not from 1 to 8192"),
        (changed(0, height=-3), "height is -3"),
        (changed(0, width=8192, height=8192), "larger than any YOLO"),
        (changed(1, filters=1 << 30), "filters is 1073741824, not from 1 to 65536"),
        (changed(1, filters="9" * 5000), "whole number"),
        (changed(10, stride=32), "different heights"),
        (changed(5, **{"from": -4}), "adds layers of different shapes"),
        (changed(5, **{"from": 3000}), "does not come before it"),
        (changed(9, layers="-1"), "take the boxes of layer 7"),
        (changed(8, classes=3), "need 16 channels, not 14"),
        (changed(8, mask="2,4"), "mask names an anchor"),
        (changed(8, scale_x_y="1.05"), "versions after 3"),
        (changed(3, activation="gelu"), "activation 'gelu' is none of linear, leaky"),
        ([*TINY, ("lstm", {"output": 4})], r"\[lstm\] in line \d+ is none of convolutional"),
        (TINY[1:], r"begin with the section \[net\]"),
        (TINY[:7], r"no section \[yolo\]"),
        ([TINY[0]] + [("upsample", {"stride": 1})] * 1100, "more than 1024 sections"),
        ([], r"begin with the section \[net\]"),
    ],
)
def test_absurd_networks_are_refused(tmp_path: Path, sections: list[Section], message: str) -> None:
    assert re.search(message, refused(write_cfg(tmp_path / "absurd.cfg", sections)))


def test_what_is_no_cfg_is_refused(tmp_path: Path) -> None:
    for content, message in (
        (b"\xff\xfe\x00", "no text"),
        (b"x" * (2 << 20), "larger than"),
        (b"width=3\n[net]", "line 1"),
        (b"[net", "line 1"),
        (b"[\x1b[2J]", "line 1"),
    ):
        path = tmp_path / "no.cfg"
        path.write_bytes(content)
        assert message in refused(path)
    assert "no such" in refused(tmp_path / "nowhere.cfg")


def test_weights_are_compared_with_the_network_before_memory_is_taken(
    network: DarknetNetwork, tmp_path: Path
) -> None:
    path = tmp_path / "huge.weights"
    with open(path, "wb") as file:
        file.write(np.array([0, 2, 0, 0, 0], "<i4").tobytes())
        file.truncate(8 << 30)  # a hole, which takes no place on the disk
    tracemalloc.start()
    try:
        assert "of another network" in refused(path, weights_of=network)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_weights_that_are_none_are_refused(network: DarknetNetwork, tmp_path: Path) -> None:
    path, parameters = tmp_path / "bad.weights", drawn_parameters(TINY)
    assert "no such" in refused(path, weights_of=network)
    path.write_bytes(b"\x00" * 15)
    assert "header" in refused(path, weights_of=network)
    path.write_bytes(b"\xff" * 4000)
    assert "begin with its version" in refused(path, weights_of=network)
    parameters[0]["variance"][0] = -1
    assert "negative variance" in refused(write_weights(path, parameters), weights_of=network)
    parameters[0]["variance"][0] = np.inf
    assert "finite" in refused(write_weights(path, parameters), weights_of=network)


def conv(filters: int, size: int, stride: int = 1) -> Section:
    """Return a convolution as in the published networks."""
    options = {"batch_normalize": 1, "filters": filters, "size": size, "stride": stride, "pad": 1}
    return "convolutional", {**options, "activation": "leaky"}


def head() -> list[Section]:
    """Return a head for COCO's 80 classes."""
    last = {"size": 1, "stride": 1, "pad": 1, "filters": 255, "activation": "linear"}
    anchors = ",".join(map(str, range(1, 19)))
    return [
        ("convolutional", last),
        ("yolo", {"mask": "0,1,2", "anchors": anchors, "classes": 80, "num": 9}),
    ]


def yolov3() -> list[Section]:
    """Return the layers of yolov3.cfg."""
    found: list[Section] = [("net", {"width": 416, "height": 416, "channels": 3}), conv(32, 3)]
    for filters, blocks in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        found.append(conv(filters, 3, 2))
        for _ in range(blocks):
            found += [
                conv(filters // 2, 1),
                conv(filters, 3),
                ("shortcut", {"from": -3, "activation": "linear"}),
            ]
    for filters, back in ((512, None), (256, 61), (128, 36)):
        if back is not None:
            found += [("route", {"layers": -4}), conv(filters, 1), ("upsample", {"stride": 2})]
            found.append(("route", {"layers": f"-1, {back}"}))
        found += [conv(filters, 1), conv(2 * filters, 3)] * 3 + head()
    return found


def yolov3_tiny() -> list[Section]:
    """Return the layers of yolov3-tiny.cfg."""
    found: list[Section] = [("net", {"width": 416, "height": 416, "channels": 3})]
    for filters in (16, 32, 64, 128, 256):
        found += [conv(filters, 3), ("maxpool", {"size": 2, "stride": 2})]
    found += [
        conv(512, 3),
        ("maxpool", {"size": 2, "stride": 1}),
        conv(1024, 3),
        conv(256, 1),
        conv(512, 3),
        *head(),
    ]
    found += [
        ("route", {"layers": -4}),
        conv(128, 1),
        ("upsample", {"stride": 2}),
        ("route", {"layers": "-1, 8"}),
    ]
    return [*found, conv(256, 3), *head()]


@pytest.mark.parametrize(
    ("sections", "grids", "size"),
    [
        (yolov3(), {82: 13, 94: 26, 106: 52}, 248_007_048),
        (yolov3_tiny(), {16: 13, 23: 26}, 35_434_956),
    ],
)
def test_published_networks_have_the_size_of_their_published_weights(
    tmp_path: Path, sections: list[Section], grids: dict[int, int], size: int
) -> None:
    network = read_network(write_cfg(tmp_path / "published.cfg", sections))
    assert {number: network.layers[number].shape for number in network.heads} == {
        number: (255, side, side) for number, side in grids.items()
    }
    assert 20 + 4 * network.weights == size
