"""``tenantry env``: what the inventory wants and the journal knows, without a provider."""

from __future__ import annotations

import datetime

from engine.clock import SystemClock
from engine.environments.drivers.base import Kind
from engine.environments.journal import Action, Database, Intent, Journal, NewSubject, Outcome
from engine.environments.words import Attention
from engine.registry.settings import HostingSettings
from tests.cli.conftest import Tenantry
from tests.unit.hosted import ENVIRONMENTS, MEMBER, OWN, TIER, write_environments

GONE = "5f0c9d6e-2a43-4f0e-9a53-0a9c8f6f7d11"


def journal(tenantry: Tenantry) -> Journal:
    return Journal(Database(tenantry.state_directory / HostingSettings.journal), SystemClock())


def test_a_fleet_without_environments(tenantry: Tenantry) -> None:
    assert tenantry.document("env-list", "env", "list") == {"subjects": []}
    assert tenantry("env", "list").out.startswith("no environment")


def test_what_is_only_planned_makes_no_file(tenantry: Tenantry) -> None:
    write_environments(tenantry.root)
    listed = tenantry.document("env-list", "env", "list")["subjects"]
    assert [(entry["uuid"], entry["kind"], entry["state"]) for entry in listed] == [
        (OWN, "env", "planned"),
        (MEMBER, "env", "planned"),
        (TIER, "tier", "planned"),
    ]
    assert tenantry.document("env-show", "env", "show", OWN)["effects"] == []
    assert not (tenantry.state_directory / HostingSettings.journal).exists()


def test_what_the_journal_knows(tenantry: Tenantry) -> None:
    write_environments(tenantry.root)
    digest = "sha256:" + "1" * 64
    for uuid in (OWN, GONE):
        journal(tenantry).begin(NewSubject(uuid, "env", "{}", digest, durable=True))
    writer = journal(tenantry).writer(OWN)
    writer.conclude(writer.intend(Intent(Action.CREATE, Kind.ROLE, "ns_x_ro", digest, "lease-1")), Outcome.LOST)
    writer = writer.retire(datetime.timedelta(hours=168))
    writer.need_attention(Attention.CREATE_OUTCOME_UNKNOWN, Kind.ROLE)
    writer.receipt("retire", "failed", "createOutcomeUnknown")
    listed = {entry["uuid"]: entry for entry in tenantry.document("env-list", "env", "list")["subjects"]}
    assert (listed[OWN]["attention"], listed[OWN]["attention_kind"]) == ("createOutcomeUnknown", "role")
    assert (listed[GONE]["project"], listed[GONE]["state"]) == (None, "creating")
    shown = tenantry.document("env-show", "env", "show", OWN)
    assert (shown["epoch"], shown["state"], shown["effects"][0]["outcome"]) == (2, "retiring", "lost")
    assert shown["receipts"][0]["job"] == "retire"
    for words in ("createOutcomeUnknown", "reclaim-unjournalled-create", "ns_x_ro", "lost", digest):
        assert words in tenantry("env", "show", OWN).out


def test_what_nobody_knows_and_what_is_wrong(tenantry: Tenantry) -> None:
    write_environments(tenantry.root)
    for uuid in (GONE, "../../etc/passwd"):
        assert tenantry("env", "show", uuid).code == 2
    write_environments(tenantry.root, ENVIRONMENTS.replace("tier: common", "tier: other"))
    result = tenantry("env", "list")
    assert result.code == 2 and "inventory/environments.yaml:" in result.err
