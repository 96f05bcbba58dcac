"""Provisioning servers of a cloud provider, end to end: the whole production path on lab hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.hosts import known_hosts
from engine.records import RunResult
from engine.updater.outcome import Outcome
from tests.lab.cloud_fleet import SLUG, CloudFleet, cloud_fleet
from tests.lab.conftest import PACKAGES
from tests.lab.fake_hetzner import TOKEN


@pytest.fixture(scope="module")
def cloud_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudFleet]:
    with cloud_fleet(tmp_path_factory.mktemp("cloud"), PACKAGES) as cloud:
        yield cloud


@pytest.fixture
def cloud(cloud_server: CloudFleet) -> CloudFleet:
    """The one server, with a service that answers as usual and a fleet as it was written."""
    cloud_server.service.ordered.clear()
    cloud_server.service.calls.clear()
    cloud_server.service.failing_actions = 0
    cloud_server.service.before_rebuild = None
    cloud_server.fleet.events.clear()
    cloud_server.register()
    return cloud_server


def provision(cloud: CloudFleet) -> Outcome:
    (outcome,) = cloud.fleet.provision(SLUG)
    return outcome


def pinned(cloud: CloudFleet) -> list[str]:
    path = known_hosts.known_hosts_file(cloud.fleet.state, SLUG)
    return [str(key) for key in known_hosts.read(path, cloud.address, 22).keys]


def host_keys(cloud: CloudFleet) -> list[str]:
    text = cloud.run("cat /etc/ssh/ssh_host_*.pub")
    return [" ".join(line.split()[:2]) for line in text.splitlines()]


def test_a_server_is_rebuilt_proves_its_one_time_key_and_ends_at_the_head(cloud: CloudFleet) -> None:
    outcome = provision(cloud)
    assert (outcome.error, outcome.result, outcome.to_version) == (None, RunResult.UPDATED, "2026.10.3")
    assert cloud.run("cat /var/lib/tenantry/version").strip() == "2026.10.3"
    assert outcome.messages[-1].startswith("verify: ") and " 0 failed" in outcome.messages[-1]

    # The key of the user-data is gone from the host, and its new key is what is pinned.
    (key,) = host_keys(cloud)
    assert pinned(cloud) == [key]
    assert key.split()[1] not in cloud.service.user_data[-1]
    assert cloud.run("ls /etc/ssh/tenantry-new 2>/dev/null || true") == ""
    assert TOKEN not in cloud.service.user_data[-1]

    # Other commands come in with the pinned key alone.
    assert cloud.fleet.converge(SLUG).result is RunResult.UNCHANGED
    assert "clientaliveinterval 15" in cloud.run("sshd -T")
