"""What a provider was seen to hold: three values, of which only two allow anything to be done."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_FORM = "tenantry:1"
_TOKEN = re.compile(r"[A-Za-z0-9._:-]{1,100}\Z")


@dataclass(frozen=True)
class Mark:
    """Who owns a resource: the environment (or tier) and the intent that was journalled before it was made."""

    uuid: str
    intent_id: str


@dataclass(frozen=True)
class Present:
    """It exists.

    `reference` is the provider's own name for this very instance, where there is one: a resource that was deleted
    and made again by somebody has another. `digest` is that of the request that made it if it still has the shape
    that the driver gives it, and anything else if not. `mark` is None for what is not ours.
    """

    reference: str
    digest: str
    mark: Mark | None

    def to_json(self) -> dict[str, Any]:
        return {"observation": "present", **asdict(self)}


@dataclass(frozen=True)
class Absent:
    """The provider said that it does not exist; only this may ever lead to a tombstone."""

    def to_json(self) -> dict[str, Any]:
        return {"observation": "absent"}


@dataclass(frozen=True)
class Unknown:
    """Nothing was learned; `word` is a closed word for people, never the provider's own text."""

    word: str

    def to_json(self) -> dict[str, Any]:
        return {"observation": "unknown", "word": self.word}


Observation = Present | Absent | Unknown


def from_json(document: Mapping[str, Any]) -> Observation:
    """What `to_json` wrote; raises `ValueError`, `KeyError` or `TypeError` for anything else."""
    match document["observation"]:
        case "present":
            mark = document["mark"]
            return Present(document["reference"], document["digest"], None if mark is None else Mark(**mark))
        case "absent":
            return Absent()
        case "unknown":
            return Unknown(document["word"])
    raise ValueError("no observation has that name")


@dataclass(frozen=True)
class Label:
    """What is put on a resource: its kind, whose it is, and the digest of the request that made it."""

    kind: str
    mark: Mark
    digest: str

    def text(self) -> str:
        """One line that a comment, a tag and a claim can all hold; raises `ValueError` for what is no plain token."""
        parts = (self.kind, self.mark.uuid, self.mark.intent_id, self.digest)
        if not all(_TOKEN.match(part) for part in parts):
            raise ValueError("a label holds plain tokens only")
        return "/".join((_FORM, *parts))


def read_label(text: str | None) -> Label | None:
    """The label that `text` is, to the last character; None for anything else, which is foreign."""
    form, _, rest = (text or "").partition("/")
    parts = rest.split("/")
    if form != _FORM or len(parts) != 4 or not all(_TOKEN.match(part) for part in parts):
        return None
    kind, uuid, intent_id, digest = parts
    return Label(kind, Mark(uuid, intent_id), digest)
