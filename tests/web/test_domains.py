"""Registrable domains."""

import pytest

from sterna.web.urls import domain_of


@pytest.mark.parametrize(
    ("hostname", "domain"),
    [
        ("www.example.com", "example.com"),
        ("example.com", "example.com"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("someone.github.io", "someone.github.io"),
        ("deep.someone.github.io", "someone.github.io"),
        ("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
        ("www.example.notlisted", "example.notlisted"),
        ("www.example.com.", "example.com"),
        ("localhost.", "localhost"),
    ],
)
def test_the_domain_is_one_label_under_the_public_suffix(hostname: str, domain: str) -> None:
    assert domain_of(hostname) == domain


@pytest.mark.parametrize("name", ["localhost", "co.uk", "127.0.0.1", "10.20.30.40", "::1", "2001:db8::1", ""])
def test_addresses_single_names_and_suffixes_stand_for_themselves(name: str) -> None:
    assert domain_of(name) == name
