"""The sweep over real parents: its jobs are the commands that an operator would give."""

from __future__ import annotations

import datetime
import sqlite3
from pathlib import Path

import pytest

from engine.environments.drivers.base import Kind
from engine.environments.hosting import converge_all, open_hosting
from engine.environments.journal import State
from engine.environments.life import RETENTION
from engine.environments.parents import LabParents
from engine.environments.words import Attention
from engine.subject import Subject
from tests.cli.conftest import valid
from tests.lab.environments.conftest import Child, Drivers
from tests.lab.environments.tier_fleet import TierFleet


@pytest.fixture
def fleet(tmp_path: Path, parents_state: Path, parents: LabParents) -> TierFleet:
    return TierFleet(tmp_path / "fleet", parents_state).write(parents)


def test_a_sweep_takes_what_is_due_and_names_the_rest(fleet: TierFleet, drivers: Drivers) -> None:
    given_up, over, stopped, waiting = fleet.tiers
    hosting = open_hosting(fleet.root, fleet.state("one"))
    journal, specs = hosting.journal, hosting.specifications
    # Its entry stays as it is: letting go of the others must not wait for somebody who removes it.
    journal.begin(specs[given_up].subject()).fence(State.ABANDONED)
    ended = converge_all(hosting, [Subject("tier", tier) for tier in (over, stopped)])
    assert [item.error for item in ended] == [None, None]
    journal.writer(over).retire(RETENTION).move(State.RETAINED)
    journal.writer(stopped).retire(RETENTION)
    journal.begin(specs[waiting].subject()).need_attention(Attention.RESOURCE_DIFFERS, Kind.ROLE)
    stranger = drivers.make(Child(), "bucket")
    _retired_ago(fleet, over, RETENTION)
    swept = _sweep(fleet)
    # Two that were made at the same time began in either order.
    assert {(job["uuid"], job["command"], job["exit_code"]) for job in swept["jobs"]} == {
        (given_up, "reclaim", 0),
        (over, "expire-retained", 0),
        (stopped, "retire", 0),
    }
    assert len(swept["jobs"]) == 3
    assert [(item["uuid"], item["word"]) for item in swept["waiting"]] == [(waiting, "resourceDiffers")]
    orphan = {"kind": "bucket", "name": stranger.names.bucket, "uuid": stranger.uuid, "intent": "intent-1"}
    assert orphan in swept["orphans"]
    assert not [item for item in swept["orphans"] if item["uuid"] in fleet.tiers]
    states = [journal.required(tier).state for tier in fleet.tiers]
    assert states == [State.TOMBSTONED, State.TOMBSTONED, State.RETAINED, State.CREATING]
    receipts = [(item.result, item.word) for item in journal.receipts(None)]
    assert receipts == [("done", "3 of 3 jobs, 0 errors")]
    assert _sweep(fleet)["jobs"] == []
    assert len(journal.receipts(None)) == 1


def _sweep(fleet: TierFleet) -> dict[str, list[dict[str, object]]]:
    code, document = fleet.run("one", "sweep", "--once")
    assert code == 0, document
    return dict(valid("sweep", document))


def _retired_ago(fleet: TierFleet, tier: str, ago: datetime.timedelta) -> None:
    """As if that much time had passed since it was retired: the processes have the machine's own clock."""
    now = datetime.datetime.now(datetime.UTC)
    moments = [int(moment.timestamp() * 1_000_000) for moment in (now - ago, now - ago + RETENTION)]
    with sqlite3.connect(fleet.journal_file) as connection:
        connection.execute("UPDATE subject SET retired_at = ?, retained_until = ? WHERE uuid = ?", (*moments, tier))
    connection.close()
