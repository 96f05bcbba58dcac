"""What the releases install works on a real tenant at the head, seen over SSH and by its neighbours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.registry.load import load_fleet
from engine.updater.fleet import ask_many
from tests.lab.manifest.walk import SLUG, TENANT, Walk
from tests.lab.reference_fleet import REPOSITORY, ReferenceFleet
from tests.lab.waiting import until

SETTINGS = load_fleet(REPOSITORY).settings
PROXY = f"curl --silent --show-error --header 'Host: {TENANT.page_host}' http://127.0.0.1"
STATUS = "--output /dev/null --write-out '%{http_code}'"
PASSWORD = "/etc/tenant/private-pages.password"


@pytest.fixture(scope="module")
def tenant(walk: Walk) -> ReferenceFleet:
    """The fleet whose tenant took all releases one by one; the fresh one stays as it is, to compare with."""
    return walk.walked


@pytest.fixture(scope="module")
def host(tenant: ReferenceFleet) -> Any:
    """That tenant, over SSH."""
    return tenant.host(SLUG)


@pytest.fixture
def inbox(tenant: ReferenceFleet) -> ReferenceFleet:
    """The tenant with nothing waiting in the inbox."""
    tenant.run(SLUG, "find /srv/tenant/inbox -name '*.json' -delete")
    return tenant


def waiting(fleet: ReferenceFleet) -> list[dict[str, str]]:
    """The items in the inbox as the assistant's own account reads them."""
    names = fleet.run(SLUG, "runuser -u hermes -- tenant-inbox list | cut -d ' ' -f 1").split()
    return [json.loads(fleet.run(SLUG, f"runuser -u hermes -- tenant-inbox show {name}")) for name in names]


@pytest.mark.parametrize("unit", [service.unit for service in SETTINGS.services])
def test_each_service_is_enabled_runs_and_has_an_account_without_rights(host: Any, unit: str) -> None:
    service = host.service(unit)
    assert service.is_enabled and service.is_running
    pid = int(host.check_output(f"systemctl show --value --property MainPID {unit}"))
    assert host.process.get(pid=pid).user != "root"
    assert host.check_output(f"systemctl show --value --property NRestarts {unit}") == "0"


def test_only_proxy_mail_and_ssh_listen_to_the_world(host: Any) -> None:
    listening = host.socket.get_listening_sockets()
    outside = {
        place for place in listening if place.startswith("tcp") and "127.0.0.1" not in place and "::1" not in place
    }
    assert {int(place.rsplit(":", 1)[1]) for place in outside} == {22, 25, 80}
    assert {f"tcp://127.0.0.1:{port}" for port in (8642, 8700, 8710, 8720)} <= set(listening)


def test_private_pages_open_with_the_password_alone(tenant: ReferenceFleet, host: Any) -> None:
    secret = host.file(PASSWORD)
    assert (secret.user, secret.mode) == ("root", 0o600)
    assert (host.file("/etc/caddy/private-owner").group, host.file("/etc/caddy/private-owner").mode) == ("caddy", 0o640)
    for path in ("/private/", "/private/index.html", "/private/settings/", "//private/", "/PRIVATE/"):
        assert tenant.run(SLUG, f"{PROXY}{path} {STATUS}") == "401", path
    assert tenant.run(SLUG, f"{PROXY}/private {STATUS}") == "302"
    assert tenant.run(SLUG, f"{PROXY}/private/ --user owner:wrong {STATUS}") == "401"
    known = f"printf 'user = owner:%s' $(cat {PASSWORD}) | {PROXY}/private/ --config -"
    assert "<h1>Private pages</h1>" in tenant.run(SLUG, known)
    assert tenant.run(SLUG, "runuser -u hermes -- sh -c 'cat /srv/tenant/private/index.html'")


def test_settings_are_checked_kept_and_shown_behind_the_password(tenant: ReferenceFleet) -> None:
    tenant.run(SLUG, "tenant-settings signature 'Rosa & \"é\"'")
    tenant.run(SLUG, "systemctl kill --signal=KILL tenant-settings")
    until(lambda: "Rosa" in tenant.run(SLUG, "tenant-settings || true"), "the settings are back")
    known = f"printf 'user = owner:%s' $(cat {PASSWORD}) | {PROXY}/private/settings/ --config -"
    assert json.loads(tenant.run(SLUG, known)) == {"signature": 'Rosa & "é"'}
    refused = tenant.run(SLUG, "tenant-settings daily_brief_at 25:00; tenant-settings colour red; true")
    assert "wanted:" in refused and "no such setting" in refused
    tenant.run(SLUG, "tenant-settings signature && systemctl reset-failed")
    assert json.loads(tenant.run(SLUG, "tenant-settings")) == {}


def test_a_form_reaches_the_owner_also_if_the_hooks_were_down(inbox: ReferenceFleet) -> None:
    inbox.run(SLUG, "systemctl stop tenant-form-hooks")
    inbox.run(SLUG, f"{PROXY}/forms/contact --fail --data-urlencode 'message=two \"rolls\" & é'")
    assert waiting(inbox) == []
    inbox.run(SLUG, "systemctl start tenant-form-hooks")
    until(lambda: len(waiting(inbox)) == 1, "the submission is in the inbox")
    (item,) = waiting(inbox)
    assert (item["kind"], item["subject"], item["text"]) == ("form", "Form contact", 'message: two "rolls" & é')


def test_a_failing_hook_loses_no_submission(inbox: ReferenceFleet) -> None:
    hook = "/etc/tenant/form-hooks.d/40-broken"
    inbox.run(SLUG, f"printf '#!/bin/sh\\nexit 1\\n' > {hook} && chmod 0755 {hook}")
    inbox.run(SLUG, f"{PROXY}/forms/offer --fail --data message=hello")
    until(
        lambda: "40-broken" in inbox.run(SLUG, "journalctl --unit tenant-form-hooks --grep 40-broken || true"), "it ran"
    )
    assert waiting(inbox) == []
    inbox.run(SLUG, f"rm {hook} && systemctl restart tenant-form-hooks")
    until(lambda: [item["subject"] for item in waiting(inbox)] == ["Form offer"], "the submission is in the inbox")


MAIL = "curl --silent --show-error smtp://{address} --mail-from eve@far.example --mail-rcpt {recipient} --upload-file -"


def test_mail_for_the_forwarding_address_becomes_an_inbox_item(inbox: ReferenceFleet) -> None:
    address = inbox.lab.find_required(SLUG).address
    letter = (
        "From: Eve <eve@far.example>\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\nMIME-Version: 1.0\n"
        "Content-Type: text/plain; charset=utf-8\n\nIs the house on the river still free?\n"
    )
    inbox.run(SLUG, MAIL.format(address=address, recipient=TENANT.forwarding_address.upper()), stdin=letter)
    (item,) = waiting(inbox)
    assert (item["kind"], item["subject"]) == ("mail", "Grüße")
    assert "From: Eve <eve@far.example>" in item["text"] and "still free?" in item["text"]
    raw = item["text"].split("File: ")[1].split()[0]
    assert "=?utf-8?q?" in inbox.run(SLUG, f"runuser -u hermes -- cat {raw}")


@pytest.mark.parametrize("recipient", ["eve@far.example", "nobody@maple.example", "rosa@maple.example@far.example"])
def test_mail_for_anybody_else_is_refused(inbox: ReferenceFleet, recipient: str) -> None:
    send = MAIL.format(address="127.0.0.1", recipient=recipient)
    answer = inbox.run(SLUG, f"{send} --verbose 2>&1 || true", stdin="Subject: x\n\nHello\n")
    assert "< 55" in answer
    assert waiting(inbox) == []


def test_mail_that_cannot_be_kept_is_sent_again_by_its_sender(inbox: ReferenceFleet) -> None:
    inbox.run(SLUG, "mv /usr/local/bin/tenant-inbox /usr/local/bin/tenant-inbox.away")
    try:
        send = MAIL.format(address="127.0.0.1", recipient=TENANT.forwarding_address)
        assert "< 451" in inbox.run(SLUG, f"{send} --verbose 2>&1 || true", stdin="Subject: x\n\nHello 451\n")
        assert inbox.run(SLUG, "grep --recursive --files-with-matches 'Hello 451' /var/lib/tenant-mail || true") == ""
    finally:
        inbox.run(SLUG, "mv /usr/local/bin/tenant-inbox.away /usr/local/bin/tenant-inbox")


def test_an_item_that_is_done_leaves_the_list(inbox: ReferenceFleet) -> None:
    name = inbox.run(SLUG, "runuser -u hermes -- tenant-inbox add note 'Call back'", stdin="tomorrow").strip()
    assert inbox.run(SLUG, "tenant-inbox list") == f"{name} note Call back\n"
    inbox.run(SLUG, f"runuser -u hermes -- tenant-inbox done {name}")
    assert inbox.run(SLUG, "tenant-inbox list") == ""
    assert "no item" in inbox.run(SLUG, "tenant-inbox show ../../etc/passwd 2>&1 || true")


def test_health_names_the_part_that_is_silent(tenant: ReferenceFleet) -> None:
    assert json.loads(tenant.run(SLUG, f"{PROXY}/health"))["status"] == "ok"
    tenant.run(SLUG, "systemctl stop tenant-mail")
    try:
        assert tenant.run(SLUG, f"{PROXY}/health {STATUS}") == "503"
        parts = json.loads(tenant.run(SLUG, f"{PROXY}/health"))["parts"]
        assert {name for name, state in parts.items() if state != "ok"} == {"mail"}
    finally:
        tenant.run(SLUG, "systemctl start tenant-mail")
    until(lambda: tenant.run(SLUG, f"{PROXY}/health {STATUS}") == "200", "all parts answer again")


def test_the_overview_shows_every_service(host: Any) -> None:
    overview = host.check_output("tenant-overview")
    for service in SETTINGS.services:
        assert f"{service.unit:<32} active" in overview


def test_the_chat_model_is_chosen_pinned_and_answers(tenant: ReferenceFleet) -> None:
    workspace = tenant.workspace
    (status,) = ask_many(workspace, [workspace.fleet.tenants[SLUG]], lambda _, session: session.probe())
    assert not isinstance(status, Exception), status
    assert (status.models, status.chat_model_pinned) == ({"chat": "tenantry-chat-1"}, True)
    business = TENANT.business
    assert f"«You are the plain-spoken assistant of {business}.» turns: 1" in tenant.ask(SLUG, "services", "Hello")


def test_security_updates_come_by_themselves_and_spare_the_gateway(host: Any) -> None:
    for timer in ("apt-daily.timer", "apt-daily-upgrade.timer"):
        assert host.service(timer).is_enabled and host.service(timer).is_running
    origins = host.check_output("unattended-upgrade --dry-run --verbose 2>&1 | grep 'Allowed origins'")
    assert origins.endswith("origin=Debian,codename=bookworm-security,label=Debian-Security")
    script = (
        'our %nrconf; eval do { local (@ARGV, $/) = "/etc/needrestart/needrestart.conf"; <> }; die $@ if $@;'
        "for my $rule (keys %{$nrconf{override_rc}}) {"
        '  print "$nrconf{restart} $nrconf{override_rc}{$rule}" if "tenant-gateway.service" =~ /$rule/ }'
    )
    assert host.check_output("perl -e %s", script) == "a 0"


def test_the_personality_has_every_patch_once(host: Any) -> None:
    text = host.file("/srv/tenant/home/SOUL.md").content_string
    for words in ("plain-spoken", "## Plain language", "## The inbox", "without ceremony", "Guess. If you do not know"):
        assert text.count(words) == 1, words


def test_skills_and_guides_of_the_trade_and_of_everybody_are_there(host: Any) -> None:
    for path in (
        "skills/owner/form-follow-up/SKILL.md",
        "skills/owner/invoice-reminder/SKILL.md",
        "skills/owner/weekly-review/SKILL.md",
        "skills/real-estate/viewing-plan/SKILL.md",
        "guides/pages.md",
        "guides/viewings.md",
        "style/page-style.md",
    ):
        file = host.file(f"/srv/tenant/{path}")
        assert (file.user, file.mode) == ("root", 0o644), path


def test_nothing_has_failed_and_nothing_is_left_over(host: Any) -> None:
    assert host.check_output("systemctl --failed --plain --no-legend") == ""
    assert host.check_output("find / -xdev -name '*.partial' -not -path '/proc/*'") == ""
    assert host.check_output("ls -A /var/lib/tenantry/staging") == ""
