"""Names mean one file inside the storage, or are refused with the reason."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError
from nnpipe.storage.store import MAX_NAME, validate_name


@pytest.mark.parametrize(
    "name", ["a", "lenet-5_v2.pt", "digits/train/0.png", "Ünïcode (1)[2].npz", "コーヒー/x", "a..b"]
)
def test_takes_plain_names(name):
    assert validate_name(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("../x", "dot"),
        ("a/../../x", "dot"),
        ("a/./b", "dot"),
        (".hidden", "dot"),
        ("/etc/passwd", "relative"),
        ("C:/x", ":"),
        ("a\\b", "must not hold"),
        ("a//b", "empty"),
        ("a/", "empty"),
        ("a\nb", "control"),
        ("a\x1b[2Jb", "control"),
        ("a\x00", "control"),
        ("gpj\u202eexe", "control"),
        ("a\ud800", "control"),
        ("a\u2028b", "control"),
        ("e\u0301", "NFC"),
        ("*.pt", "must not hold"),
        ("a?versionId=1", "must not hold"),
        ("zip://x::y", "must not hold"),
        ("a ", "space"),
        ("a.", "dot"),
        ("nul.txt", "device"),
        ("x" * 201, "200"),
        ("/".join(["x" * 100] * 6), str(MAX_NAME)),
        (None, "empty"),
    ],
)
def test_refuses_others_and_says_why(name, reason):
    with pytest.raises(ConfigError, match="name") as caught:
        validate_name(name)
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


@given(st.text(st.sampled_from("ab./\\:~ \x00\n\u0301é*%"), max_size=12) | st.text(max_size=12))
def test_no_name_leads_out_of_a_folder(name):
    try:
        validate_name(name)
    except ConfigError:
        return
    for pure in (PurePosixPath, PureWindowsPath):
        path = pure(name)
        assert not path.is_absolute()
        assert not path.drive
        assert ".." not in path.parts
        assert "/".join(path.parts) == name
    assert Path("/root/of/it") in (Path("/root/of/it") / name).resolve().parents
