"""Which backup of a tenant was last proven to restore, and when, as the operator's machine remembers it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.backups.store import moment_of
from engine.clock import iso
from engine.errors import RecordFailed
from engine.records import RunResult, replace_file
from engine.records.atomic import append_line
from engine.registry.settings import Settings
from engine.subject import Subject

LATEST, HISTORY = "proof.json", "proofs.jsonl"
SECONDS_A_DAY = 86_400


@dataclass(frozen=True)
class Proof:
    """What became of one rehearsal; times are UTC ISO 8601, `phases` maps each part of it to its seconds.

    `unproven` are the channels that no rehearsal can speak for.
    """

    run: str
    archive: str
    at: str
    duration_seconds: float
    result: RunResult
    unproven: tuple[str, ...] = ()
    phases: Mapping[str, float] | None = None
    version: str | None = None
    error: str | None = None

    @property
    def is_good(self) -> bool:
        return self.result is RunResult.REHEARSED

    @property
    def rehearsed_at(self) -> datetime.datetime:
        return datetime.datetime.fromisoformat(self.at)

    @property
    def archive_at(self) -> datetime.datetime:
        """When its archive was begun; a rehearsal that failed before it had one raises ValueError."""
        return moment_of(self.archive)

    @property
    def reaches(self) -> datetime.datetime:
        """The moment up to which the tenant is proven to come back, at best: a new proof of an old archive is old."""
        return min(self.rehearsed_at, self.archive_at)

    def document(self, *names: str) -> dict[str, Any]:
        """These fields, as JSON has them; ``archive_at`` is one of a good proof."""
        whole = {**asdict(self), "result": self.result.value, "unproven": list(self.unproven)}
        if self.is_good:
            whole["archive_at"] = iso(self.archive_at)
        return {name: whole[name] for name in names}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Proof:
        """The proof that :func:`dataclasses.asdict` made `document` of; raises ValueError or TypeError."""
        result, unproven = RunResult(document.get("result", "")), tuple(document.get("unproven", ()))
        proof = cls(**{**document, "result": result, "unproven": unproven})
        if proof.rehearsed_at.tzinfo is None:
            raise ValueError(f"{proof.at} has no time zone")
        if proof.is_good:
            moment_of(proof.archive)
        return proof


@dataclass(frozen=True)
class ProofStore:
    """The proofs of each tenant, beside the records of its runs in `directory`.

    The last restore that was proven stays the last one when a later rehearsal fails, or is one of an older archive;
    every rehearsal has its line in the history.
    """

    directory: Path

    def record(self, tenant: Subject, proof: Proof) -> None:
        """Remember `proof`; raises :class:`RecordFailed`."""
        place = self._of(tenant)
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise RecordFailed(
                f"a proof cannot be recorded: {error.strerror}",
                where=str(place),
                hint="free space or correct permissions",
            ) from error
        append_line(place / HISTORY, json.dumps(asdict(proof), ensure_ascii=False))
        known = self.last_proven(tenant)
        if proof.is_good and (known is None or proof.reaches >= known.reaches):
            replace_file(place / LATEST, (json.dumps(asdict(proof), indent=2, ensure_ascii=False) + "\n").encode())

    def last_proven(self, tenant: Subject) -> Proof | None:
        """The last restore that was proven, None without one that can be read."""
        return _proof(_text(self._of(tenant) / LATEST))

    def last_attempt(self, tenant: Subject) -> Proof | None:
        """The last rehearsal, good or not; a line that a power cut left torn is passed over."""
        proofs = map(_proof, reversed(_text(self._of(tenant) / HISTORY).split("\n")))
        return next((proof for proof in proofs if proof), None)

    def _of(self, tenant: Subject) -> Path:
        return self.directory / tenant.kind / tenant.id


def restore_block(settings: Settings, proof: Proof | None, now: datetime.datetime) -> str | None:
    """Why a rollout must leave a tenant with this last proven restore alone; None where it need not."""
    days = settings.rehearsal.block_after_days
    if days is None:
        return None
    if proof is None:
        return "no restore of it was ever proven"
    age = (now - proof.reaches).total_seconds() / SECONDS_A_DAY
    if age <= days:
        return None
    what = f"archive {proof.archive}, rehearsed at {proof.at}"
    return f"its last proven backup is {age:.1f} days old, at most {days:g} are allowed: {what}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise RecordFailed(
            f"cannot be read: {error.strerror}", where=str(path), hint="look at it as the user who runs rehearse"
        ) from error


def _proof(text: str) -> Proof | None:
    try:
        return Proof.of(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        return None
