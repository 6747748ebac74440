"""Secrets: what a user may send to sites of their own, and that errors do not repeat it."""

import pytest

from sterna.errors import UsageError
from sterna.web.secrets import Secrets, read_secrets


def test_headers_and_a_password_become_fields() -> None:
    secrets = read_secrets(headers=["X-Token:  abc "], auth="me:pass:word")
    assert secrets.headers == (("X-Token", "abc"), ("Authorization", "Basic bWU6cGFzczp3b3Jk"))
    assert secrets and not Secrets()


@pytest.mark.parametrize(
    "header", ["secret", ": secret", "A B: secret", "X: secret\r\nY: 1", "X:", "Héy: secret"]
)
def test_an_invalid_header_is_refused_without_being_repeated(header: str) -> None:
    with pytest.raises(UsageError, match="Name: value") as refused:
        read_secrets(headers=[header])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("name", "instead"), [("Cookie", "--cookies"), ("user-agent", "--user-agent")])
def test_what_has_a_flag_of_its_own_is_refused(name: str, instead: str) -> None:
    with pytest.raises(UsageError, match=instead):
        read_secrets(headers=[f"{name}: x"])


@pytest.mark.parametrize("auth", ["me", ":secret", "me:sec\nret"])
def test_an_invalid_password_is_refused_without_being_repeated(auth: str) -> None:
    with pytest.raises(UsageError, match="STERNA_AUTH") as refused:
        read_secrets(auth=auth)
    assert auth not in str(refused.value)


def test_secrets_are_not_shown() -> None:
    assert "abc" not in repr(read_secrets(headers=["X-Token: abc"]))
