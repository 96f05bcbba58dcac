"""Provisioning servers of a cloud provider, end to end: the whole production path on lab hosts."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.errors import ExitCode
from engine.hosts import known_hosts
from engine.provision.providers.base import Server
from engine.provision.providers.lab import HostSpec
from engine.provision.servers import provider_for
from engine.records import RunResult
from engine.updater.events import Phase
from engine.updater.outcome import Outcome
from tests.lab.cloud_fleet import SLUG, CloudFleet, cloud_fleet
from tests.lab.conftest import PACKAGES
from tests.lab.fake_hetzner import TOKEN
from tests.lab.waiting import until

OLD_SERVER = 4711


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
    cloud_server.service.rebuilds_nothing = False
    cloud_server.fleet.events.clear()
    cloud_server.service.servers = {OLD_SERVER: cloud_server.service.servers[OLD_SERVER]}
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


# Who is rebuilt


def refused(cloud: CloudFleet, *words: str, code: ExitCode = ExitCode.FAILED) -> Outcome:
    """A provisioning that stops before anything is rebuilt, and says these words."""
    boot = cloud.run("cat /proc/sys/kernel/random/boot_id")
    outcome = provision(cloud)
    assert outcome.exit_code is code, outcome
    for word in words:
        assert word in str(outcome.error)
    assert cloud.service.made("POST", "rebuild") == 0
    assert cloud.run("cat /proc/sys/kernel/random/boot_id") == boot
    return outcome


def test_another_address_stops_with_both_values_named(cloud: CloudFleet) -> None:
    cloud.register(address="192.0.2.7")
    refused(cloud, "192.0.2.7", cloud.address, "2001:db8:1:2::/64", "nothing was rebuilt")


def test_an_address_of_the_servers_ipv6_network_is_its_own_and_another_is_not(cloud: CloudFleet) -> None:
    cloud.register(address="2001:db8:1:3::1")
    refused(cloud, "2001:db8:1:3::1", "2001:db8:1:2::/64")


def test_a_missing_server_and_several_of_one_name_stop_it(cloud: CloudFleet) -> None:
    cloud.register(provider={"name": "hetzner", "server": "elsewhere"})
    refused(cloud, cloud.address, "no such server")
    cloud.service.add("elsewhere", SLUG, "192.0.2.8")
    cloud.service.add("elsewhere", SLUG, cloud.address)
    refused(cloud, "2 servers named elsewhere", "192.0.2.8", cloud.address)


@pytest.mark.parametrize(
    ("status", "code"), [(401, ExitCode.FAILED), (403, ExitCode.FAILED), (503, ExitCode.UNREACHABLE)]
)
def test_an_api_that_gives_no_answer_stops_it(cloud: CloudFleet, status: int, code: ExitCode) -> None:
    cloud.service.order("GET", "/servers", status, times=100)
    refused(cloud, f"the registry has {cloud.address} for it, and the provider", "look for server maple", code=code)


def test_a_service_that_is_not_there_stops_it(cloud: CloudFleet) -> None:
    cloud.fleet.change_settings(hetzner={"endpoint": "http://127.0.0.1:1/v1"})
    try:
        refused(cloud, cloud.address, "no usable answer", code=ExitCode.UNREACHABLE)
    finally:
        cloud.fleet.change_settings(hetzner={"endpoint": cloud.service.url})


def test_a_token_that_is_refused_appears_nowhere(cloud: CloudFleet) -> None:
    token = cloud.fleet.root / "hetzner-token"
    token.write_text("another-token-of-nobody-9876")
    try:
        outcome = refused(cloud, "unauthorized", "read and write")
    finally:
        token.write_text(TOKEN)
    assert "9876" not in str(outcome)


@pytest.mark.parametrize(
    "template",
    [
        "# comment\n#cloud-config\n{}\n",
        "#cloud-config\nusers: []{{ '\\r' }}\n",
        "#cloud-config\n- list\n",
        "#cloud-config\n{}\n",
    ],
    ids=["header", "carriage returns", "no mapping", "no host key"],
)
def test_user_data_that_cloud_init_would_ignore_is_refused_before_the_rebuild(cloud: CloudFleet, template: str) -> None:
    path = cloud.fleet.root / "templates/user-data.yaml.j2"
    good = path.read_bytes()
    path.write_bytes(template.encode())
    try:
        refused(cloud, "the user-data ", code=ExitCode.USAGE)
    finally:
        path.write_bytes(good)


# The rebuild


def test_what_the_api_says_it_did_not_do_is_asked_again(cloud: CloudFleet) -> None:
    reset = datetime.datetime.now(datetime.UTC).timestamp() + 1
    cloud.service.order("GET", "/servers", 503)
    cloud.service.order("POST", "rebuild", 409)
    cloud.service.order("POST", "rebuild", 423)
    cloud.service.order("POST", "rebuild", 409, code="locked")
    cloud.service.order("POST", "rebuild", 429, headers={"RateLimit-Reset": str(int(reset) + 1)})
    cloud.service.order("GET", "/actions/", 503, times=2)
    cloud.service.order("GET", "/actions/", 429, headers={"RateLimit-Reset": "0"})
    assert provision(cloud).error is None
    assert cloud.service.made("POST", "rebuild") == 5
    told = [event.message for event in cloud.fleet.events if event.phase is Phase.REBUILD]
    assert any("rate_limit_exceeded" in message for message in told), told
    assert datetime.datetime.now(datetime.UTC).timestamp() >= int(reset)


def test_a_rebuild_without_an_answer_is_not_sent_again_and_a_second_run_ends_well(cloud: CloudFleet) -> None:
    cloud.service.order("POST", "rebuild", 503, done_first=True)
    outcome = provision(cloud)
    assert (outcome.exit_code, cloud.service.made("POST", "rebuild")) == (ExitCode.UNREACHABLE, 1)
    assert "whether it was done is unknown" in str(outcome.error)
    assert cloud.fleet.converge(SLUG).exit_code is ExitCode.UNREACHABLE, "the new server is no one known"
    assert provision(cloud).error is None


def test_an_action_that_fails_is_told_with_its_reason(cloud: CloudFleet) -> None:
    cloud.service.failing_actions = 1
    outcome = provision(cloud)
    assert outcome.exit_code is ExitCode.FAILED
    assert "rebuild_server (action" in str(outcome.error)
    assert "the image could not be written (action_failed)" in str(outcome.error)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (404, "", "the server is gone"),
        (423, "", "locked by another action"),
        (423, "protected", "switch off the protection"),
        (429, "", "rate limit ends in"),
    ],
)
def test_a_rebuild_that_stays_refused_is_given_up(cloud: CloudFleet, status: int, code: str, words: str) -> None:
    soon = datetime.datetime.now(datetime.UTC).timestamp() + 4000
    headers = {"RateLimit-Reset": str(int(soon))}
    cloud.service.order("POST", "rebuild", status, times=100, code=code, headers=headers)
    outcome = provision(cloud)
    assert outcome.exit_code is ExitCode.FAILED and words in str(outcome.error), outcome
    assert cloud.service.made("POST", "rebuild") == (5 if "locked" in words else 1)


# First contact


def test_the_old_machine_that_still_answers_is_never_taken_for_the_new_one(cloud: CloudFleet) -> None:
    if not pinned(cloud):
        assert provision(cloud).error is None
    (old_key,), old_boot = pinned(cloud), cloud.run("cat /proc/sys/kernel/random/boot_id")
    seen: list[str] = []

    def refusals() -> int:
        return sum("the host shows" in event.message for event in cloud.fleet.events)

    def stay_until_it_was_met() -> None:
        until(lambda: refusals() > 0, "the old machine was met")
        seen.append(cloud.run("cat /proc/sys/kernel/random/boot_id"))
        assert cloud.run("test -e /var/lib/tenantry/receipts/provisioned.json && echo old").strip() == "old"

    cloud.service.before_rebuild = stay_until_it_was_met
    outcome = provision(cloud)
    assert outcome.error is None, outcome.error
    assert seen == [old_boot]
    told = [event.message for event in cloud.fleet.events if event.phase is Phase.CONNECT]
    assert any("the host shows" in message and "one-time key" in message for message in told)
    assert pinned(cloud) == host_keys(cloud) != [old_key]
    assert cloud.run("cat /proc/sys/kernel/random/boot_id") != old_boot


def test_a_server_that_never_proves_the_key_is_given_up_within_the_bound(cloud: CloudFleet) -> None:
    cloud.service.rebuilds_nothing = True
    cloud.fleet.change_settings(provision={"polls": 4})
    before = pinned(cloud)
    try:
        outcome = provision(cloud)
    finally:
        cloud.fleet.change_settings(provision={"polls": 300})
    assert outcome.exit_code is ExitCode.UNREACHABLE
    assert "did not admit the operator in 4 tries" in str(outcome.error)
    assert "the host shows" in str(outcome.error)
    assert pinned(cloud) == before


SLOW_BOOT = """
bootcmd:
  - [sh, -c, "touch /run/nologin; cp -a /etc/sudoers.d /run/kept 2>/dev/null; true"]
runcmd:
  - [sh, -c, "rm -f /run/nologin"]
"""


def test_a_host_that_admits_nobody_yet_is_asked_again(cloud: CloudFleet) -> None:
    template = cloud.fleet.root / "templates/user-data.yaml.j2"
    good = template.read_text()
    template.write_text(good + SLOW_BOOT)
    try:
        outcome = provision(cloud)
    finally:
        template.write_text(good)
    assert outcome.error is None, outcome.error
    told = " | ".join(event.message for event in cloud.fleet.events if event.phase is Phase.CONNECT)
    assert re.search("cannot connect|admits no user now", told), told


# cloud-init


def ends_with(cloud: CloudFleet, status: int, more: str = "") -> Outcome:
    """A provisioning of a host whose cloud-init ends with `status`, as newer versions do with 2."""
    template = cloud.fleet.root / "templates/user-data.yaml.j2"
    good = template.read_text()
    program = f"#!/bin/sh\\n/usr/bin/cloud-init status --wait; {more} exit {status}\\n"
    wrapper = f'  - path: /usr/local/bin/cloud-init\n    permissions: "0755"\n    content: "{program}"\n'
    template.write_text(good + wrapper)
    try:
        return provision(cloud)
    finally:
        template.write_text(good)


RECOVERABLE = (
    'echo \'{\\"v1\\": {\\"init\\": {\\"recoverable_errors\\": {\\"WARNING\\": [\\"odd key\\"]}}}}\' '
    "> /run/cloud-init/status.json;"
)


def test_recoverable_errors_go_on_with_warnings_in_the_log(cloud: CloudFleet) -> None:
    outcome = ends_with(cloud, 2, RECOVERABLE)
    assert outcome.error is None, outcome.error
    log = cloud.fleet.workspace().runs.log_of(cloud.fleet.workspace().fleet.tenants[SLUG].subject)
    assert log is not None and "warning of cloud-init: init: WARNING: odd key" in log.read_text()


def test_recoverable_errors_with_a_missing_artefact_fail(cloud: CloudFleet) -> None:
    cloud.fleet.change_settings(provision={"artefacts": ["/etc/ssh/sshd_config", "/etc/never-there"]})
    try:
        outcome = ends_with(cloud, 2)
    finally:
        cloud.fleet.change_settings(provision={"artefacts": ["/etc/ssh/sshd_config"]})
    assert outcome.exit_code is ExitCode.FAILED
    assert "these are missing: /etc/never-there" in str(outcome.error)


def test_a_failed_first_boot_is_told_with_cloud_inits_own_reasons(cloud: CloudFleet) -> None:
    template = cloud.fleet.root / "templates/user-data.yaml.j2"
    good = template.read_text()
    template.write_text(good + "runcmd:\n  - [sh, -c, 'exit 3']\n")
    try:
        outcome = provision(cloud)
    finally:
        template.write_text(good)
    assert outcome.exit_code is ExitCode.FAILED
    assert "cloud-init failed with status 1: " in str(outcome.error)
    assert "scripts-user" in str(outcome.error) or "scripts_user" in str(outcome.error)
    assert outcome.result is RunResult.FAILED


# A server from nothing


def test_a_new_tenants_server_is_created_recorded_and_provisioned(cloud: CloudFleet) -> None:
    arguments = (
        *("--provider", "hetzner", "--create-server", "--owner-name", "Ana Birch", "--business", "Birch & Sons"),
        *("--trade", "bakery", "--role", "client"),
        *("--forwarding-address", "ana@birch.example", "--page-host", "birch.example"),
    )
    added = cloud.fleet.cli("tenant", "add", "birch", *arguments)
    _, error = added.communicate()
    assert added.returncode == 0, error
    (server,) = [server for server in cloud.service.servers.values() if server.name == "birch"]
    tenant = cloud.fleet.workspace().fleet.tenants["birch"]
    assert (tenant.address, server.labels) == (server.ipv4, {"tenantry": "birch"})
    (outcome,) = cloud.fleet.provision("birch")
    assert outcome.error is None, outcome.error
    assert cloud.fleet.run_in(cloud.service.lab, "birch", "cat /var/lib/tenantry/version").strip() == "2026.10.3"

    again = cloud.fleet.cli("tenant", "add", "birch", *arguments)
    _, error = again.communicate()
    assert again.returncode == 1 and "there is a tenant birch already" in error
    assert cloud.service.made("POST", "/v1/servers") - cloud.service.made("POST", "rebuild") == 1


def test_a_bad_record_creates_no_server(cloud: CloudFleet) -> None:
    added = cloud.fleet.cli("tenant", "add", "alder", "--provider", "hetzner", "--create-server", "--trade", "bakery")
    _, error = added.communicate()
    assert added.returncode == 2 and "owner_name" in error
    assert cloud.service.calls == []


def test_a_server_is_removed_once_and_stays_removed(cloud: CloudFleet) -> None:
    workspace = cloud.fleet.workspace()
    (host,) = cloud.service.lab.up([HostSpec.light("alder", "ssh-ed25519 AAAA nobody")])
    cloud.service.add("alder", "alder", host.address)
    tenant = replace(workspace.fleet.tenants[SLUG], slug="alder", address=host.address)
    provider = provider_for(workspace, tenant, lambda text: None)
    assert provider.find(tenant) == Server("alder", (host.address,), True)
    provider.destroy(tenant)
    assert provider.find(tenant) is None
    assert cloud.service.lab.find("alder") is None
    provider.destroy(tenant)
    assert cloud.service.made("DELETE", "/servers/") == 1
