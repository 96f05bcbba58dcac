"""What is written on a resource, and that nothing else is taken for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.environments.drivers.base import CreateRequest, KeyPair, Kind
from engine.environments.drivers.trouble import Effects, ProviderTrouble, Trouble
from engine.environments.observation import Label, Mark, read_label
from engine.errors import DispatchLost, DriverRefused

LABEL = Label("database", Mark("0d3f4c5a-1111-4222-8333-444455556666", "intent-1"), "sha256:" + "a" * 64)
TOKENS = st.from_regex(r"[A-Za-z0-9._:-]{1,100}", fullmatch=True)


@given(TOKENS, TOKENS, TOKENS, TOKENS)
def test_a_label_is_read_as_it_was_written(kind: str, uuid: str, intent: str, digest: str):
    label = Label(kind, Mark(uuid, intent), digest)
    assert read_label(label.text()) == label


@given(st.text())
def test_no_other_text_is_a_label(text: str):
    label = read_label(text)
    assert label is None or label.text() == text


@pytest.mark.parametrize(
    "text",
    [None, "", "tenantry:1", "tenantry:2/database/u/i/d", "tenantry:1/database/u/i", "tenantry:1/database/u/i/d/e"]
    + [LABEL.text() + end for end in ("\n", " ", "/")]
    + [" " + LABEL.text(), LABEL.text().upper(), "tenantry:1/database//i/d"],
)
def test_a_text_that_is_almost_a_label_is_foreign(text: str | None):
    assert read_label(text) is None


@pytest.mark.parametrize("part", ["", "a/b", "a b", "a\n", "x" * 101, "ü"])
def test_what_is_no_plain_token_is_not_written(part: str):
    with pytest.raises(ValueError, match="plain tokens"):
        Label("role", Mark(part, "i"), "d").text()


def test_a_label_fits_into_a_tag():
    assert len(LABEL.text()) <= 256


def test_a_request_does_not_show_its_secrets():
    pair = KeyPair("AK1", b"hidden-key")
    request = CreateRequest("u", "i", "n", "d", secret=b"hidden-password", key_pair=pair)
    assert "hidden" not in repr(request)
    assert "hidden" not in repr(pair)


def test_only_what_the_provider_itself_refused_as_the_first_thing_was_provably_not_done():
    said_no, lost = ProviderTrouble(Trouble.UNEXPECTED, definite=True), ProviderTrouble(Trouble.CONNECTION_LOST)
    effects = Effects(Kind.BUCKET, "n")
    assert isinstance(effects.error(lost), DriverRefused)
    assert isinstance(effects.refuse(Trouble.FOREIGN), DriverRefused)
    effects.begin()
    assert isinstance(effects.error(said_no), DriverRefused)
    assert isinstance(effects.error(lost), DispatchLost)
    effects.begin()
    assert isinstance(effects.error(said_no), DispatchLost)
    assert isinstance(effects.refuse(Trouble.FOREIGN), DispatchLost)
