"""A converge on real hosts: to the head, again, after edits, for many at once."""

from __future__ import annotations

import pytest
import yaml

from engine.errors import ExitCode, TenantryError
from engine.hosts.session import Session
from engine.records import RunResult
from engine.registry.model import Tenant
from engine.updater.events import Event, Phase
from engine.updater.fleet import ask_many
from engine.updater.outcome import Options
from engine.updater.plan import plan_tenant
from engine.updater.verify import verify
from tests.lab.light_fleet import LightFleet

GREETING = "Hello 'you' & \"{{ all }}\" $(id) %}\n"


def test_a_fresh_tenant_reaches_the_head_and_a_second_run_changes_nothing(maple: LightFleet):
    first = maple.converge("maple")
    assert (first.result, first.exit_code, first.error) == (RunResult.UPDATED, ExitCode.DONE, None)
    assert first.restarted and first.to_version == "2026.10.3"
    assert maple.marker("maple") == "2026.10.3"
    assert maple.run("maple", "cat /srv/light/greetings/hello") == GREETING
    assert maple.run("maple", "readlink /opt/light/current").strip() == "/opt/light/1.1"
    assert maple.run("maple", "cat /srv/light/SOUL.md").endswith("Always say please.\n")
    # The step that two releases share ran once.
    assert maple.run("maple", "cat /srv/light/greeting-runs").splitlines() == ["run"]

    pid = maple.run("maple", "systemctl show -P MainPID light-gateway.service")
    second = maple.converge("maple")
    assert (second.result, second.steps, second.files, second.restarted) == (
        RunResult.UNCHANGED,
        (),
        (),
        False,
    )
    assert maple.run("maple", "systemctl show -P MainPID light-gateway.service") == pid


def test_a_restart_copies_the_state_into_the_recovery_set_before_the_switch(maple: LightFleet):
    maple.say("maple", "remember me", age_seconds=1000)
    outcome = maple.converge("maple")
    found = f"/var/lib/tenantry/recovery/{outcome.run}"
    text = maple.run("maple", f"sqlite3 {found}/state/0/state.db 'SELECT content FROM messages'")
    assert text.strip() == "remember me"
    assert maple.run("maple", f"stat -c %a {found} {found}/..").split() == ["700", "700"]
    assert maple.run("maple", "ls /var/lib/tenantry/deadman 2>/dev/null || true") == ""


def test_a_patch_keeps_the_file_as_it_was_before_its_first_edit(maple: LightFleet):
    before = maple.run("maple", "cat /srv/light/SOUL.md")
    maple.converge("maple")
    copy = "/var/lib/tenantry/copies/polite/srv__light__SOUL.md"
    assert maple.run("maple", f"cat {copy}") == before
    maple.run("maple", "echo changed > /srv/light/SOUL.md; rm /var/lib/tenantry/version")
    maple.converge("maple")
    assert maple.run("maple", f"cat {copy}") == before


def test_a_trade_condition_decides_on_each_tenant(two: LightFleet):
    two.converge_all()
    assert two.run("maple", "ls /srv/light/estate").strip() == "/srv/light/estate"
    assert two.run("cedar", "ls /srv/light/estate || true") == ""


def test_an_edited_template_is_planned_converged_and_leaves_the_marker_alone(maple: LightFleet):
    maple.converge("maple")
    template = maple.root / "templates/personality.j2"
    template.write_text(template.read_text() + "Sign as {{ tenant.owner_name }}. „Grüße“ {{ '{{ raw }}' }} & 100%\n")
    workspace = maple.workspace()
    tenant = workspace.fleet.tenants["maple"]
    (plan,) = ask_many(workspace, [tenant], lambda t, s: plan_tenant(workspace, t, s, with_diff=True))
    assert plan.has_changes and not plan.steps
    assert "+Sign as Owner of maple. „Grüße“ {{ raw }} & 100%" in plan.diffs[0]

    outcome = maple.converge("maple")
    assert (outcome.result, outcome.files, outcome.restarted) == (
        RunResult.UPDATED,
        ("/srv/light/SOUL.md",),
        True,
    )
    assert maple.marker("maple") == "2026.10.3"
    assert "„Grüße“ {{ raw }} & 100%\n" in maple.run("maple", "cat /srv/light/SOUL.md")
    assert maple.converge("maple").result is RunResult.UNCHANGED


def test_hand_edits_of_rendered_files_are_put_back(maple: LightFleet):
    maple.converge("maple")
    maple.run("maple", "chmod 0666 /srv/light/SOUL.md; echo more >> /etc/systemd/system/light-gateway.service")
    outcome = maple.converge("maple")
    assert set(outcome.files) == {"/srv/light/SOUL.md", "/etc/systemd/system/light-gateway.service"}
    assert maple.run("maple", "stat -c %a /srv/light/SOUL.md").strip() == "640"


def test_a_link_in_a_rendered_files_place_is_shown_unread_and_replaced(maple: LightFleet):
    assert maple.converge("maple").error is None
    maple.run("maple", "ln -sfn /etc/shadow /srv/light/SOUL.md")
    shadow = maple.run("maple", "stat -c '%U %G %a' /etc/shadow; cat /etc/shadow")
    workspace = maple.workspace()
    tenant = workspace.fleet.tenants["maple"]
    (plan,) = ask_many(workspace, [tenant], lambda t, s: plan_tenant(workspace, t, s, with_diff=True))
    document = plan.document()
    assert [(file["name"], file["differs_in"]) for file in document["files"]] == [("personality", ["link"])]
    assert document["diffs"][0][0] == "--- /dev/null" and "root:" not in str(document["diffs"])
    outcome = maple.converge("maple")
    assert (outcome.files, outcome.error) == (("/srv/light/SOUL.md",), None)
    assert maple.run("maple", "stat -c '%F %a' /srv/light/SOUL.md").strip() == "regular file 640"
    assert maple.run("maple", "stat -c '%U %G %a' /etc/shadow; cat /etc/shadow") == shadow


def test_a_plan_digest_holds_a_converge_to_what_was_seen(maple: LightFleet):
    workspace = maple.workspace()
    tenant = workspace.fleet.tenants["maple"]
    (plan,) = ask_many(workspace, [tenant], lambda t, s: plan_tenant(workspace, t, s, with_diff=False))
    refused = maple.converge("maple", options=Options(plan_digests=frozenset({"sha256:other"})))
    assert refused.exit_code is ExitCode.FAILED and "the plan is now" in str(refused.error)
    assert maple.marker("maple") is None
    accepted = maple.converge("maple", options=Options(plan_digests=frozenset({plan.assessment.digest()})))
    assert accepted.exit_code is ExitCode.DONE


def test_a_plan_works_while_a_job_holds_the_lock_and_tells_what_it_knows(maple: LightFleet):
    workspace = maple.workspace()
    tenant = workspace.fleet.tenants["maple"]
    with workspace.locks.hold(tenant.subject, job="backup", run="r"):
        (plan,) = ask_many(workspace, [tenant], lambda t, s: plan_tenant(workspace, t, s, with_diff=False))
        busy = maple.converge("maple")
    assert [step.is_certain for step in plan.steps] == [True, False, False, False]
    assert plan.steps[0].verdict == "would run: its effect is not there"
    assert (busy.result, busy.exit_code, busy.run) == (RunResult.BUSY, ExitCode.BUSY, None)


def test_an_edited_applied_release_is_refused_with_both_digests(maple: LightFleet):
    maple.converge("maple")
    path = maple.root / "releases.yaml"
    path.write_text(path.read_text().replace("Hello 'you'", "Hello 'them'"))
    outcome = maple.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED
    assert "an applied release was edited: 2026.10.1: applied as sha256:" in str(outcome.error)


def test_prose_may_change_after_a_release_was_applied(maple: LightFleet):
    maple.converge("maple")
    path = maple.root / "releases.yaml"
    path.write_text(path.read_text().replace("Writes a greeting.", "Writes the first greeting."))
    assert maple.converge("maple").result is RunResult.UNCHANGED


def test_a_tenant_above_the_head_is_left_alone(maple: LightFleet):
    maple.run("maple", "echo 2027.1.1 > /var/lib/tenantry/version")
    outcome = maple.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED and "above this manifest's head" in str(outcome.error)
    assert maple.marker("maple") == "2027.1.1"


def test_a_server_that_was_never_provisioned_is_told_the_command(maple: LightFleet):
    maple.run("maple", "mv /var/lib/tenantry/receipts /var/lib/tenantry/away")
    outcome = maple.converge("maple")
    maple.run("maple", "mv /var/lib/tenantry/away /var/lib/tenantry/receipts")
    assert outcome.exit_code is ExitCode.FAILED
    assert "tenantry provision maple --confirm maple" in str(outcome.error)


def test_the_acceptance_check_counts(maple: LightFleet):
    def check():
        workspace = maple.workspace()
        tenant = workspace.fleet.tenants["maple"]
        (found,) = ask_many(workspace, [tenant], lambda t, s: verify(workspace, t, s.probe()))
        return found

    assert "head reached" in [item.name for item in check().checks if item.verdict.value == "failed"]
    maple.converge("maple")
    assert check().is_good, check()
    maple.run("maple", "systemctl stop light-gateway.service")
    assert not check().is_good


@pytest.mark.parametrize("parallel", [1, 2])
def test_one_tenants_failure_leaves_the_others_untouched(two: LightFleet, parallel: int):
    two.run("maple", "printf garbage > /var/lib/tenantry/version")
    maple, cedar = two.converge_all(parallel=parallel)
    assert (maple.exit_code, cedar.exit_code) == (ExitCode.UNREACHABLE, ExitCode.DONE)
    assert two.marker("cedar") == "2026.10.3" and two.marker("maple") == "garbage"


FILES = """
find /srv/light /opt/light /etc/systemd/system/light-gateway.service \\
    ! -name 'state.db*' ! -name gateway_state.json ! -name greeting-runs -printf '%p %y %m %u %g %l ' \\
    \\( -type f -exec sha256sum {} \\; -o -printf '\\n' \\) | sort
"""


def test_a_tenant_that_took_every_release_and_one_that_took_them_at_once_end_equal(two: LightFleet):
    two.register(["maple", "cedar"], maple={"business": "Equal"}, cedar={"business": "Equal", "trade": "real-estate"})
    manifest = (two.root / "releases.yaml").read_text()
    whole = yaml.safe_load(manifest)["releases"]
    for count in range(1, len(whole) + 1):
        (two.root / "releases.yaml").write_text(yaml.safe_dump({"releases": whole[:count]}, sort_keys=False))
        assert two.converge("maple").to_version == whole[count - 1]["version"]
    (two.root / "releases.yaml").write_text(manifest)
    assert two.converge("cedar").from_version is None
    assert two.run("maple", FILES) == two.run("cedar", FILES)
    assert two.run("maple", "cat /var/lib/tenantry/applied.json") == two.run(
        "cedar", "cat /var/lib/tenantry/applied.json"
    )


def test_a_tenant_in_conversation_keeps_no_other_one_waiting(two: LightFleet):
    talking = []

    def talk(event: Event) -> None:
        # Until the other tenant is done, the first one is spoken to again and again.
        if event.subject == "maple" and event.phase is Phase.QUIESCE and "cedar" not in talking:
            two.say("maple")
        if event.subject == "cedar" and event.phase is Phase.DONE:
            talking.append("cedar")

    # So long that no pause of a machine at work, between a word and the next look, counts as silence.
    two.change_settings(quiesce={"polls": 2000, "silence_seconds": 9})
    outcomes = two.converge_all(parallel=1, report=talk)
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert [event.subject for event in two.events if event.phase is Phase.DONE] == ["cedar", "maple"]


def test_a_defect_in_one_tenants_question_is_that_tenants_error(two: LightFleet):
    workspace = two.workspace()

    def ask(tenant: Tenant, session: Session) -> str:
        if tenant.slug == "maple":
            raise KeyError("a defect")
        return tenant.slug

    maple, cedar = ask_many(workspace, list(workspace.fleet.tenants.values()), ask)
    assert cedar == "cedar"
    assert isinstance(maple, TenantryError) and maple.message == "internal error: KeyError"
    (log,) = (two.state / "defects").iterdir()
    assert "a defect" in log.read_text() and log.name in maple.hint
