"""The identity check: the provider's addresses against the registry's."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import Refused, UnknownState
from engine.provision.identity import check_identity
from engine.provision.providers.base import Server
from tests.unit.fleets import make_tenant


class OneServer:
    """A provider whose only answer is `server`, or an error."""

    makes_host_keys = False
    isolated = False

    def __init__(self, server: Server | Exception | None) -> None:
        self._server = server

    def find(self, tenant: Any) -> Server | None:
        if isinstance(self._server, Exception):
            raise self._server
        return self._server

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the identity check called {name}")


def check(address: str | None, *public: str, names: dict[str, list[str]] | None = None) -> Server | None:
    def resolve(name: str) -> list[str]:
        if name not in (names or {}):
            raise OSError("Name or service not known")
        return (names or {})[name]

    return check_identity(make_tenant(address=address), OneServer(Server("maple", public, True)), resolve)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("192.0.2.7", ("192.0.2.7",)),
        ("192.0.2.7", ("2001:db8::/64", "192.0.2.7")),
        ("2001:db8::1", ("192.0.2.7", "2001:db8::/64")),
        ("2001:DB8:0::1", ("2001:db8::1",)),
        ("2001:db8::1%eth0", ("2001:db8::/64",)),
    ],
)
def test_an_address_of_the_server(address: str, public: tuple[str, ...]) -> None:
    assert check(address, *public) is not None


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("192.0.2.7", ("192.0.2.8",)),
        ("192.0.2.7", ("2001:db8::/64",)),
        ("2001:db8:0:1::1", ("192.0.2.7", "2001:db8::/64")),
        ("192.0.2.7", ()),
    ],
)
def test_another_address_is_refused_with_both_named(address: str, public: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as caught:
        check(address, *public)
    for value in (address, *(public or ("no public address",))):
        assert value in caught.value.message


def test_every_address_of_a_name_must_belong_to_the_server() -> None:
    names = {"maple.example": ["192.0.2.7", "2001:db8::5"]}
    assert check("maple.example", "192.0.2.7", "2001:db8::/64", names=names)
    with pytest.raises(Refused, match=r"maple\.example \(2001:db8::5\)"):
        check("maple.example", "192.0.2.7", names=names)
    with pytest.raises(UnknownState, match=r"maple\.example"):
        check("maple.example", "192.0.2.7")


def test_no_server_is_refused_where_the_registry_has_an_address() -> None:
    with pytest.raises(Refused, match=r"192\.0\.2\.7.*no such server"):
        check_identity(make_tenant(address="192.0.2.7"), OneServer(None))


def test_a_provider_that_chooses_the_address_has_nothing_to_compare() -> None:
    assert check_identity(make_tenant(address=None), OneServer(None)) is None


def test_no_answer_keeps_its_kind_and_names_the_registrys_address() -> None:
    with pytest.raises(UnknownState) as caught:
        check_identity(make_tenant(address="192.0.2.7"), OneServer(UnknownState("no answer", hint="try again")))
    assert "192.0.2.7" in caught.value.message and "no answer" in caught.value.message
    assert caught.value.hint == "try again"
