"""Which of this machine's ports listen where."""

from __future__ import annotations

from pathlib import Path


def listening_elsewhere(ports: set[int]) -> set[int]:
    """The ports among `ports` that listen at another address than loopback's."""
    found = set()
    for file, loopback in (("tcp", "0100007F"), ("tcp6", "0" * 24 + "01000000")):
        for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, _, port = local.partition(":")
            if state == "0A" and int(port, 16) in ports and address != loopback:
                found.add(int(port, 16))
    return found
