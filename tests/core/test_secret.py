"""Secrets are revealed where they are needed, and nowhere shown."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.secret import HIDDEN, Secret, hide_command_secrets, hide_secrets, reveal_variables

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789._-", min_size=1, max_size=12)
PASSWORDS = st.text(
    st.characters(exclude_characters="'\"", exclude_categories=("Z", "C")), min_size=1
).map("pW{}pW".format)


@dataclass(frozen=True)
class _Settings:
    name: str
    token: Secret
    variables: dict[str, Secret] = field(default_factory=dict)


def test_a_secret_is_revealed_by_asking_alone() -> None:
    given_ = _Settings("a", Secret("wxyz"), {"KEY": Secret("wxyz")})
    assert "wxyz" not in f"{given_} {given_!r} {asdict(given_)} {given_.token}"
    assert reveal_variables({"KEY": given_.token, "MODE": "fast"}) == {
        "KEY": "wxyz",
        "MODE": "fast",
    }
    with pytest.raises(TypeError):
        json.dumps({"token": given_.token})
    assert given_.token == Secret(Secret("wxyz"))
    assert given_.token != "wxyz"


@given(WORDS, WORDS, PASSWORDS, st.sampled_from(["postgresql", "https", "s3", "ray+http", "ssh"]))
def test_no_password_of_an_address_is_shown(
    host: str, user: str, password: str, scheme: str
) -> None:
    address = f"{scheme}://{user}:{password}@{host}/a"
    shown = hide_secrets(f"cannot reach {address}, nor '{address}': refused")
    assert "pW" not in shown
    assert shown.count(f"{scheme}://{user}:{HIDDEN}@") == 2
    assert shown.endswith(": refused")
    assert hide_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "a plain text",
        "postgresql://ann@host/runs",
        "https://host:8265/a?epoch=3&keep=all",
        "ann@host: a=b",
        "",
        "10:30 mail ann@host",
        "--tokenizer=a.json",
        "s3://bucket/prefix",
        "ssh://ann@host:22",
    ],
)
def test_texts_without_a_secret_stay_as_they_are(text: str) -> None:
    assert hide_secrets(text) == text


@pytest.mark.parametrize(
    "name", ["token", "access_token", "X-Amz-Signature", "X-Amz-Security-Token", "sig", "apiKey"]
)
def test_no_token_in_a_query_is_shown(name: str) -> None:
    assert hide_secrets(f"https://host/a?size=3&{name}=wxyz&b=1 is gone") == (
        f"https://host/a?size=3&{name}={HIDDEN}&b=1 is gone"
    )


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--env", "KEY=wxyz=w"], ["--env", "KEY=***"]),
        (["--env=KEY=wxyz"], ["--env=KEY=***"]),
        (["--env", "wxyz"], ["--env", "***"]),
        (["--password", "wxyz", "--epochs", "3"], ["--password", "***", "--epochs", "3"]),
        (["--db-password=wxyz"], ["--db-password=***"]),
        (["--database", "postgresql://u:wxyz@h/d"], ["--database", "postgresql://u:***@h/d"]),
        (
            ["--token-file", "t.txt", "--num-tokens", "5"],
            ["--token-file", "t.txt", "--num-tokens", "5"],
        ),
    ],
)
def test_a_command_line_is_shown_without_its_secrets(words: list[str], shown: list[str]) -> None:
    assert list(hide_command_secrets(words, ["--env"])) == shown


@pytest.mark.parametrize(
    "word", ["password=Wq7", "sslpassword=Wq7", "password='Wq7 x'", "PASSWORD=Wq7"]
)
def test_no_password_among_words_is_shown_as_postgresql_takes_them(word: str) -> None:
    assert (
        hide_secrets(f"host=db {word} dbname=runs")
        == f"host=db {word.partition('=')[0]}=*** dbname=runs"
    )
