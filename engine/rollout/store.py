"""Rollouts on the operator's disk: one directory each, a state that is replaced whole, a line for every event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.clock import Clock, iso
from engine.errors import InvalidInput, RecordFailed
from engine.records.atomic import append_line, replace_file
from engine.rollout.state import Rollout
from engine.subject import Subject

ROLLOUT = Subject("fleet", "rollout")
"""What a running rollout locks: there is one a fleet at a time."""

_HALT = "halt"


class RolloutStore:
    """The rollouts below one directory. Their ids sort by time."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    def save(self, rollout: Rollout) -> None:
        """Replace the rollout's state, durably; raises :class:`RecordFailed`."""
        text = json.dumps(rollout.document(), indent=1, ensure_ascii=False)
        replace_file(self._made(rollout.id) / "state.json", f"{text}\n".encode(errors="backslashreplace"))

    def load(self, rollout: str | None = None) -> Rollout:
        """The rollout of that id, or the newest; raises :class:`InvalidInput` where there is none."""
        names = self.names()
        if not names or (rollout is not None and rollout not in names):
            raise InvalidInput(
                f"there is no rollout {rollout}" if rollout else "there was no rollout yet",
                hint=f"known: {', '.join(names)}" if names else "begin one with `tenantry rollout start`",
            )
        path = self._directory / (rollout or names[-1]) / "state.json"
        try:
            return Rollout.of(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RecordFailed(f"the rollout's state cannot be read: {error}", where=str(path)) from error

    def names(self) -> tuple[str, ...]:
        """The ids of all rollouts, the oldest first."""
        try:
            found = [path.parent.name for path in self._directory.glob("*/state.json")]
        except OSError as error:
            raise RecordFailed(f"cannot be read: {error.strerror}", where=str(self._directory)) from error
        return tuple(sorted(found))

    def tell(self, rollout: str, event: str, **details: Any) -> dict[str, Any]:
        """Append an event to the rollout's story and return it."""
        entry = {"at": iso(self._clock.now()), "rollout": rollout, "event": event, **details}
        append_line(self._made(rollout) / "events.jsonl", json.dumps(entry), durable=False)
        return entry

    def events(self, rollout: str) -> Iterator[dict[str, Any]]:
        """The rollout's story, the oldest event first; a torn last line is passed over."""
        try:
            lines = (self._directory / rollout / "events.jsonl").read_text().split("\n")
        except FileNotFoundError:
            return
        for line in lines:
            with suppress(ValueError):
                yield json.loads(line)

    def _made(self, rollout: str) -> Path:
        directory = self._directory / rollout
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise RecordFailed(f"cannot keep the rollout: {error.strerror}", where=str(directory)) from error
        return directory

    def ask_to_halt(self, rollout: str, reason: str) -> None:
        """Leave word for the process that runs the rollout: no further tenant is begun."""
        replace_file(self._directory / rollout / _HALT, reason.encode())

    def halt_asked(self, rollout: str) -> str | None:
        """The reason a person gave for a halt, or None."""
        try:
            return (self._directory / rollout / _HALT).read_text(errors="replace") or "no reason was given"
        except FileNotFoundError:
            return None

    def forget_halt(self, rollout: str) -> None:
        """Take back what :meth:`ask_to_halt` left."""
        (self._directory / rollout / _HALT).unlink(missing_ok=True)
