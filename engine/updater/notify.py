"""Telling the owner, at most once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

import apprise
from apprise.result import AppriseResultStatus

from engine.hosts.status import OwedNote

_MAY_HAVE_DELIVERED = ("connection error", "raised an exception")
"""What Apprise logs where no answer came: the message may have gone through."""


class Delivery(Enum):
    """What became of one message. Unknown is never sent again; refused stays owed."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    UNKNOWN = "unknown"


Sender = Callable[[str, str], Delivery]
"""Sends a text to a target URL."""


def send(target: str, text: str) -> Delivery:
    """Send `text` through Apprise; the target's URL, which may hold a secret, is in no error or log."""
    messenger = apprise.Apprise()
    if not messenger.add(target):
        return Delivery.REFUSED
    # Said to be plain text, so that a service with markup of its own shows it as it is.
    with messenger.notify(body=text, body_format=apprise.NotifyFormat.TEXT) as result:
        # Its own log, not the library's: other tenants' messages are under way at the same time.
        said = " ".join(entry.message.lower() for entry in result.logs())
        if result.status is AppriseResultStatus.SUCCESS:
            return Delivery.DELIVERED
        if result.status is AppriseResultStatus.TIMEOUT or any(words in said for words in _MAY_HAVE_DELIVERED):
            return Delivery.UNKNOWN
    return Delivery.REFUSED


def deliver(note: OwedNote, target: str | None, record: Callable[[OwedNote | None], None], sender: Sender) -> str:
    """Send an owed note and keep its record true through a crash; returns what happened, in words.

    `record` writes the note's state on the tenant: "sending" before the attempt, so that an attempt whose
    outcome is not known is never repeated.
    """
    if note.sending:
        record(None)
        return f"the note for {note.version} may have been delivered by an earlier run and is not sent again"
    if target is None:
        return f"the note for {note.version} stays owed: the tenant has no message target"
    record(replace(note, sending=True))
    delivery = sender(target, note.text)
    match delivery:
        case Delivery.DELIVERED:
            record(None)
            return f"the owner was told about {note.version}"
        case Delivery.REFUSED:
            record(note)
            return f"the message about {note.version} was refused and stays owed"
    record(None)
    return f"it is unknown whether the message about {note.version} was delivered; it is not sent again"
