"""What providers hold in our name although the journal knows no reason for it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.environments.drivers.base import Kind, Owned
from engine.environments.journal import Action, State
from engine.environments.life import Parts


@dataclass(frozen=True)
class Orphan:
    """A marked resource whose intent is not journalled, or whose subject was let go of. It is listed, never deleted.

    It comes from a request that was sent before a fence and landed after the tombstone, or from another journal.
    """

    kind: Kind
    owned: Owned


def orphans(parts: Parts) -> tuple[Orphan, ...]:
    """Every provider's listing minus the journal; raises :class:`UnknownState` if one cannot be listed whole."""
    # Read before the listings: what is let go of meanwhile may have been listed while it was there by right.
    gone = {row.uuid for row in parts.journal.subjects() if row.state is State.TOMBSTONED}
    listings = [(kind, driver.list_owned()) for kind, driver in parts.drivers.items()]
    # Read after them: what was made meanwhile has its intent in the journal by now.
    known = {
        (effect.kind, effect.name, effect.uuid, effect.id)
        for effect in parts.journal.effects()
        if effect.action is Action.CREATE and effect.uuid not in gone
    }
    return tuple(
        Orphan(kind, owned)
        for kind, listing in listings
        for owned in listing
        if (kind, owned.name, owned.mark.uuid, owned.mark.intent_id) not in known
    )
