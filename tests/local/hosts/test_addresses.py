"""Where a tenant is: from the registry, or from what the lab has written about its host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import Unreachable
from engine.hosts import known_hosts
from engine.hosts.addresses import target_of
from engine.hosts.known_hosts import HostKey
from engine.registry.model import Fleet
from engine.registry.settings import Settings
from tests.unit.fleets import make_tenant

KEY = HostKey("ssh-ed25519", b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(32))


def _lab(state_dir: Path, **record: Any) -> None:
    path = state_dir / "lab" / "hosts" / "maple.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))


def _fleet(root: Path, identity_file: str = "var/ssh/id_ed25519") -> Fleet:
    return Fleet(root, Settings(brand="B", identity_file=identity_file), {})


def test_a_lab_host_is_where_the_lab_says_with_the_key_it_made(tmp_path: Path):
    _lab(tmp_path, address="10.77.0.2", port=22, host_key=str(KEY))
    target = target_of(make_tenant(), _fleet(tmp_path), tmp_path)
    assert (target.address, target.port, target.pins.keys) == ("10.77.0.2", 22, (KEY,))
    assert target.identity == tmp_path / "var/ssh/id_ed25519"


@pytest.mark.parametrize("record", [{}, {"address": "10.77.0.2"}, {"address": "10.77.0.2", "host_key": None}])
def test_a_lab_host_that_is_not_there_yet_is_unreachable(tmp_path: Path, record: dict[str, Any]):
    _lab(tmp_path, **record)
    with pytest.raises(Unreachable):
        target_of(make_tenant(), _fleet(tmp_path), tmp_path)


def test_a_tenant_without_any_address_is_unreachable(tmp_path: Path):
    with pytest.raises(Unreachable, match="has no address"):
        target_of(make_tenant(), _fleet(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("address", "port", "shown"),
    [
        ("192.0.2.1", 22, "maple (ops@192.0.2.1:22)"),
        ("2001:db8::1", 2222, "maple (ops@[2001:db8::1]:2222)"),
        ("fe80::1%eth0", 22, "maple (ops@[fe80::1%eth0]:22)"),
    ],
)
def test_a_server_of_the_registry_has_the_keys_pinned_for_it(tmp_path: Path, address: str, port: int, shown: str):
    known_hosts.pin(known_hosts.known_hosts_file(tmp_path, "maple"), address, port, KEY)
    tenant = make_tenant(address=address, ssh_port=port, ssh_user="ops")
    target = target_of(tenant, _fleet(tmp_path, "/keys/id"), tmp_path)
    assert (str(target), target.pins.keys, target.identity) == (shown, (KEY,), Path("/keys/id"))
