"""The reference fleet on real hosts: provisioned with an early manifest, spoken with, taken to the head."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from engine.backups.reading import open_archive
from engine.backups.run import BackupOutcome, backup_many
from engine.errors import ExitCode
from engine.provision.installer import provision_many
from engine.records import RunResult
from engine.updater.fleet import ask_many
from engine.updater.outcome import Outcome
from engine.updater.verify import Verification, verify
from tests.lab.reference_fleet import ReferenceFleet, change_yaml

BEFORE_PLAIN_LANGUAGE = 3
BEFORE_THE_SESSION_RESET = 18
UNIT = "tenant-gateway.service"
LOOK = """
find /etc/tenant /etc/caddy /etc/systemd/system /opt/tenant-* /usr/local/bin /srv/tenant/guides /srv/tenant/skills \\
    -printf '%p %y %m %u:%g %l\\n' | sort
find /etc/tenant /etc/caddy /etc/systemd/system /opt/tenant-* -type f -exec sha256sum {} + | sort
cat /var/lib/tenantry/version /var/lib/tenantry/applied.json
"""
SKILL = "/srv/tenant/skills/real-estate/listing-text/SKILL.md"


@dataclass
class SpokenWith(ReferenceFleet):
    """The fleet, with what its tenants answered and how its runs ended."""

    answers: dict[tuple[str, str], str] = field(default_factory=dict)
    outcomes: dict[str, tuple[Outcome, ...]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpokenWith]:
    """Both tenants at the head; what they answered on the way is in `answers`."""
    fleet = SpokenWith.create(tmp_path_factory.mktemp("reference") / "fleet")
    try:
        fleet.release(BEFORE_PLAIN_LANGUAGE)
        workspace = fleet.workspace
        tenants = list(workspace.fleet.tenants.values())
        fleet.outcomes["provision"] = provision_many(workspace, tenants)
        assert [outcome.error for outcome in fleet.outcomes["provision"]] == [None, None]
        for tenant in tenants:
            fleet.answers[tenant.slug, "before"] = fleet.ask(tenant.slug, "open", "Hello")
        fleet.release(BEFORE_THE_SESSION_RESET)
        fleet.outcomes["converge"] = fleet.converge()
        assert [outcome.error for outcome in fleet.outcomes["converge"]] == [None, None]
        for tenant in tenants:
            fleet.answers[tenant.slug, "open"] = fleet.ask(tenant.slug, "open", "And now?")
            fleet.answers[tenant.slug, "after"] = fleet.ask(tenant.slug, "new", "Good morning")
        fleet.release()
        assert [outcome.error for outcome in fleet.converge()] == [None, None]
        for tenant in tenants:
            fleet.answers[tenant.slug, "reset"] = fleet.ask(tenant.slug, "open", "Still there?")
        yield fleet
    finally:
        fleet.lab.destroy()


@pytest.fixture(params=["maple", "harbor"])
def slug(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_provisioning_and_converging_succeed_for_both(fleet: SpokenWith) -> None:
    assert [(o.slug, o.result, o.error) for o in fleet.outcomes["provision"]] == [
        ("maple", RunResult.UPDATED, None),
        ("harbor", RunResult.UPDATED, None),
    ]
    maple, harbor = fleet.outcomes["converge"]
    assert (maple.error, maple.to_version, maple.restarted) == (None, "2026.10.22.18", True)
    assert (harbor.error, harbor.to_version, harbor.restarted) == (None, "2026.10.22.18", True)
    assert len(maple.steps) == 17
    assert set(maple.steps) - set(harbor.steps) == {"real_estate_skills"}


def test_a_conversation_is_answered_before_and_after_the_personality_changed(fleet: SpokenWith, slug: str) -> None:
    business = fleet.workspace.fleet.tenants[slug].business
    assert f"«You are the professional assistant of {business}.» turns: 1" in fleet.answers[slug, "before"]
    assert f"«You are the plain-spoken assistant of {business}.» turns: 1" in fleet.answers[slug, "after"]
    assert "turns: 2 first: «Hello» last: «And now?»" in fleet.answers[slug, "open"]


def test_a_session_reset_ends_the_open_conversation_and_keeps_a_copy(fleet: SpokenWith, slug: str) -> None:
    business = fleet.workspace.fleet.tenants[slug].business
    begun_anew = f"«You are the plain-spoken assistant of {business}.» turns: 1 first: «Still there?»"
    assert begun_anew in fleet.answers[slug, "reset"]
    kept = fleet.run(slug, "cat /srv/tenant/home/ended-sessions/*.json")
    assert all(words in kept for words in ("Hello", "And now?", "Good morning"))
    fleet.run(slug, f"systemctl restart {UNIT}")
    fleet.run(slug, "curl --silent --fail --retry 30 --retry-delay 1 --retry-all-errors http://127.0.0.1:8642/health")
    assert "turns: 2" in fleet.ask(slug, "open", "And after a restart?")


def test_the_acceptance_check_passes(fleet: SpokenWith) -> None:
    workspace = fleet.workspace
    tenants = list(workspace.fleet.tenants.values())
    found = ask_many(workspace, tenants, lambda tenant, session: verify(workspace, tenant, session.probe()))
    assert all(isinstance(item, Verification) and item.is_good for item in found), found


def test_a_second_converge_changes_nothing(fleet: SpokenWith) -> None:
    for outcome in fleet.converge():
        assert (outcome.result, outcome.steps, outcome.files, outcome.restarted) == (RunResult.UNCHANGED, (), (), False)


def test_the_gateway_runs_unprivileged_from_the_upgraded_runtime(fleet: SpokenWith, slug: str) -> None:
    host = fleet.host(slug)
    process = host.process.get(user="hermes", comm="hermes")
    assert process.ppid == 1
    assert host.user("hermes").shell == "/usr/sbin/nologin"
    assert host.file("/opt/runtime/current").linked_to == "/opt/runtime/0.19.0"
    for version in ("0.18.1", "0.18.2", "0.19.0"):
        assert host.file(f"/opt/runtime/{version}/.tenantry-complete").content_string == f"{version}\n"
    assert host.check_output("find /opt/runtime ! -user root") == ""
    assert host.check_output("find /opt/runtime -name '*.pyc'") == ""
    assert host.service(UNIT).is_enabled
    assert host.check_output("systemctl --failed --plain --no-legend") == ""


def test_secrets_are_in_a_root_only_file_and_in_no_other(fleet: SpokenWith, slug: str) -> None:
    host = fleet.host(slug)
    secrets = host.file("/etc/tenant/gateway.env")
    assert (secrets.user, secrets.group, secrets.mode) == ("root", "root", 0o600)
    values = [path.read_text() for path in (fleet.root / "var/secrets" / slug).iterdir()]
    assert len(values) == 2
    for value in values:
        # Over standard input: sudo would write a command with the value in it into the host's journal.
        found = fleet.run(slug, "grep -rlF -f - /etc /srv /var /opt/tenant-forms", stdin=value).split()
        assert found == ["/etc/tenant/gateway.env"]
        environment = f"/proc/$(systemctl show --value -p MainPID {UNIT})/environ"
        assert fleet.run(slug, f"tr '\\0' '\\n' < {environment}").count(f"={value}\n") == 1


def test_memory_is_seeded_from_the_record_and_left_to_the_runtime(fleet: SpokenWith, slug: str) -> None:
    host, tenant = fleet.host(slug), fleet.workspace.fleet.tenants[slug]
    memory = host.file("/srv/tenant/home/memories/USER.md")
    assert (memory.user, memory.mode) == ("hermes", 0o600)
    assert f"The owner is {tenant.owner_name} of {tenant.business} (trade: {tenant.trade})." in memory.content_string


def test_skills_follow_the_trade(fleet: SpokenWith) -> None:
    assert fleet.host("maple").file(SKILL).exists
    assert not fleet.host("harbor").file(SKILL).exists
    assert fleet.host("harbor").file("/srv/tenant/guides/forms.md").exists


def test_pages_are_served_at_the_page_host_alone(fleet: SpokenWith) -> None:
    page = fleet.run("maple", "curl --silent --fail --header 'Host: maple.example' http://127.0.0.1/")
    assert "<h1>Maple &amp; Daughters Homes</h1>" in page
    status = "curl --silent --output /dev/null --write-out '%{http_code}'"
    assert fleet.run("maple", f"{status} --header 'Host: other.example' http://127.0.0.1/") == "404"
    assert fleet.run("maple", f"{status} --header 'Host: maple.example' http://127.0.0.1/look/page.css") == "200"


def test_a_submission_survives_a_restart_of_the_forms_store(fleet: SpokenWith) -> None:
    send = "curl --silent --fail --header 'Host: harbor.example' http://127.0.0.1/forms"
    assert "kept" in fleet.run("harbor", f"{send}/contact --data-urlencode 'message=two \"rolls\" & é'")
    fleet.run("harbor", "systemctl kill --signal=KILL tenant-forms && systemctl restart tenant-forms")
    fleet.run("harbor", f"{send}/health --retry 20 --retry-delay 1 --retry-all-errors")
    kept = fleet.run("harbor", "sqlite3 /var/lib/tenant-forms/forms.db 'SELECT form, fields FROM submissions'")
    form, fields = kept.strip().split("|", 1)
    assert (form, json.loads(fields)) == ("contact", {"message": ['two "rolls" & é']})
    assert fleet.host("harbor").file("/var/lib/tenant-forms/forms.db").mode == 0o600


def test_logs_rotate(fleet: SpokenWith) -> None:
    fleet.run("maple", "logrotate --force /etc/logrotate.d/tenant")
    assert fleet.host("maple").file("/var/log/caddy/pages.log.1.gz").exists


def test_an_edited_guide_is_put_back_by_running_its_step_again(fleet: SpokenWith) -> None:
    _forget_releases_from(fleet, "harbor", "2026.10.23.1")
    fleet.run("harbor", "echo scribble >> /srv/tenant/guides/pages.md")
    outcome = next(outcome for outcome in fleet.converge() if outcome.slug == "harbor")
    assert (outcome.error, outcome.steps[0], outcome.restarted) == (None, "guides", False)
    assert (outcome.from_version, outcome.to_version) == ("2026.10.23", "2026.10.23.2")
    assert "scribble" not in fleet.run("harbor", "cat /srv/tenant/guides/pages.md")


def test_both_tenants_run_the_same_installed_bytes(fleet: SpokenWith) -> None:
    tree = "find /opt/runtime -type f -print0 | sort -z | xargs -0 sha256sum"
    maple, harbor = (fleet.run(slug, tree).splitlines() for slug in ("maple", "harbor"))
    assert len(maple) > 1000
    assert set(maple) ^ set(harbor) == set()


# What is below a tenant's directories and in no archive: made again, of one process, or a secret that has a reference.
LEFT_OUT = re.compile(
    r"/srv/tenant/home/(logs/.*|cron/ticker_.*|gateway\.(pid|lock)|gateway_state\.json|gateway-starts\.log.*"
    r"|[a-z]+_cache/.*|state/gateway\.heartbeat)|.*\.db-(wal|shm)|/etc/tenant/gateway\.env"
)


def test_an_archive_holds_what_a_tenant_is_and_nothing_else(fleet: SpokenWith, slug: str) -> None:
    workspace = fleet.workspace
    (outcome,) = backup_many(workspace, [workspace.fleet.tenants[slug]])
    assert isinstance(outcome, BackupOutcome) and outcome.stored and outcome.stored.manifest, outcome.error
    with open_archive(outcome.stored.path) as reader:
        members = {entry.member.path: entry.member for entry in reader}
    places = "/srv/tenant /var/lib/tenant-* /etc/tenant /etc/caddy /opt/tenant-* /usr/local/bin/tenant-*"
    there = set(fleet.run(slug, f"find {places} /etc/systemd/system/tenant-* -type f").splitlines())
    forgotten = {path for path in there - set(members) if not LEFT_OUT.fullmatch(path)}
    assert forgotten == set()
    assert not [path for path in members if LEFT_OUT.fullmatch(path)]
    assert [path for path in members if path.startswith("/opt/runtime")] == ["/opt/runtime/current"]
    assert members["/srv/tenant/home/state.db"].owner == "hermes"
    databases = outcome.stored.manifest.databases
    assert databases["/srv/tenant/home/state.db"].tables["messages"] > 0
    assert outcome.stored.manifest.version == str(workspace.manifest.head)
    assert outcome.stored.manifest.uncompressed_bytes < 20_000_000


def _forget_releases_from(fleet: SpokenWith, slug: str, version: str) -> None:
    """Put the marker back to before a release, as on a tenant that has not had it yet."""
    versions = [str(release.version) for release in fleet.workspace.manifest]
    before, forgotten = versions[versions.index(version) - 1], versions[versions.index(version) :]
    fleet.run(
        slug,
        f"cd /var/lib/tenantry && echo {before} > version && python3 -c '"
        'import json; applied = json.load(open("applied.json")); '
        f"[applied.pop(version) for version in {json.dumps(forgotten)}]; "
        'json.dump(applied, open("applied.json", "w"))\'',
    )


def test_a_broken_release_is_rolled_back_and_the_tenant_converses_again(fleet: SpokenWith) -> None:
    unit = fleet.root / "templates/tenant-gateway.service.j2"
    good = unit.read_text()
    before = fleet.run("maple", LOOK)
    fleet.ask("maple", "rolled-back", "Before")
    change_yaml(
        fleet.root / "inventory/fleet.yaml",
        lambda found: {**found, "liveness": {"port_seconds": 20, "channel_seconds": 5}},
    )
    unit.write_text(good.replace("ExecStart=", "ExecStart=/bin/false "))
    try:
        (outcome,) = fleet.converge("maple")
        assert (outcome.result, outcome.exit_code) == (RunResult.ROLLED_BACK, ExitCode.FAILED), outcome
        (again,) = fleet.converge("maple")
        assert again.result is RunResult.FAILED and "held back" in str(again.error)
    finally:
        unit.write_text(good)
    assert fleet.run("maple", LOOK) == before
    assert "turns: 2 first: «Before» last: «And after?»" in fleet.ask("maple", "rolled-back", "And after?")
    assert fleet.host("maple").check_output("systemctl --failed --plain --no-legend") == ""
    assert fleet.run("maple", "ls /etc/systemd/system/tenantry-* 2>/dev/null || true") == ""
    (unchanged,) = fleet.converge("maple")
    assert (unchanged.result, unchanged.error) == (RunResult.UNCHANGED, None)
