"""pyinfra's own command line on a tier of both parents: asked, made, made again, and what goes on from there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.environments.journal import Database, Journal, Outcome, State
from engine.environments.parents import LabParents, ParentKind
from engine.environments.parents.recognition import ParentSeen
from engine.registry.settings import HostingSettings
from tests.cli.test_env_pyinfra import ABSENT, FACT, INVENTORY, PRESENT, pyinfra
from tests.fleets import write_whole_fleet
from tests.lab.environments.conftest import parents_in_memory
from tests.unit.hosted import ENVIRONMENTS, PIN, TIER, write_environments

KINDS = ("database", "role", "bucket", "key")
HOST = f"@env/{TIER}"


@pytest.fixture
def fleet(tmp_path: Path) -> tuple[Path, LabParents]:
    """A fleet with one tier, pinned to the parents that run for it."""
    root = write_whole_fleet(tmp_path / "fleet")
    with parents_in_memory(root / "var"):
        parents = LabParents(root / "var", print)
        parents.up()
        text = ENVIRONMENTS.split("environments:")[0]
        for kind in ParentKind:
            seen = parents.observe(kind)
            assert isinstance(seen, ParentSeen)
            text = text.replace(PIN, seen.digest, 1)
        write_environments(root, text)
        shutil.copy(INVENTORY, root / "inventory")
        yield root, parents
        parents.down()


def observations(root: Path) -> dict[str, str]:
    done = pyinfra(root, "--json", HOST, "fact", *(part for kind in KINDS for part in (FACT, f"kind={kind}")))
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])
    return {name.split("=")[1].rstrip(")"): seen[HOST]["observation"] for name, seen in found.items()}


def test_a_tier_by_hand(fleet: tuple[Path, LabParents]) -> None:
    root, parents = fleet
    file = root / "var" / HostingSettings.journal
    assert observations(root) == dict.fromkeys(KINDS, "absent")
    dry = pyinfra(root, HOST, PRESENT, "kind=database", "--dry")
    assert dry.returncode == 0 and f"1 ({HOST})" in dry.stdout and "_db is absent" in dry.stdout, dry.stdout
    assert not file.exists() and observations(root)["database"] == "absent"

    for kind in KINDS:
        done = pyinfra(root, "-y", HOST, PRESENT, f"kind={kind}")
        assert done.returncode == 0, done.stdout
    assert observations(root) == dict.fromkeys(KINDS, "present")
    journal = Journal(Database(file), SystemClock())
    assert [effect.outcome for effect in journal.effects(TIER)] == [Outcome.DONE] * len(KINDS)
    assert journal.required(TIER).state is State.CREATING

    again = pyinfra(root, "-y", HOST, PRESENT, "kind=database")
    assert again.returncode == 0 and "No changes" in again.stdout, again.stdout
    refused = pyinfra(root, "-y", HOST, ABSENT, "key", "bucket")
    assert refused.returncode == 1 and "notLettingGo" in refused.stdout and "Traceback" not in refused.stdout
    assert len(journal.effects(TIER)) == len(KINDS)

    journal.writer(TIER).fence(State.RECLAIMING)
    gone = pyinfra(root, "-y", HOST, ABSENT, "key", "bucket")
    assert gone.returncode == 0, gone.stdout
    assert observations(root) == {"database": "present", "role": "present", "bucket": "absent", "key": "absent"}

    parents.down()
    assert observations(root) == dict.fromkeys(KINDS, "unknown")
    unknown = pyinfra(root, "-y", HOST, ABSENT, "role", "database")
    assert unknown.returncode == 1 and "notRunning" in unknown.stdout and "Traceback" not in unknown.stdout
    assert journal.required(TIER).state is State.RECLAIMING
