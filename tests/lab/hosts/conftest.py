"""Bare hosts, one lab for all tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.hosts.bare_fleet import BareFleet


@pytest.fixture(scope="session")
def bare_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareFleet]:
    fleet = BareFleet.create(tmp_path_factory.mktemp("bare") / "fleet", "maple", "cedar")
    try:
        yield fleet
    finally:
        fleet.lab.destroy()


@pytest.fixture
def bare(bare_hosts: BareFleet) -> BareFleet:
    """The shared hosts without what an earlier test left on them."""
    for slug in bare_hosts.slugs:
        bare_hosts.run("pkill -x sleep; rm -rf /var/lib/tenantry /root/* /run/nologin", slug)
    return bare_hosts
