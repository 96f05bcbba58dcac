"""Which archives are old enough to go. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backups.store import StoredArchive


def expired(archives: Sequence[StoredArchive], kept: int) -> tuple[StoredArchive, ...]:
    """The verified archives beyond the newest `kept`, oldest first, by the times in their names.

    What is not verified is neither counted nor deleted: a person decides about it.
    """
    verified = sorted((item for item in archives if item.is_verified), key=lambda item: item.archive)
    return tuple(verified[: max(0, len(verified) - kept)])
