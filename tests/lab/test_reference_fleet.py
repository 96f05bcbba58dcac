"""The reference fleet on real hosts: provisioned with an early manifest, spoken with, taken to the head."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import testinfra
import yaml

from engine.provision.installer import provision_many
from engine.provision.providers.lab import Lab, ensure_identity
from engine.provision.servers import lab_of
from engine.records import RunResult
from engine.updater.fleet import ask_many, converge_many
from engine.updater.outcome import Options, Outcome
from engine.updater.verify import Verification, verify
from engine.updater.workspace import Workspace, open_workspace

REPOSITORY = Path(__file__).parents[2]
BEFORE_PLAIN_LANGUAGE = 3
UNIT = "tenant-gateway.service"
SKILL = "/srv/tenant/skills/real-estate/listing-text/SKILL.md"

ASK = """
set -eu
key=$(sed -n 's/^API_SERVER_KEY="\\(.*\\)"$/\\1/p' /etc/tenant/gateway.env)
curl --silent --fail --show-error --max-time 60 http://127.0.0.1:8642/v1/chat/completions \\
    --header @- --header 'Content-Type: application/json' --header X-Hermes-Session-Id:{session} --data {body} <<END
Authorization: Bearer $key
END
"""


@dataclass
class ReferenceFleet:
    """A copy of this repository's fleet with its own lab, and what was said to its tenants."""

    root: Path
    answers: dict[tuple[str, str], str]
    outcomes: dict[str, tuple[Outcome, ...]]

    @property
    def workspace(self) -> Workspace:
        return open_workspace(self.root)

    @property
    def lab(self) -> Lab:
        return lab_of(self.workspace, print)

    def run(self, slug: str, command: str, stdin: str = "") -> str:
        """Run a root shell command inside the host."""
        argv = self.lab.shell(slug, ("/bin/sh", "-c", command))
        done = subprocess.run(argv, input=stdin.encode(), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode()

    def ask(self, slug: str, session: str, text: str) -> str:
        """Say something to the tenant's assistant and return its answer."""
        body = json.dumps({"model": "any", "messages": [{"role": "user", "content": text}]})
        answer = json.loads(self.run(slug, ASK.format(session=session, body=shlex.quote(body))))
        content: str = answer["choices"][0]["message"]["content"]
        return content

    def host(self, slug: str) -> Any:
        """The host as testinfra sees it, over SSH as the operations account."""
        host = self.lab.find_required(slug)
        known_hosts = self.root / f"known_hosts.{slug}"
        known_hosts.write_text(f"{host.address} {host.host_key}\n")
        return testinfra.get_host(
            f"ssh://{host.ssh_user}@{host.address}",
            sudo=True,
            ssh_identity_file=str(self.root / "var/ssh/id_ed25519"),
            ssh_extra_args=f"-F none -o IdentitiesOnly=yes -o UserKnownHostsFile={known_hosts}",
        )

    def converge(self) -> tuple[Outcome, ...]:
        workspace = self.workspace
        return converge_many(workspace, list(workspace.fleet.tenants.values()), Options())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceFleet]:
    """Both tenants at the head; what they answered on the way is in `answers`."""
    root = tmp_path_factory.mktemp("reference") / "fleet"
    _copy_fleet(root)
    fleet = ReferenceFleet(root, {}, {})
    try:
        _change(root / "releases.yaml", lambda document: {"releases": document["releases"][:BEFORE_PLAIN_LANGUAGE]})
        workspace = fleet.workspace
        tenants = list(workspace.fleet.tenants.values())
        fleet.outcomes["provision"] = provision_many(workspace, tenants)
        assert [outcome.error for outcome in fleet.outcomes["provision"]] == [None, None]
        for tenant in tenants:
            fleet.answers[tenant.slug, "before"] = fleet.ask(tenant.slug, "open", "Hello")
        shutil.copy(REPOSITORY / "releases.yaml", root)
        fleet.outcomes["converge"] = fleet.converge()
        assert [outcome.error for outcome in fleet.outcomes["converge"]] == [None, None]
        for tenant in tenants:
            fleet.answers[tenant.slug, "open"] = fleet.ask(tenant.slug, "open", "And now?")
            fleet.answers[tenant.slug, "after"] = fleet.ask(tenant.slug, "new", "Good morning")
        yield fleet
    finally:
        fleet.lab.destroy()


@pytest.fixture(params=["maple", "harbor"])
def slug(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_provisioning_and_converging_succeed_for_both(fleet: ReferenceFleet) -> None:
    assert [(o.slug, o.result, o.error) for o in fleet.outcomes["provision"]] == [
        ("maple", RunResult.UPDATED, None),
        ("harbor", RunResult.UPDATED, None),
    ]
    maple, harbor = fleet.outcomes["converge"]
    assert (maple.error, maple.to_version, maple.restarted) == (None, "2026.10.23", True)
    assert (harbor.error, harbor.to_version, harbor.restarted) == (None, "2026.10.23", True)
    assert maple.steps == ("plain_language", "real_estate_skills", "guides", "runtime(version=0.19.0)")
    assert harbor.steps == ("plain_language", "guides", "runtime(version=0.19.0)")


def test_a_conversation_is_answered_before_and_after_the_personality_changed(fleet: ReferenceFleet, slug: str) -> None:
    business = fleet.workspace.fleet.tenants[slug].business
    assert f"«You are the professional assistant of {business}.» turns: 1" in fleet.answers[slug, "before"]
    assert f"«You are the plain-spoken assistant of {business}.» turns: 1" in fleet.answers[slug, "after"]
    assert "turns: 2 first: «Hello» last: «And now?»" in fleet.answers[slug, "open"]


def test_the_acceptance_check_passes(fleet: ReferenceFleet) -> None:
    workspace = fleet.workspace
    tenants = list(workspace.fleet.tenants.values())
    found = ask_many(workspace, tenants, lambda tenant, session: verify(workspace, tenant, session.probe()))
    assert all(isinstance(item, Verification) and item.is_good for item in found), found


def test_a_second_converge_changes_nothing(fleet: ReferenceFleet) -> None:
    for outcome in fleet.converge():
        assert (outcome.result, outcome.steps, outcome.files, outcome.restarted) == (RunResult.UNCHANGED, (), (), False)


def test_the_gateway_runs_unprivileged_from_the_upgraded_runtime(fleet: ReferenceFleet, slug: str) -> None:
    host = fleet.host(slug)
    process = host.process.get(user="hermes", comm="hermes")
    assert process.ppid == 1
    assert host.user("hermes").shell == "/usr/sbin/nologin"
    assert host.file("/opt/runtime/current").linked_to == "/opt/runtime/0.19.0"
    for version in ("0.18.2", "0.19.0"):
        assert host.file(f"/opt/runtime/{version}/.tenantry-complete").content_string == f"{version}\n"
    assert host.check_output("find /opt/runtime ! -user root") == ""
    assert host.check_output("find /opt/runtime -name '*.pyc'") == ""
    assert host.service(UNIT).is_enabled
    assert host.check_output("systemctl --failed --plain --no-legend") == ""


def test_secrets_are_in_a_root_only_file_and_in_no_other(fleet: ReferenceFleet, slug: str) -> None:
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


def test_memory_is_seeded_from_the_record_and_left_to_the_runtime(fleet: ReferenceFleet, slug: str) -> None:
    host, tenant = fleet.host(slug), fleet.workspace.fleet.tenants[slug]
    memory = host.file("/srv/tenant/home/memories/USER.md")
    assert (memory.user, memory.mode) == ("hermes", 0o600)
    assert f"The owner is {tenant.owner_name} of {tenant.business} (trade: {tenant.trade})." in memory.content_string


def test_skills_follow_the_trade(fleet: ReferenceFleet) -> None:
    assert fleet.host("maple").file(SKILL).exists
    assert not fleet.host("harbor").file(SKILL).exists
    assert fleet.host("harbor").file("/srv/tenant/guides/forms.md").exists


def test_pages_are_served_at_the_page_host_alone(fleet: ReferenceFleet) -> None:
    page = fleet.run("maple", "curl --silent --fail --header 'Host: maple.example' http://127.0.0.1/")
    assert "<h1>Maple &amp; Daughters Homes</h1>" in page
    status = "curl --silent --output /dev/null --write-out '%{http_code}'"
    assert fleet.run("maple", f"{status} --header 'Host: other.example' http://127.0.0.1/") == "404"
    assert fleet.run("maple", f"{status} --header 'Host: maple.example' http://127.0.0.1/look/page.css") == "200"


def test_a_submission_survives_a_restart_of_the_forms_store(fleet: ReferenceFleet) -> None:
    send = "curl --silent --fail --header 'Host: harbor.example' http://127.0.0.1/forms"
    assert "kept" in fleet.run("harbor", f"{send}/contact --data-urlencode 'message=two \"rolls\" & é'")
    fleet.run("harbor", "systemctl kill --signal=KILL tenant-forms && systemctl restart tenant-forms")
    fleet.run("harbor", f"{send}/health --retry 20 --retry-delay 1 --retry-all-errors")
    kept = fleet.run("harbor", "sqlite3 /var/lib/tenant-forms/forms.db 'SELECT form, fields FROM submissions'")
    form, fields = kept.strip().split("|", 1)
    assert (form, json.loads(fields)) == ("contact", {"message": ['two "rolls" & é']})
    assert fleet.host("harbor").file("/var/lib/tenant-forms/forms.db").mode == 0o600


def test_logs_rotate(fleet: ReferenceFleet) -> None:
    fleet.run("maple", "logrotate --force /etc/logrotate.d/tenant")
    assert fleet.host("maple").file("/var/log/caddy/pages.log.1.gz").exists


def test_an_edited_guide_is_put_back_by_running_its_step_again(fleet: ReferenceFleet) -> None:
    _forget_last_release(fleet, "harbor")
    fleet.run("harbor", "echo scribble >> /srv/tenant/guides/pages.md")
    outcome = next(outcome for outcome in fleet.converge() if outcome.slug == "harbor")
    assert (outcome.error, outcome.steps, outcome.restarted) == (None, ("guides",), False)
    assert "scribble" not in fleet.run("harbor", "cat /srv/tenant/guides/pages.md")


def test_both_tenants_run_the_same_installed_bytes(fleet: ReferenceFleet) -> None:
    tree = "find /opt/runtime -type f -print0 | sort -z | xargs -0 sha256sum"
    maple, harbor = (fleet.run(slug, tree).splitlines() for slug in ("maple", "harbor"))
    assert len(maple) > 1000
    assert set(maple) ^ set(harbor) == set()


def _copy_fleet(root: Path) -> None:
    """Copy the fleet; the operator's downloads are shared, and nobody waits for 90 s of silence."""
    root.mkdir()
    for name in ("deploys", "inventory", "templates"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "releases.yaml", root)
    quiesce = {"silence_seconds": 1, "poll_seconds": 0.2, "polls": 100}
    _change(root / "inventory/fleet.yaml", lambda document: {**document, "quiesce": quiesce})
    downloads = REPOSITORY / "var/wheelhouse"
    downloads.mkdir(mode=0o700, parents=True, exist_ok=True)
    (root / "var").mkdir(mode=0o700)
    os.symlink(downloads, root / "var/wheelhouse")
    ensure_identity(root / "var")


def _change(path: Path, change: Any) -> None:
    document: Mapping[str, Any] = change(yaml.safe_load(path.read_text()))
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def _forget_last_release(fleet: ReferenceFleet, slug: str) -> None:
    """Put the marker back by one release, as on a tenant that has not had it yet."""
    *_, before, last = (str(release.version) for release in fleet.workspace.manifest)
    fleet.run(
        slug,
        f"cd /var/lib/tenantry && echo {before} > version && python3 -c '"
        'import json; applied = json.load(open("applied.json")); '
        f'del applied["{last}"]; json.dump(applied, open("applied.json", "w"))\'',
    )
