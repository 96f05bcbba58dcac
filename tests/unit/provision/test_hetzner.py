"""What a record may say about its server at Hetzner, and what a preview promises without asking."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InvalidInput
from engine.provision.providers.hetzner import HetznerProvider
from engine.registry.safeguards import Provider
from engine.registry.settings import Hetzner
from tests.unit.fleets import make_tenant
from tests.unit.updater.clocks import FakeClock


def provider(**settings: Any) -> HetznerProvider:
    def no_token() -> str:
        raise AssertionError("a preview follows no secret")

    return HetznerProvider(no_token, Hetzner(**settings), FakeClock(), lambda text: None)


def test_the_slug_names_the_server_unless_the_record_does() -> None:
    tenant = make_tenant(provider=Provider("hetzner"), address="192.0.2.7")
    assert "?name=maple " in provider().preview(tenant)[0]
    tenant = make_tenant(provider=Provider("hetzner", {"server": "old-1", "image": "debian-13"}), address="192.0.2.7")
    calls = provider().preview(tenant)
    assert "?name=old-1 " in calls[0] and "image=debian-13" in calls[1]
    assert "env:HCLOUD_TOKEN" in calls[0]


@pytest.mark.parametrize("options", [{"servr": "x"}, {"server": 7}, {"zones": ("a",)}])
def test_an_option_that_hetzner_does_not_have_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        provider().preview(make_tenant(provider=Provider("hetzner", options), address="192.0.2.7"))
