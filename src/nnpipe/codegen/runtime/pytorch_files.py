"""Reading and writing files with PyTorch alone: not even numpy is needed."""

# mypy: ignore-errors
# ruff: noqa: F821

import array
import ast
import json
import struct
import sys
import zipfile


def read_array(data):
    """Read an array as numpy stores it (.npy), without numpy."""
    if data[:6] != b"\x93NUMPY":
        sys.exit("no array of numpy's")
    start, width = (10, "<H") if data[6] == 1 else (12, "<I")
    (length,) = struct.unpack(width, data[8:start])
    header = ast.literal_eval(data[start : start + length].decode("latin1"))
    kinds = {
        "b1": torch.bool, "u1": torch.uint8, "i1": torch.int8, "i2": torch.int16,
        "i4": torch.int32, "i8": torch.int64, "f2": torch.float16, "f4": torch.float32,
        "f8": torch.float64,
    }  # fmt: skip
    kind = kinds.get(header["descr"].lstrip("<|="))
    if kind is None or header["fortran_order"]:
        sys.exit("an array of a kind that is not read here: " + header["descr"])
    values = bytearray(data[start + length :])
    shape = header["shape"]
    return torch.frombuffer(values, dtype=kind).reshape(shape) if values else torch.zeros(shape, dtype=kind)


def read_arrays(path):
    """Read all arrays of an .npz file."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            return {name.removesuffix(".npy"): read_array(archive.read(name)) for name in names}
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    except zipfile.BadZipFile:
        sys.exit(f"{path}: is no .npz file")


def read_weights(path):
    """Read the tensors of a .safetensors file."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    found = {}
    for name, item in header.items():
        if name != "__metadata__":
            start, end = (8 + length + place for place in item["data_offsets"])
            kind = {"F32": torch.float32, "I64": torch.int64}[item["dtype"]]
            values = bytearray(data[start:end])
            found[name] = torch.frombuffer(values, dtype=kind).reshape(item["shape"])
    return found


def write_weights(path, network):
    """Write the tensors of a network to a .safetensors file."""
    header, parts, place = {}, [], 0
    for name, value in network.state_dict().items():
        whole = value.dtype == torch.int64
        letter, kind = ("q", "I64") if whole else ("f", "F32")
        part = array.array(letter, value.detach().cpu().flatten().tolist()).tobytes()
        shape, ends = list(value.shape), [place, place + len(part)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": ends}
        parts.append(part)
        place += len(part)
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    partial.replace(path)


def load_weights(network, path):
    """Put stored weights into a network."""
    missing, unknown = network.load_state_dict(read_weights(path), strict=False)
    lost = [name for name in missing if not name.endswith("num_batches_tracked")]
    if lost or unknown:
        sys.exit(f"{path}: weights of another network: {[*lost, *unknown][:3]}")


def keep_weights(before, after, pairs):
    """Copy the weights of the layers that stayed from one network to another."""
    old, new = before.state_dict(), after.state_dict()
    for source, target in pairs:
        new[target] = old[source]
    after.load_state_dict(new)
