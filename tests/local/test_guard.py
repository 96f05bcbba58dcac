"""The guard that keeps tests away from real machines."""

import socket

import pytest


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1", "10.78.0.1"])
def test_a_connection_to_a_real_address_is_refused(address: str):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as client, pytest.raises(PermissionError, match="neither loopback"):
        client.connect((address, 22))


def test_loopback_is_ours():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
