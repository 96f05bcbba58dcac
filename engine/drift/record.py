"""The operator's record of a tenant's drift: when each key was first seen to differ. A log for people."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.drift.compare import Difference
from engine.drift.report import Drift, Sighting
from engine.errors import RecordFailed
from engine.records import replace_file
from engine.subject import Subject


def record_file(state_directory: Path, subject: Subject) -> Path:
    """Where the newest record of `subject` is kept."""
    return state_directory / "records" / subject.kind / subject.id / "drift.json"


def first_seen(path: Path) -> Mapping[str, str]:
    """When each key of the last record was first seen; empty without one that can be read.

    A record is a log: a garbled one costs the earlier times and nothing else.
    """
    try:
        differences = json.loads(path.read_text(encoding="utf-8"))["differences"]
        return {str(item["key"]): str(item["since"]) for item in differences}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def last_check(path: Path) -> tuple[str, int] | None:
    """When the tenant was last checked and how many keys were not as expected; None without a readable record."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return str(document["at"]), len(document["differences"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def dated(differences: Iterable[Difference], earlier: Mapping[str, str], now: str) -> tuple[Sighting, ...]:
    """Each difference with the time from which on it was seen without a break."""
    return tuple(Sighting(item, earlier.get(item.key, now)) for item in differences)


def forget(path: Path, keys: Collection[str]) -> None:
    """Take keys that were put right out of the record, so that their next sighting is a first one.

    A record that is not there or cannot be read has none. Raises :class:`RecordFailed`.
    """
    if not set(keys) & set(first_seen(path)):
        return
    document = json.loads(path.read_text(encoding="utf-8"))
    left = [item for item in document["differences"] if item["key"] not in keys]
    _write({**document, "clean": not left, "differences": left}, path)


def remember(drift: Drift, path: Path) -> None:
    """Replace the record by what this check found; raises :class:`RecordFailed`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise RecordFailed(
            f"cannot record drift: {error.strerror}", where=str(path), hint="free space or correct permissions"
        ) from error
    _write(drift.document(), path)


def _write(document: Mapping[str, Any], path: Path) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    replace_file(path, text.encode(errors="backslashreplace"))
