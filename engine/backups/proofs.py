"""When a tenant's backup was last proven to restore, as the operator's machine remembers it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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

    def age_seconds(self, now: datetime.datetime) -> float:
        return (now - datetime.datetime.fromisoformat(self.at)).total_seconds()

    def document(self, *names: str) -> dict[str, Any]:
        """These fields, as JSON has them."""
        whole = {**asdict(self), "result": self.result.value, "unproven": list(self.unproven)}
        return {name: whole[name] for name in names}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Proof:
        """The proof that :func:`dataclasses.asdict` made `document` of; raises ValueError or TypeError."""
        result, unproven = RunResult(document.get("result", "")), tuple(document.get("unproven", ()))
        proof = cls(**{**document, "result": result, "unproven": unproven})
        proof.age_seconds(datetime.datetime.now(datetime.UTC))
        return proof


@dataclass(frozen=True)
class ProofStore:
    """The proofs of each tenant, beside the records of its runs in `directory`.

    The last restore that was proven stays the last one when a later rehearsal fails; every rehearsal has its line
    in the history.
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
        if proof.is_good:
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
    age = proof.age_seconds(now) / SECONDS_A_DAY
    if age <= days:
        return None
    return f"its last proven restore is {age:.1f} days old, at most {days:g} are allowed"


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
