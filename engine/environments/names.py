"""Names of an environment's and a tier's resources: pure functions of the uuid, each of which leads back to it.

PostgreSQL takes 63 bytes and folds what is not lower case, so its names are lower case with underscores and never
need quotes. Buckets take 3 to 63 of a-z, 0-9 and hyphens; users of the object store and routes follow them. A lab host
takes 32 characters, which a uuid in hexadecimal digits would fill alone, so machines spell it in base 32.
"""

from __future__ import annotations

import base64
import re
import uuid as uuids
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import InvalidInput
from engine.registry import formats

_HEX = re.compile(r"(?:ns_([et])_([0-9a-f]{32})_[a-z]{2}|ns-([et])-([0-9a-f]{32})-[a-z]{2})", re.ASCII)
_MACHINE = re.compile(r"env-([a-z2-7]{26})-[gw]", re.ASCII)


class Owner(StrEnum):
    """Whose resources they are; the value is the letter in their names."""

    ENVIRONMENT = "e"
    TIER = "t"


@dataclass(frozen=True)
class Names:
    """What the resources of one uuid are called; each attribute has the word of its kind."""

    uuid: str
    owner: Owner
    gateway: str
    web: str
    database: str
    role: str
    bucket: str
    key: str
    route: str

    def every(self) -> tuple[str, ...]:
        """All of them, in the order of their kinds."""
        return (
            *(self.gateway, self.web, self.database, self.role),
            *(self.bucket, self.key, self.route),
        )


def canonical(text: str) -> str:
    """Return `text` if it is a uuid as the inventory must write it; raises :class:`InvalidInput`."""
    try:
        return formats.uuid(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r}: {error}", hint="`tenantry env list` shows those that are known") from error


def names_of(uuid: str, owner: Owner = Owner.ENVIRONMENT) -> Names:
    """The names of `uuid`'s resources; raises :class:`InvalidInput` for what is not a canonical uuid."""
    digits = canonical(uuid).replace("-", "")
    short = base64.b32encode(bytes.fromhex(digits)).decode().rstrip("=").lower()
    return Names(
        uuid=uuid,
        owner=owner,
        gateway=f"env-{short}-g",
        web=f"env-{short}-w",
        database=f"ns_{owner}_{digits}_db",
        role=f"ns_{owner}_{digits}_ro",
        bucket=f"ns-{owner}-{digits}-bu",
        key=f"ns-{owner}-{digits}-ke",
        route=f"ns-{owner}-{digits}-rt",
    )


def worker_of(tier: str) -> str:
    """The name of the worker machine of the tier with this uuid.

    No tier has one yet: it comes with the vault that will hold its token, and stands beside the four resources.
    """
    return f"ns-{Owner.TIER}-{canonical(tier).replace('-', '')}-wk"


def uuid_of(name: str) -> str | None:
    """The uuid that `name` was derived from, or None for a name that is given to no uuid."""
    if (machine := _MACHINE.fullmatch(name)) is not None:
        raw = base64.b32decode(machine[1].upper() + "======")
        found, owner = str(uuids.UUID(bytes=raw)), Owner.ENVIRONMENT
    elif (plain := _HEX.fullmatch(name)) is not None:
        found, owner = str(uuids.UUID(hex=plain[2] or plain[4])), Owner(plain[1] or plain[3])
    else:
        return None
    # The last character of base 32 has bits to spare, and a suffix may be nobody's: only a derived name counts.
    known = (*names_of(found, owner).every(), *((worker_of(found),) if owner is Owner.TIER else ()))
    return found if name in known else None
