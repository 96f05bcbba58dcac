"""Relays from a lab to programs on this machine's loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
from dataclasses import replace

import pytest

from engine.errors import Refused
from engine.provision.providers.lab import HostSpec, Lab
from engine.provision.providers.lab.processes import Process
from tests.lab.conftest import MakeLab
from tests.lab.lab_tools import inside, light, taken_network, traces
from tests.lab.waiting import until


def test_relays_come_back_with_the_lab_and_keep_their_ports(make_lab: MakeLab) -> None:
    lab = make_lab(model_stub=None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        target = f"127.0.0.1:{server.getsockname()[1]}"
        port = lab.relay("one", target, 5432)
        assert lab.relay("one", target, 5432) == port
        assert lab.relay("two", target, 5432) != port
        assert reached(server, lab, port)
        relay = json.loads((lab.state.relays / "one.json").read_text())
        os.kill(relay["pid"], signal.SIGKILL)
        until(lambda: not Process(relay["pid"], relay["started"]).alive, "the relay has ended")
        assert not reached(server, lab, port)
        lab.up([light(lab, "maple")])
        assert reached(server, lab, port)
        lab.down()
        assert traces(lab) == set()
        lab.up([light(lab, "maple")])
        assert reached(server, lab, port)


def test_a_lab_with_machines_comes_back_to_its_last_network_or_not_at_all(make_lab: MakeLab) -> None:
    lab = make_lab(model_stub=None)
    spec = replace(light(lab, "maple"), label="somebody's")
    before = after_a_start(lab, spec)
    assert before[1] == lab.gateway_address
    with taken_network(lab):
        for call in (lambda: lab.up([spec]), lambda: lab.start([spec.slug])):
            with pytest.raises(Refused, match="is taken"):
                call()
        assert traces(lab) == set()
    assert after_a_start(lab, spec) == before


def after_a_start(lab: Lab, spec: HostSpec) -> tuple[str, str]:
    """The address that the host has, and the one at which it looks for relays, while the lab is up once."""
    lab.up([spec])
    lab.wait_ready([spec.slug])
    found = inside(lab, spec.slug, "getent hosts relay.lab").split()[0]
    address = lab.find_required(spec.slug).address
    lab.down()
    return address, found


def reached(server: socket.socket, lab: Lab, port: int) -> bool:
    """Whether a connection to the relay arrives at the server."""
    try:
        with socket.create_connection((lab.gateway_address, port), 10) as client:
            connection, _ = server.accept()
            connection.sendall(b"here")
            connection.close()
            return client.recv(4) == b"here"
    except OSError:
        return False
