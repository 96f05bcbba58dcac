"""Proofs: the last good one stays, torn lines are passed over, and rollouts can be held back by age."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from engine.backups.proofs import Proof, restore_block
from engine.records import RunResult
from engine.registry.safeguards import Rehearsal
from engine.registry.settings import Settings

NOW = datetime.datetime(2026, 11, 10, 12, tzinfo=datetime.UTC)
PROOF = Proof("r", "20261109T113000Z", "2026-11-09T12:00:00Z", 60.0, RunResult.REHEARSED)


def settings(days: float | None) -> Settings:
    return Settings(brand="Queva", rehearsal=Rehearsal(block_after_days=days))


@pytest.mark.parametrize(
    ("days", "proof", "words"),
    [
        (None, None, None),
        (3, None, "ever proven"),
        (3, PROOF, None),
        (3, replace(PROOF, at="2026-11-07T11:59:00Z"), "3.0 days old, at most 3"),
        (3, replace(PROOF, at="2026-11-07T12:00:00Z"), None),
        # Rehearsed yesterday, but of an old archive: what came since is not proven.
        (3, replace(PROOF, archive="20261101T120000Z"), "9.0 days old, at most 3"),
        (3, replace(PROOF, archive="20261107T120000Z"), None),
    ],
)
def test_a_rollout_is_held_back_by_the_age_of_the_last_proof(
    days: float | None, proof: Proof | None, words: str | None
):
    reason = restore_block(settings(days), proof, NOW)
    assert (reason is None) if words is None else (words in str(reason))
