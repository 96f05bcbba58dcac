"""Runs on a scratch server: looks for routes that lead beyond its own network. Leaves ``RESULT``: {"routes"}."""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import socket
import struct

IPV4, IPV6 = "/proc/net/route", "/proc/net/ipv6_route"
GATEWAY_FLAG = 0x2
NOWHERE = "00000000"
LOOPBACK = "lo"


def lines(path):
    try:
        with open(path, encoding="ascii") as file:
            return [line.split() for line in file]
    except FileNotFoundError:
        # The kernel has no such protocol, so there is no way out by it.
        return []


def ipv4_routes():
    for device, destination, gateway, flags, *_ in lines(IPV4)[1:]:
        if device != LOOPBACK and (destination == NOWHERE or int(flags, 16) & GATEWAY_FLAG):
            yield f"{address(destination)} over {address(gateway)} ({device})"


def address(text):
    return socket.inet_ntoa(struct.pack("<L", int(text, 16)))


def ipv6_routes():
    for destination, length, _, _, gateway, *_, flags, device in lines(IPV6):
        is_default = int(length, 16) == 0
        if device != LOOPBACK and (is_default or int(flags, 16) & GATEWAY_FLAG):
            yield f"{destination}/{int(length, 16)} over {gateway} ({device})"


RESULT = {"routes": [*ipv4_routes(), *ipv6_routes()]}
