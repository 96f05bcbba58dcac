"""The search for ways out of a scratch server, in network namespaces of this machine's kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from engine.backups.scratch import WAYS_OUT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a network namespace")

# As a lab host has it: one link, one address, and nobody to send anything on.
SCRATCH = """
set -e
ip link set lo up
ip link add eth0 type veth peer name far
ip address add 10.77.3.2/24 broadcast + dev eth0
ip link set eth0 up
"""
PROGRAM = WAYS_OUT + "\nprint(json.dumps(RESULT))\n"


def found(*changes: str) -> list[str]:
    script = "\n".join([SCRATCH, *changes, 'exec "$0" -c "$1"'])
    command = ("unshare", "--net", "sh", "-c", script, sys.executable, PROGRAM)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    routes: list[str] = json.loads(done.stdout)["routes"]
    return routes


@pytest.mark.parametrize(
    "change",
    [
        "true",
        "ip route add 192.168.3.0/24 dev eth0",
        "ip route add unreachable default; ip -6 route add blackhole default",
        "ip rule add from 10.77.3.2 table 100; ip route add prohibit default table 100",
    ],
)
def test_its_own_network_is_no_way_out(change: str):
    assert found(change) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ip route add default via 10.77.3.1", "default over 10.77.3.1 (eth0)"),
        ("ip route add default dev eth0", "default (eth0)"),
        ("ip route add 0.0.0.0/1 dev eth0", "0.0.0.0/1 (eth0)"),
        ("ip route add 128.0.0.0/1 dev eth0", "128.0.0.0/1 (eth0)"),
        ("ip address add 198.51.100.2/24 dev eth0", "198.51.100.0/24 (eth0)"),
        ("ip route add 192.168.3.0/24 via 10.77.3.1", "192.168.3.0/24 over 10.77.3.1 (eth0)"),
        ("ip route add default nexthop via 10.77.3.1 nexthop via 10.77.3.9", "default"),
        ("ip route add default via 10.77.3.1 table 100", "default over 10.77.3.1 (eth0) in table 100"),
        ("ip -4 route add default via inet6 fe80::1 dev eth0", "default (eth0)"),
        ("ip -6 route add 2000::/3 dev eth0", "2000::/3 (eth0)"),
        ("ip -6 route add default via fe80::1 dev eth0 table 7", "default over fe80::1 (eth0) in table 7"),
    ],
)
def test_every_route_beyond_it_is_found_in_whatever_table(change: str, told: str):
    assert found(change) == [told]
