from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.experiment import state_file
from nnpipe.experiment.state_file import from_bytes, read_state, to_bytes, write_state

pytest.importorskip("safetensors", reason="safetensors is not installed")

_SPEC = importlib.util.spec_from_file_location(
    "strategies", Path(__file__).with_name("strategies.py")
)
strategies = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(strategies)
STATES, same = strategies.STATES, strategies.same

MUCH = to_bytes({"bulk": np.arange(2**21 + 1, dtype=np.uint32)}, kind="test")
EXAMPLE = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "epoch": 3,
    "random": {"state": 2**127 + 1},
}


@given(STATES)
def test_any_state_comes_back_to_the_bit(state):
    assert same(from_bytes(to_bytes(state, kind="test"), kind="test"), state)


def test_tensors_come_back_to_the_bit():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    names = (
        "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 float8_e4m3fn".split()
    )
    plain = torch.arange(24).reshape(2, 3, 4)
    state = {name: plain.to(getattr(torch, name)) for name in names}
    state |= {
        "turned": plain[0].T,
        "empty": torch.empty(0, 3),
        "number": torch.tensor(2.5),
        "learned": torch.nn.Parameter(torch.ones(2)),
    }
    found = from_bytes(to_bytes(state, kind="test"), kind="test")
    for name, tensor in state.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name].to(torch.float64), tensor.detach().to(torch.float64))
        found[name].zero_()  # its memory is its own, and may be written to


def test_an_optimiser_and_its_random_state_come_back(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    layer = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    state = {
        "optimiser": optimiser.state_dict(),
        "torch": torch.get_rng_state(),
        "numpy": np.random.default_rng(5).bit_generator.state,
    }
    write_state(tmp_path / "all.state", state, kind="test")
    found = read_state(tmp_path / "all.state", kind="test")
    assert found["numpy"] == state["numpy"]
    assert torch.equal(found["torch"], state["torch"])
    assert list(found["optimiser"]["state"]) == [0, 1]
    torch.optim.Adam(layer.parameters()).load_state_dict(found["optimiser"])


def test_other_tools_read_the_arrays(tmp_path):
    from safetensors.numpy import load_file

    write_state(tmp_path / "a.state", EXAMPLE, kind="test")
    (array,) = load_file(tmp_path / "a.state").values()
    assert np.array_equal(array, EXAMPLE["weight"])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), r"state\.inner\.1: a state cannot hold builtins\.object"),
        (np.array([object()]), "cannot hold an array of object"),
        (np.zeros(2, [("a", "i4")]), "cannot hold an array of"),
        (np.longdouble(1), "cannot hold an array of"),
        (lambda: 0, "cannot hold builtins.function"),
        ("\ud800", "half a character"),
        ({1, 2}, "cannot hold builtins.set"),
    ],
)
def test_what_no_state_may_hold_is_named_by_its_place(value, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        write_state(tmp_path / "a.state", {"inner": [0, value]}, kind="test")
    assert list(tmp_path.iterdir()) == []


def test_a_state_within_itself_is_refused():
    state = {}
    state["self"] = state
    with pytest.raises(ConfigError, match="within itself"):
        to_bytes(state, kind="test")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.state"
    write_state(path, EXAMPLE, kind="test")
    with pytest.raises(ConfigError):
        write_state(path, {"a": object()}, kind="test")
    assert same(read_state(path, kind="test"), EXAMPLE)
    assert list(tmp_path.iterdir()) == [path]


@settings(deadline=None)
@given(st.data())
def test_any_damage_is_found(data):
    content = bytearray(to_bytes(EXAMPLE, kind="test"))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    try:
        found = from_bytes(bytes(content), kind="test")
    except ArtifactError:
        return
    # Spaces between the header and the arrays mean nothing; all else does.
    assert same(found, EXAMPLE)


@given(st.integers(0, 10_000))
def test_a_file_cut_short_is_refused(length):
    content = to_bytes(EXAMPLE, kind="test")
    with pytest.raises(ArtifactError):
        from_bytes(content[: length % len(content)], kind="test")


@given(st.binary(max_size=200))
def test_noise_is_refused(content):
    with pytest.raises(ArtifactError):
        from_bytes(content, kind="test")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.write_bytes(b""), "not a state file, or cut short"),
        (lambda path: path.write_bytes(b"\x80\x04\x95" + b"x" * 50), "not a state file"),
        (lambda path: path.mkdir(), "not a file|cannot be read"),
        (lambda path: path.write_bytes((2**62).to_bytes(8, "little") + b"{}"), "cut short"),
        (lambda path: path.write_bytes(to_bytes(EXAMPLE, kind="other")), "state of a 'other'"),
    ],
)
def test_what_is_no_state_file_is_refused_by_name(make, message, tmp_path):
    path = tmp_path / "a.state"
    make(path)
    with pytest.raises(ArtifactError, match=message) as caught:
        read_state(path, kind="test")
    assert str(path) in str(caught.value)


def test_a_foreign_safetensors_file_is_refused_by_name(tmp_path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(3)}, tmp_path / "foreign.safetensors", {"format": "pt"})
    with pytest.raises(ArtifactError, match=r"foreign\.safetensors: not a state file"):
        read_state(tmp_path / "foreign.safetensors", kind="test")


def test_a_newer_file_asks_for_an_upgrade(monkeypatch, tmp_path):
    monkeypatch.setattr(state_file, "SCHEMA", 7)
    write_state(tmp_path / "new.state", EXAMPLE, kind="test")
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match=r"schema 7.*upgrade nnpipe"):
        read_state(tmp_path / "new.state", kind="test")


def test_an_older_file_is_brought_up_to_date(monkeypatch, tmp_path):
    write_state(tmp_path / "old.state", {"learning_rate": 0.5}, kind="test")
    monkeypatch.setattr(state_file, "SCHEMA", 5)
    with pytest.raises(ArtifactError, match="schema 3, which this nnpipe does not read"):
        read_state(tmp_path / "old.state", kind="test")
    monkeypatch.setattr(
        state_file,
        "MIGRATIONS",
        {
            3: lambda state: {"rate": state["learning_rate"]},
            4: lambda state: {**state, "momentum": 0.9},
        },
    )
    assert read_state(tmp_path / "old.state", kind="test") == {"rate": 0.5, "momentum": 0.9}


SCHEMA_1 = (
    "MAEAAAAAAAB7Il9fbWV0YWRhdGFfXyI6eyJzaGEyNTYiOiJiOWI2YzU0YzE0MWEyNDVmNjA3NWE4ODg1NzFlNTdiMzJiNTkxMzQzZmI5OTllZjYw"
    "ZDRkNjBlZjc2ODRhOTNiIiwiZm9ybWF0Ijoibm5waXBlIHN0YXRlIiwic2NoZW1hIjoiMSIsImtpbmQiOiJ0ZXN0Iiwic3RydWN0dXJlIjoie1wi"
    "d2VpZ2h0XCI6e1wiJFwiOlwiYXJyYXlcIixcImR0eXBlXCI6XCI8ZjRcIixcIm51bWJlclwiOjB9LFwiZXBvY2hcIjozfSJ9LCJhcnJheS4wMDAw"
    "MDAiOnsiZHR5cGUiOiJGMzIiLCJzaGFwZSI6WzIsM10sImRhdGFfb2Zmc2V0cyI6WzAsMjRdfX0gICAgAAAAAAAAgD8AAABAAABAQAAAgEAAAKBA"
)


SCHEMA_2 = (
    "MAEAAAAAAAB7Il9fbWV0YWRhdGFfXyI6eyJjaGVja3N1bSI6ImRjNDYzNzZkODFjY2Y4MzhjYTM5NGZhMWE3OTVmN2Y2ZWIxY2E0YTAxY2RjOGM1"
    "YWFiNmExMWUyNWM4NTNkMmYiLCJmb3JtYXQiOiJubnBpcGUgc3RhdGUiLCJzY2hlbWEiOiIyIiwia2luZCI6InRlc3QiLCJzdHJ1Y3R1cmUiOiJ7"
    "XCJ3ZWlnaHRcIjp7XCIkXCI6XCJhcnJheVwiLFwiZHR5cGVcIjpcIjxmNFwiLFwibnVtYmVyXCI6MH0sXCJlcG9jaFwiOjN9In0sImFycmF5LjAw"
    "MDAwMCI6eyJkdHlwZSI6IkYzMiIsInNoYXBlIjpbMiwzXSwiZGF0YV9vZmZzZXRzIjpbMCwyNF19fSAgAAAAAAAAgD8AAABAAABAQAAAgEAAAKBA"
)


@pytest.mark.parametrize("older", [SCHEMA_1, SCHEMA_2])
def test_a_file_of_an_older_schema_is_read_and_its_damage_found(older):
    content = bytearray(base64.b64decode(older))
    assert same(from_bytes(bytes(content), kind="test"), {"weight": EXAMPLE["weight"], "epoch": 3})
    content[-1] ^= 1
    with pytest.raises(ArtifactError, match="checksum"):
        from_bytes(bytes(content), kind="test")


@given(st.integers(0, 2**23 + 3), st.binary(min_size=1, max_size=4096))
def test_damage_in_much_is_found(place, damage):
    content = bytearray(MUCH)
    begin = len(content) - (2**23 + 4)
    place = begin + min(place, 2**23 + 4 - len(damage))
    if content[place : place + len(damage)] == damage:
        return
    content[place : place + len(damage)] = damage
    with pytest.raises(ArtifactError, match="checksum"):
        from_bytes(content, kind="test")


def test_no_byte_of_an_array_costs_a_hash(monkeypatch):
    """Which takes twice the time of writing it."""
    hashed = []

    class Counting:
        def __init__(self, data=b""):
            self.inner = hashlib.new("sha256")
            self.update(data)

        def update(self, data):
            hashed.append(len(data))
            self.inner.update(data)

        def hexdigest(self):
            return self.inner.hexdigest()

    monkeypatch.setattr(state_file.hashlib, "sha256", Counting)
    to_bytes({"bulk": np.zeros(10**6, np.uint8)}, kind="test")
    assert 0 < sum(hashed) < 10_000


def test_a_structure_that_nobody_wrote_is_refused():
    content = to_bytes({"a": np.zeros(2)}, kind="test")
    length = int.from_bytes(content[:8], "little")
    structures = (
        '{"a":{"$":"array","dtype":"|O","number":0}}',
        '{"a":{"$":"array","dtype":"<f8","number":7}}',
        '{"a":{"$":"array","dtype":"<i8,<i4","number":0}}',
        '{"a":{"$":"tensor","dtype":"load","number":0}}',
        '{"a":{"$":"code"}}',
        '{"a":{"$":"tuple"}}',
        '{"a":{"$":"map","items":[[[],1]]}}',
        "[]",
        "[" * 3000,
    )
    for structure in structures:
        header = json.loads(content[8 : 8 + length])
        arrays = [state_file.StoredArray("F64", (2,), content[8 + length :])]
        checksum = state_file._compute_checksum("test", state_file.SCHEMA, structure, arrays)
        header["__metadata__"] |= {"structure": structure, "checksum": checksum}
        text = json.dumps(header).encode()
        with pytest.raises(ArtifactError):
            from_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :], kind="test")
    assert sys.getrecursionlimit() >= 1000
