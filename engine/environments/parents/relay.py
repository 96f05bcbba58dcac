"""The way from machines to the parents, which listen on loopback alone: a relay of the lab for each."""

from __future__ import annotations

from dataclasses import dataclass

from engine.environments.parents.lab import LabParents
from engine.environments.parents.recognition import ParentKind
from engine.environments.parents.service import ADDRESS
from engine.errors import Refused
from engine.provision.providers.lab import RELAY_NAME, Lab

_PREFERRED_PORTS = {ParentKind.POSTGRES: ("postgres", 5432), ParentKind.OBJECTS: ("s3", 8333)}
"""Kind of parent -> its port's name, and the relay's port if that is free when it is made."""


@dataclass(frozen=True)
class Stores:
    """Where a machine reaches its database and its bucket. It stays so: the name leads to the lab's present address."""

    host: str
    postgres_port: int
    objects_port: int


def relay_parents(lab: Lab, parents: LabParents) -> Stores:
    """Have both relays; raises `Refused` before the parents' first `up`."""
    ports = []
    for kind, (port, preferred) in _PREFERRED_PORTS.items():
        record = parents.record(kind)
        if record is None:
            raise Refused("the parent was never up", where=f"parent {kind}", hint="tenantry lab parents up")
        ports.append(lab.relay(f"parent-{kind}", f"{ADDRESS}:{record.ports[port]}", preferred))
    return Stores(RELAY_NAME, *ports)
