"""Which copies of an environment are due to go."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping

from engine.environments.copies.manifest import moment_of

UNFINISHED = datetime.timedelta(days=1)
"""How long a copy may be unfinished before it is thought to be the remains of a job that died."""


def due(
    found: Mapping[str, bool], now: datetime.datetime, kept: datetime.timedelta, needed: Collection[str] = ()
) -> tuple[str, ...]:
    """Of the copies `found`, id -> whether it is whole, those that are to be removed, the oldest first.

    A whole one is due when it is older than `kept`, except the newest and those that are `needed`; an unfinished
    one after a day. What is not named like a copy is left alone.
    """
    newest = max((copy_id for copy_id, whole in found.items() if whole and moment_of(copy_id)), default=None)
    spared = {newest, *needed}

    def is_due(copy_id: str, whole: bool) -> bool:
        begun = moment_of(copy_id)
        return begun is not None and copy_id not in spared and now - begun >= (kept if whole else UNFINISHED)

    return tuple(copy_id for copy_id, whole in sorted(found.items()) if is_due(copy_id, whole))
