"""Functions for scripts of PyTorch that read and write files without numpy."""

# mypy: ignore-errors
# ruff: noqa: F821

import ast
import ctypes
import json
import struct
import sys


def create_tensor(data, kind, shape):
    """Return the tensor that bytes hold; without bytes, a tensor of zeros."""
    return (
        torch.frombuffer(data, dtype=kind).reshape(shape)
        if data
        else torch.zeros(shape, dtype=kind)
    )


def read_array(data):
    """Return the array in the content of an .npy file as a tensor."""
    if data[:6] != b"\x93NUMPY":
        raise ValueError("not an .npy file")
    start, width = (10, "<H") if data[6] == 1 else (12, "<I")
    (length,) = struct.unpack(width, data[8:start])
    header = ast.literal_eval(data[start : start + length].decode("latin1"))
    kinds = {
        "b1": torch.bool,
        "u1": torch.uint8,
        "i1": torch.int8,
        "i2": torch.int16,
        "i4": torch.int32,
        "i8": torch.int64,
        "f2": torch.float16,
        "f4": torch.float32,
        "f8": torch.float64,
    }
    kind = kinds.get(header["descr"].lstrip("<|="))
    if kind is None:
        sys.exit("an array has an unsupported type: " + header["descr"])
    values, shape = bytearray(data[start + length :]), header["shape"]
    if header["fortran_order"]:
        return create_tensor(values, kind, shape[::-1]).permute(*reversed(range(len(shape))))
    return create_tensor(values, kind, shape)


def read_weights(path):
    """Return the tensors in a .safetensors file by name."""
    kinds = {"F32": torch.float32, "I64": torch.int64}
    stored = read_stored(path, kinds).items()
    return {
        name: create_tensor(bytearray(data), kind, shape) for name, (kind, shape, data) in stored
    }


def write_weights(path, network):
    """Write the tensors of a network to a .safetensors file."""
    header, parts, place = {}, [], 0
    for name, value in network.state_dict().items():
        kind, stored = (
            ("I64", torch.int64) if value.dtype == torch.int64 else ("F32", torch.float32)
        )
        values = value.detach().to("cpu", stored).contiguous()
        part = ctypes.string_at(values.data_ptr(), values.numel() * values.element_size())
        shape, ends = list(value.shape), [place, place + len(part)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": ends}
        parts.append(part)
        place += len(part)
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".partial")
    unfinished.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    unfinished.replace(path)


def load_weights(network, path):
    """Load the weights of a .safetensors file into a network."""
    missing, unknown = network.load_state_dict(read_weights(path), strict=False)
    lost = [name for name in missing if not name.endswith("num_batches_tracked")]
    if lost or unknown:
        sys.exit(f"{path}: weights of another network: {[*lost, *unknown][:3]}")


def copy_weights(before, after, pairs):
    """Copy the weights in `pairs` from one network to another."""
    old, new = before.state_dict(), after.state_dict()
    for source, target in pairs:
        new[target] = old[source]
    after.load_state_dict(new)
