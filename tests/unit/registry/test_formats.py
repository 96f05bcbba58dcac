"""Formats: slugs, one-line texts, addresses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.registry import formats

SLUG = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]\Z")


@pytest.mark.parametrize("text", ["ab", "maple", "maple-2", "a" * 32, "a--b"])
def test_slugs(text: str) -> None:
    assert formats.slug(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "..",
        "a/b",
        "-x",
        "x-",
        "Maple",
        "maple\n",
        "ma ple",
        "1a",
        "a" * 33,
        "é" * 3,
        "a.b",
        "a\0b",
        "maple٣",
    ],
)
def test_what_is_no_slug(text: str) -> None:
    with pytest.raises(ValueError, match="wanted a slug"):
        formats.slug(text)


@given(st.text(st.sampled_from("ab-0/.\nÀ"), max_size=34))
def test_a_slug_is_safe_as_a_file_name(text: str) -> None:
    try:
        formats.slug(text)
    except ValueError:
        assert SLUG.match(text) is None
    else:
        assert SLUG.match(text)


@pytest.mark.parametrize("text", ['Zoë & "Söhne" {{ x }} %} \'', "株式会社", "👩‍👧", "a"])
def test_lines(text: str) -> None:
    assert formats.line(text) == text


@pytest.mark.parametrize(
    "text", ["", "  ", "a\nb", "a\r", "a\0", "\x1b[2J", "a\u2028b", "a\x85b", "a\u202eb", "\ud800"]
)
def test_what_is_no_line(text: str) -> None:
    with pytest.raises(ValueError, match="wanted"):
        formats.line(text)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
        ("maple.example.com", "maple.example.com"),
        ("localhost", "localhost"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_addresses_have_one_form(text: str, target: str) -> None:
    assert formats.address(text) == target


@pytest.mark.parametrize("text", ["[::1]:2222", "[2001:db8::1]:", "192.0.2.7:22", "maple.example.com:2222"])
def test_an_address_with_a_port_names_the_key_for_it(text: str) -> None:
    with pytest.raises(ValueError, match="ssh_port"):
        formats.address(text)


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.256", "1.2.3", "[192.0.2.7]", "192.0.2.7%eth0", "fe80::1%", "fe80::1%a b", "2001:db8::1::2",
     "-oProxyCommand=x", "a b", "a..b", "maple.example.com\n", "a" * 64 + ".com", "bücher.example", "[::1"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="wanted"):
        formats.address(text)


def test_a_user_in_the_address_names_the_key_for_it() -> None:
    with pytest.raises(ValueError, match="ssh_user"):
        formats.address("root@192.0.2.7")


@pytest.mark.parametrize("text", ["office@maple.example.com", "a.b+c@x.example"])
def test_mail_addresses(text: str) -> None:
    assert formats.mail_address(text) == text


@pytest.mark.parametrize("text", ["", "a", "@x.example", "a@", "a b@x.example", "a@x.example\n", "a@b@c d"])
def test_what_is_no_mail_address(text: str) -> None:
    with pytest.raises(ValueError, match="wanted"):
        formats.mail_address(text)


@pytest.mark.parametrize("text", ["etc", "/", "/a/", "//a", "/a/../b", "/a/./b", "/a\nb", ""])
def test_what_is_no_absolute_path(text: str) -> None:
    with pytest.raises(ValueError, match="wanted"):
        formats.absolute_path(text)


@pytest.mark.parametrize("text", ["/a", "../a", "a/../b", "a//b", "", "."])
def test_what_is_no_relative_path(text: str) -> None:
    with pytest.raises(ValueError, match="wanted"):
        formats.relative_path(text)


def test_paths() -> None:
    assert formats.absolute_path("/etc/caddy/Caddyfile") == "/etc/caddy/Caddyfile"
    assert formats.relative_path("sites/forms.caddy.j2") == "sites/forms.caddy.j2"
