"""Every reader gives what other libraries wrote, and refuses what is damaged or would not fit."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.readers.reader import DataReader, create_reader
from nnpipe.experiment.readers.tfrecord import (
    TFRecordReader,
    compute_crc32c,
    compute_masked_crc32c,
    parse_example,
)


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_archives_of_arrays(tmp_path):
    arrays = {
        "x": np.arange(6.0).reshape(3, 2),
        "y": np.array(["a", "b", "c"]),
        "z": np.zeros((3, 0), np.int8),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        found = create_reader(tmp_path / "a.npz").read()
        assert list(found) == list(arrays)
        assert all(np.array_equal(found[name], arrays[name]) for name in arrays)


def test_archives_that_lie_or_unpickle_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}], object))
    with pytest.raises(DatasetError, match=r"a\.npz: x\.npy: holds pickled objects"):
        create_reader(tmp_path / "a.npz").read()
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    )
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("x.npy", head.getvalue() + b"\0" * 64)
    with pytest.raises(DatasetError, match="is not what it holds"):
        create_reader(tmp_path / "b.npz").read()
    np.savez_compressed(tmp_path / "c.npz", x=np.zeros(10**6))
    small = type(create_reader(tmp_path / "c.npz"))(path=tmp_path / "c.npz", max_bytes=10**6)
    with pytest.raises(DatasetError, match="above the 1,000,000 allowed"):
        small.read()


@pytest.mark.parametrize(
    "shape",
    [
        "(0, 1" + "0" * 30 + ")",
        "(" * 5000,
        "(True,)",
        "(-1,)",
        "(2.0,)",
        "('a',)",
        "()" * 3,
        "(1" + "0" * 5000 + ",)",
    ],
)
def test_headers_of_arrays_that_lie_are_refused_in_one_line(tmp_path, shape):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr(
            "x.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + b"\0" * 64
        )
    with pytest.raises(
        DatasetError, match=r"a\.npz: x\.npy: (.* is not what it holds|its header is none)"
    ) as caught:
        create_reader(tmp_path / "a.npz").read()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


@pytest.mark.slow
def test_a_small_archive_of_much_is_refused_unless_it_is_allowed(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(40 << 20))
    with pytest.raises(
        DatasetError,
        match=r"335,544,\d+ bytes or more, above the 268,435,456 allowed; give max_bytes",
    ):
        create_reader(tmp_path / "a.npz").read()


def test_texts_of_hdf5_count_as_long_as_they_are(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        item = file.create_dataset(
            "x", (2000,), h5py.string_dtype(), chunks=(2000,), compression="gzip"
        )
        item[:] = ["ä" * 1000] * 2000
    kind = type(create_reader(path))
    assert kind(path=path, max_bytes=6_000_000).read()["x"] == ["ä" * 1000] * 2000
    with pytest.raises(
        DatasetError, match=r"a\.h5: x takes [0-9,]+ bytes or more, above the 1,000,000 allowed"
    ):
        kind(path=path, max_bytes=1_000_000).read()
    with h5py.File(path, "w") as file:
        file["x"] = np.array([["a", "b"]], object)
    with pytest.raises(DatasetError, match="texts with 2 axes are no column"):
        create_reader(path).read()


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(6, dtype=np.int16).reshape(3, 2)
        file["group/text"] = ["a", "ä", ""]
        file["link"] = h5py.ExternalLink("other.h5", "x")
    found = create_reader(tmp_path / "a.h5").read()
    assert found["x"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert found["group/text"] == ["a", "ä", ""]
    assert set(found) == {"x", "group/text"}
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("x", (1 << 40,), "f8", chunks=(1024,))
    with pytest.raises(DatasetError, match="above the"):
        create_reader(tmp_path / "b.h5").read()
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("x", (4,), "u1", external=[("/etc/hostname", 0, 4)])
    with pytest.raises(DatasetError, match="its data lie in other files"):
        create_reader(tmp_path / "c.h5").read()


def test_tables(tmp_path):
    path = written(tmp_path, "a.csv", '\ufeffa,b,"c ""d"""\n1,,x\n-2,1e3,"y\nz"\n')
    found = create_reader(path).read()
    assert found["a"].dtype == np.int64
    assert found["a"].tolist() == [1, -2]
    assert np.array_equal(found["b"], [np.nan, 1000.0], equal_nan=True)
    assert found['c "d"'] == ["x", "y\nz"]
    assert create_reader(written(tmp_path, "b.tsv", "a\tb\n1\t2,5\n")).read()["b"] == ["2,5"]
    with pytest.raises(ConfigError, match="one character"):
        Configuration(
            {
                "x": {
                    "class": "nnpipe.experiment.readers.csv.CSVReader",
                    "arguments": {"path": "a", "delimiter": "::"},
                }
            }
        ).build()


def test_json(tmp_path):
    rows = [{"x": [1, 2], "y": "a", "z": None}, {"x": [3, 4], "y": "b", "z": 1}]
    for name, text in (
        ("a.json", json.dumps(rows)),
        ("b.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n"),
        ("c.json", json.dumps({name: [row[name] for row in rows] for name in "xyz"})),
    ):
        found = create_reader(written(tmp_path, name, text)).read()
        assert found["x"].tolist() == [[1, 2], [3, 4]]
        assert (found["y"], found["z"]) == (["a", "b"], [None, 1])
    ragged = create_reader(written(tmp_path, "d.json", '[{"x": [1]}, {"x": [1, 2]}]')).read()
    assert ragged == {"x": [[1], [1, 2]]}


def test_images(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for folder, value in (("cat", 10), ("dog", 200)):
        (tmp_path / folder).mkdir()
        image.new("RGB", (4, 3), (value, 0, 0)).save(tmp_path / folder / "1.png")
    found = create_reader(tmp_path).read()
    assert found["image"].shape == (2, 3, 4, 3)
    assert found["image"][:, 0, 0, 0].tolist() == [10, 200]
    assert (found["name"], found["label"].tolist()) == (["cat/1.png", "dog/1.png"], [0, 1])
    kind = type(create_reader(tmp_path))
    assert kind(path=tmp_path, channels=1, height=2, width=2).read()["image"].shape == (2, 2, 2, 1)
    with pytest.raises(DatasetError, match=r"1\.png takes"):
        kind(path=tmp_path, max_bytes=100).read()
    image.new("RGB", (5, 5)).save(tmp_path / "2.png")
    mixed = create_reader(tmp_path).read()
    assert [pixels.shape for pixels in mixed["image"]] == [(5, 5, 3), (3, 4, 3), (3, 4, 3)]
    assert "label" not in mixed
    (tmp_path / "3.png").write_bytes(b"no image")
    with pytest.raises(DatasetError, match=r"3\.png: no image"):
        create_reader(tmp_path).read()


def framed(*records: bytes) -> bytes:
    out = b""
    for record in records:
        length = struct.pack("<Q", len(record))
        out += (
            length
            + struct.pack("<I", compute_masked_crc32c(length))
            + record
            + struct.pack("<I", compute_masked_crc32c(record))
        )
    return out


def test_tfrecords_that_tensorflow_wrote(tmp_path):
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    feature, path = tf.train.Feature, tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(3):
            features = {
                "image": feature(bytes_list=tf.train.BytesList(value=[bytes([number]) * 5000])),
                "label": feature(int64_list=tf.train.Int64List(value=[number - 1])),
                "box": feature(float_list=tf.train.FloatList(value=[0.5, number])),
                "ragged": feature(int64_list=tf.train.Int64List(value=range(number))),
                "words": feature(bytes_list=tf.train.BytesList(value=[b"a", b""])),
            }
            writer.write(
                tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
            )
    found = create_reader(path).read()
    assert [len(image) for image in found["image"]] == [5000] * 3
    assert found["label"].dtype == np.int64
    assert found["label"].tolist() == [-1, 0, 1]
    assert found["box"].tolist() == [[0.5, 0.0], [0.5, 1.0], [0.5, 2.0]]
    assert [list(np.atleast_1d(counts)) for counts in found["ragged"]] == [[], [0], [0, 1]]
    assert found["words"] == [[b"a", b""]] * 3


@pytest.mark.parametrize("place", [0, 9, 12, 20, -1])
def test_a_flipped_bit_in_a_tfrecord_is_noticed(tmp_path, place):
    content = bytearray(framed(b"\x0a\x00", b"\x0a\x00" * 10))
    content[place] ^= 4
    path = written(tmp_path, "a.tfrecord", bytes(content))
    with pytest.raises(DatasetError, match=r"a\.tfrecord: record \d: .*(damaged|cut short)"):
        TFRecordReader(path=path).read()


@given(st.binary(max_size=60))
def test_any_bytes_are_an_example_or_refused(data):
    with contextlib.suppress(ValueError, IndexError, struct.error):
        parse_example(data)


def test_checksums_are_those_of_the_standard():
    """Vectors of RFC 3720, B.4; long texts agree with the loop for short ones."""
    assert compute_crc32c(b"123456789") == 0xE3069283
    assert compute_crc32c(bytes(32)) == 0x8A9136AA
    assert compute_crc32c(b"\xff" * 32) == 0x62A8AB43
    assert compute_crc32c(bytes(range(32))) == 0x46DD794E
    from nnpipe.experiment.readers import tfrecord

    for length in (4096, 4097, 10_000, 123_457):
        data = np.random.default_rng(length).bytes(length)
        register = 0xFFFFFFFF
        table = tfrecord._build_table().tolist()
        for byte in data:
            register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
        assert compute_crc32c(data) == register ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npz", b"PK", "no archive of arrays"),
        ("a.h5", b"nothing", "no HDF5 file"),
        ("a.csv", "a,a\n1,2\n", "no two alike"),
        ("a.csv", "a,b\n1,2\n3\n", "line 3: 1 cells, not 2"),
        ("a.csv", b"a\n\xff\n", "no table"),
        ("a.csv", 'a\n"x\n', "no table"),
        ("a.csv", "", "the first line must have a name"),
        ("a.json", "[1]", "expected a list of objects"),
        ("a.json", "{", "no JSON"),
        ("a.json", "[" * 100_000, "no JSON"),
        ("a.json", "{}", "columns must have as many samples"),
        ("a.json", '{"a": [1], "b": [1, 2]}', "a has 1, b has 2"),
        ("a.json", '[{"a": 1}, {"b": 1}]', "sample 1 and the first differ: 'a'"),
        ("a.jsonl", "", "holds no samples"),
        ("a.tfrecord", b"short", "record 0: cut short"),
        ("a.tfrecord", framed(b"\x0a\x7f"), "record 0: no example"),
    ],
)
def test_what_is_damaged_is_refused_by_name_in_one_line(tmp_path, name, content, message):
    path = written(tmp_path, name, content)
    with pytest.raises(DatasetError, match=message) as caught:
        create_reader(path).read()
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_files_that_nothing_reads_are_told(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing here reads \.xyz"):
        create_reader(tmp_path / "a.xyz")
    with pytest.raises(DatasetError, match="no such file"):
        create_reader(tmp_path / "a.csv").read()
    assert DataReader.__abstractmethods__ == {"_read"}
