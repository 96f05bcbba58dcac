"""The reference fleet's archives with the real runtime: rehearsed from an early version, restored in place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.backups.rehearsal import RehearsalOutcome, rehearse_many
from engine.backups.restore import Wish, restore
from engine.backups.run import backup_many
from engine.provision.installer import provision_many
from engine.records import RunResult
from engine.updater.fleet import ask_many
from engine.updater.verify import Verification, verify
from tests.lab.reference_fleet import ReferenceFleet

EARLY = 3
ROWS = """
python3 -c "import sqlite3; c = sqlite3.connect('file:/srv/tenant/home/state.db?mode=ro', uri=True)
print(c.execute('SELECT COUNT(*) FROM messages').fetchone()[0])"
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceFleet]:
    """One tenant at an early version that has spoken with its owner, and its archive."""
    fleet = ReferenceFleet.create(tmp_path_factory.mktemp("restore") / "fleet")
    try:
        fleet.release(EARLY)
        workspace = fleet.workspace
        maple = workspace.fleet.tenants["maple"]
        (outcome,) = provision_many(workspace, [maple])
        assert outcome.error is None, outcome.error
        assert fleet.ask("maple", "open", "Hello")
        (outcome,) = backup_many(workspace, [maple])
        assert outcome.error is None, outcome.error
        fleet.release()
        yield fleet
    finally:
        fleet.lab.destroy()


def test_an_early_archive_boots_and_reaches_the_head_on_a_scratch_server(fleet: ReferenceFleet):
    workspace = fleet.workspace
    (outcome,) = rehearse_many(workspace, [workspace.fleet.tenants["maple"]])
    assert (outcome.error, outcome.result) == (None, RunResult.REHEARSED)
    assert outcome.to_version == str(workspace.manifest.head)
    assert isinstance(outcome, RehearsalOutcome) and outcome.proof and outcome.proof.phases
    assert any(message.startswith("verify: ") and " 0 failed" in message for message in outcome.messages)
    assert fleet.lab.find("scratch-maple") is None
    print({"seconds": outcome.proof.duration_seconds, **outcome.proof.phases})


def test_a_tenant_at_the_head_is_restored_from_the_early_archive_and_converses(fleet: ReferenceFleet):
    assert [outcome.error for outcome in fleet.converge("maple")] == [None]
    workspace = fleet.workspace
    maple = workspace.fleet.tenants["maple"]
    rows = int(fleet.run("maple", ROWS))
    fleet.ask("maple", "lost", "Nobody will know of this")
    fleet.run("maple", "rm -r /srv/tenant/home/memories; touch /srv/tenant/home/stray /opt/tenant-stray")
    outcome = restore(workspace, maple, Wish())
    assert (outcome.error, outcome.result) == (None, RunResult.RESTORED)
    assert int(fleet.run("maple", ROWS)) <= rows
    fleet.run(
        "maple", "test -d /srv/tenant/home/memories && test ! -e /srv/tenant/home/stray -a ! -e /opt/tenant-stray"
    )
    assert fleet.ask("maple", "open", "Still there?")
    (found,) = ask_many(workspace, [maple], lambda tenant, session: verify(workspace, tenant, session.probe()))
    assert isinstance(found, Verification) and found.is_good, found
