"""``tenantry sweep`` as a process, where no parent is up: every job fails, and the service goes on."""

from __future__ import annotations

import datetime
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.environments.drivers.base import Kind
from engine.environments.journal import Database, Journal, State
from engine.environments.sweep import SWEEP
from engine.environments.words import Attention
from engine.locks import LockDirectory
from engine.records.atomic import replace_file
from engine.registry.settings import HostingSettings
from tests.cli.conftest import Tenantry
from tests.local.environments.test_tiers import tier_spec
from tests.unit.hosted import TIER, write_environments

ONE_TIER = f"""\
parents:
  postgres: {{pin: "sha256:{"0" * 64}"}}
  objects: {{pin: "sha256:{"0" * 64}"}}
projects:
  shop: {{title: The shop}}
tiers:
  common: {{uuid: {TIER}, project: shop}}
"""


@pytest.fixture
def journal(tenantry: Tenantry) -> Journal:
    """The journal of a fleet whose one tier is being retired."""
    write_environments(tenantry.root, ONE_TIER)
    settings = tenantry.root / "inventory/fleet.yaml"
    settings.write_text(f"{settings.read_text()}environments: {{sweep_seconds: 1}}\n")
    found = Journal(Database(tenantry.state_directory / HostingSettings.journal), SystemClock())
    found.begin(tier_spec().subject()).move(State.READY)
    return found


def retire(journal: Journal) -> None:
    journal.writer(TIER).retire(datetime.timedelta(hours=168))


def test_a_fleet_that_hosts_nothing(tenantry: Tenantry) -> None:
    assert tenantry.document("sweep", "sweep", "--once") == {
        "busy": None,
        **{key: [] for key in ("jobs", "waiting", "orphans", "errors")},
    }
    assert tenantry("sweep", "--once").out == "nothing is due\n"
    assert not (tenantry.state_directory / HostingSettings.journal).exists()


def test_what_waits_and_what_could_not_be_listed(tenantry: Tenantry, journal: Journal) -> None:
    journal.writer(TIER).need_attention(Attention.RESOURCE_MISSING, Kind.BUCKET)
    found = tenantry.document("sweep", "sweep", "--once", code=1)
    assert found["waiting"] == [{"uuid": TIER, "kind": "tier", "state": "ready", "word": "resourceMissing"}]
    assert (found["orphans"], found["jobs"], len(found["errors"])) == (None, [], 1)
    shown = tenantry("sweep", "--once")
    assert "waits for a person: resourceMissing" in shown.out and "orphans: " in shown.err


def test_another_sweep_is_at_work(tenantry: Tenantry, journal: Journal) -> None:
    with LockDirectory(tenantry.state_directory / "locks", SystemClock()).hold(SWEEP, job="sweep", run="r"):
        assert "sweep/environments is busy" in tenantry.document("sweep", "sweep", "--once", code=75)["busy"]
        assert "is busy" in tenantry("sweep", "--once").err


@pytest.mark.parametrize("arguments", [("--json",), ("--once", "--unit")])
def test_contradictions(tenantry: Tenantry, arguments: tuple[str, ...]) -> None:
    assert tenantry("sweep", *arguments).code == 2


def test_the_unit_is_a_service_outside_of_the_timers_prefix(tenantry: Tenantry) -> None:
    name, *lines = tenantry("sweep", "--unit").out.splitlines()
    assert name.startswith("# /etc/systemd/system/tenantry-sweep-")
    command = next(line for line in lines if line.startswith("ExecStart="))
    assert command.endswith(f"tenantry -C {tenantry.root} --state-dir {tenantry.state_directory} sweep")
    assert {"KillMode=process", "TimeoutStopSec=150s", "Restart=always"} <= set(lines)
    assert not (tenantry.state_directory / HostingSettings.journal).exists()


@contextmanager
def service(root: Path) -> Iterator[subprocess.Popen[str]]:
    command = Path(sysconfig.get_path("scripts")) / "tenantry"
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([command, "-C", root, "sweep"], **output) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], *words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if all(word in line for word in words):
            return
    raise AssertionError(f"the service ended without a line of {words}")


def test_the_service_outlives_what_fails_and_ends_when_it_is_told(tenantry: Tenantry, journal: Journal) -> None:
    retire(journal)
    settings = tenantry.root / "inventory/fleet.yaml"
    text = settings.read_text()
    with service(tenantry.root) as process:
        until(process, f"tier/{TIER} retire: exit code")
        replace_file(settings, f"{text}nonsense: 1\n".encode(), mode=0o644)
        until(process, "fleet: ", "nonsense")
        replace_file(settings, text.encode(), mode=0o644)
        until(process, f"tier/{TIER} retire: exit code")
        ended(process, signal.SIGTERM)
    assert {item.result for item in journal.receipts(None)} == {"failed"}
    assert journal.required(TIER).state is State.RETIRING


def test_a_person_ends_it(tenantry: Tenantry, journal: Journal) -> None:
    retire(journal)
    with service(tenantry.root) as process:
        until(process, f"tier/{TIER} retire: exit code")
        ended(process, signal.SIGINT)


def ended(process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)
    assert process.stdout is not None
    assert "Traceback" not in process.stdout.read()
    assert process.wait() == 0
