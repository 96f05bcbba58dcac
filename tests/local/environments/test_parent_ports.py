"""Ports of parents: found once, kept for good, and none that an outgoing connection takes before they are used."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from engine.environments.parents.service import ADDRESS, Account, Service

NAMES = ("master", "filer", "volume")
FIRST_EPHEMERAL_PORT = 32768


def service(directory: Path) -> Service:
    return Service("objects", directory, "ports", lambda: Account(os.getuid(), os.getgid()))


def test_ports_differ_stay_and_are_not_those_that_connections_take(tmp_path: Path):
    ports = service(tmp_path).ports(NAMES)
    assert tuple(ports) == NAMES
    assert len(set(ports.values())) == len(NAMES) and max(ports.values()) < FIRST_EPHEMERAL_PORT
    assert service(tmp_path).ports(NAMES) == ports


def test_a_port_that_another_program_has_is_passed_over(tmp_path: Path):
    found = service(tmp_path)
    taken = found.ports(NAMES)["filer"]
    found.file.unlink()
    with socket.create_server((ADDRESS, taken)):
        ports = found.ports(NAMES)
    assert taken not in ports.values() and len(set(ports.values())) == len(NAMES)
