"""A guard over every test: no connection leaves this machine and its labs.

Destructive actions are never tried on a real target, not even to see a refusal. The hook sits below all
libraries and cannot be taken out again by a test.
"""

from __future__ import annotations

import ipaddress
import sys
from typing import Any

from engine.provision.providers.lab import is_lab_address


def _is_ours(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback or is_lab_address(host)
    except ValueError:
        return host in ("", "localhost")


def _refuse_real_targets(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple) and not _is_ours(str(arguments[1][0])):
        raise PermissionError(f"a test tried to connect to {arguments[1][0]}, which is neither loopback nor a lab")


sys.addaudithook(_refuse_real_targets)
