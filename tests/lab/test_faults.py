"""What goes wrong in real use: the marker never lies, the exit code tells, a plain re-run mends."""

from __future__ import annotations

import subprocess

import gevent
import pytest

from engine.errors import ExitCode
from engine.records import RunResult
from engine.updater.events import Event, Phase
from engine.updater.outcome import Options
from tests.lab.light_fleet import HASTY, PATIENT, LightFleet, cut_when_begun
from tests.lab.provision_runs import killed_in

HEAD = "2026.10.3"


# Tolerated


@pytest.mark.parametrize("text", [r"\357\273\2772026.10.1\r\n", r"  2026.10.1 \n\n", "2026.10.1"])
def test_a_marker_may_have_a_byte_order_mark_and_blanks(maple: LightFleet, text: str):
    maple.run("maple", f"printf '{text}' > /var/lib/tenantry/version")
    outcome = maple.converge("maple")
    assert (outcome.from_version, outcome.exit_code) == ("2026.10.1", ExitCode.DONE)


NOISE = r"""
echo '{} [1] {"marker": 1}'
printf '\377\n'
echo noise >&2
"""


def test_banners_foreign_locales_and_noise_do_no_harm(maple: LightFleet):
    maple.run("maple", "tee /etc/profile.d/noise.sh /home/ops/.bashrc /home/ops/.profile", stdin=NOISE.encode())
    maple.run("maple", "echo LC_ALL=xx_XX.KOI8-R > /etc/environment; echo 'Welcome {\"a\": 1}' > /etc/motd")
    try:
        assert maple.converge("maple").error is None
    finally:
        maple.run("maple", "rm /etc/profile.d/noise.sh /home/ops/.bashrc /home/ops/.profile; : > /etc/environment")


# Unknown


@pytest.mark.parametrize("text", ["", "garbage", "v2 2026.10.22", "2026.10.22 2026.10.23"])
def test_an_unreadable_marker_is_unknown_and_stays(maple: LightFleet, text: str):
    maple.run("maple", f"printf '%s' '{text}' > /var/lib/tenantry/version")
    outcome = maple.converge("maple")
    assert outcome.exit_code is ExitCode.UNREACHABLE and "unreadable" in str(outcome.error)
    assert (maple.marker("maple") or "") == text


PROBES = {
    "nothing": "cat > /dev/null",
    "half an object": 'cat | /usr/bin/python3 "$@" | head -c 60',
    "two objects": 'script=$(cat); for i in 1 2; do printf "%s" "$script" | /usr/bin/python3 "$@"; done',
    "a full object, then exit 1": '/usr/bin/python3 "$@"; exit 1',
}


@pytest.mark.parametrize("script", PROBES.values(), ids=PROBES.keys())
def test_a_probe_without_one_whole_answer_is_unknown(maple: LightFleet, script: str):
    maple.run(
        "maple",
        "cat > /usr/local/bin/python3; chmod +x /usr/local/bin/python3",
        stdin=f"#!/bin/sh\n{script}\n".encode(),
    )
    try:
        outcome = maple.converge("maple")
    finally:
        maple.run("maple", "rm /usr/local/bin/python3")
    assert outcome.exit_code is ExitCode.UNREACHABLE
    assert maple.marker("maple") is None


SLEEPER = """
mkdir -p /run/systemd/system/light-gateway.service.d
printf '[Service]\\nExecStart=\\nExecStart=/bin/sleep 1000\\n' > /run/systemd/system/light-gateway.service.d/sleep.conf
systemctl daemon-reload
systemctl stop light-gateway
rm -f /srv/light/state.db*
systemctl start light-gateway
"""


def test_an_active_gateway_without_a_history_is_unknown_and_no_database_appears(maple: LightFleet):
    maple.run("maple", SLEEPER)
    try:
        outcome = maple.converge("maple")
    finally:
        maple.run("maple", "rm -r /run/systemd/system/light-gateway.service.d; systemctl daemon-reload")
    assert outcome.exit_code is ExitCode.UNREACHABLE and "history missing" in str(outcome.error)
    assert maple.marker("maple") is None
    assert maple.run("maple", "ls /srv/light/state.db 2>/dev/null || true") == ""


# Connection


def test_an_unreachable_host(maple: LightFleet):
    maple.run("maple", "systemctl stop ssh.socket ssh 2>/dev/null; true")
    try:
        outcome = maple.converge("maple")
    finally:
        maple.run("maple", "systemctl start ssh")
    assert (outcome.result, outcome.exit_code) == (RunResult.UNREACHABLE, ExitCode.UNREACHABLE)


ANOTHER_KEY = """
cd /etc/ssh
mv ssh_host_ed25519_key key
mv ssh_host_ed25519_key.pub key.pub
ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key
systemctl restart ssh
"""

FIRST_KEY = """
cd /etc/ssh
mv key ssh_host_ed25519_key
mv key.pub ssh_host_ed25519_key.pub
systemctl restart ssh
"""


def test_another_host_key_is_refused(maple: LightFleet):
    maple.run("maple", ANOTHER_KEY)
    try:
        outcome = maple.converge("maple")
    finally:
        maple.run("maple", FIRST_KEY)
    assert outcome.exit_code is ExitCode.UNREACHABLE and "key" in str(outcome.error)
    assert maple.converge("maple").exit_code is ExitCode.DONE


def test_a_refused_identity(maple: LightFleet):
    maple.run("maple", "mv /home/ops/.ssh/authorized_keys /home/ops/.ssh/away")
    try:
        outcome = maple.converge("maple")
    finally:
        maple.run("maple", "mv /home/ops/.ssh/away /home/ops/.ssh/authorized_keys")
    assert outcome.exit_code is ExitCode.UNREACHABLE and "identity" in str(outcome.error).lower()


# Another machine


def test_a_version_that_another_machine_sets_between_probe_and_claim_is_never_taken_back(maple: LightFleet):
    class AndMeanwhile(frozenset):
        """Any plan is accepted, and while it is looked at another machine's run commits."""

        def __contains__(self, digest: object) -> bool:
            maple.run("maple", "echo 2027.1.1 > /var/lib/tenantry/version")
            return True

    outcome = maple.converge("maple", options=Options(plan_digests=AndMeanwhile()))
    assert outcome.exit_code is ExitCode.FAILED and "another run changed" in str(outcome.error)
    assert maple.marker("maple") == "2027.1.1"
    assert maple.run("maple", "ls /srv/light/greetings 2>/dev/null || true") == ""


# Steps


def script(command: str, effect: str = "/srv/light/effect") -> dict[str, dict[str, str]]:
    return {"script": {"command": command, "effect": effect}}


def test_a_failing_step_names_itself_and_its_last_words(maple: LightFleet):
    maple.write_releases(("2026.10.1", [script("echo first; echo the reason >&2; exit 3")]))
    outcome = maple.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED
    assert "step script failed: the reason" in str(outcome.error)
    assert maple.marker("maple") is None


def test_a_step_whose_effect_is_missing_afterwards(maple: LightFleet):
    maple.write_releases(("2026.10.1", [script("true")]))
    outcome = maple.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED and "precondition afterwards does not hold" in str(outcome.error)
    assert maple.marker("maple") is None


def test_a_command_that_reads_standard_input_sees_its_end(maple: LightFleet):
    maple.write_releases(("2026.10.1", [script("cat > /srv/light/effect")]))
    assert maple.converge("maple").exit_code is ExitCode.DONE


def test_what_was_shipped_is_removed_when_a_step_fails(maple: LightFleet):
    maple.write_releases(("2026.10.1", [{"greeting": {"name": "no/such/directory", "text": "x"}}]))
    assert maple.converge("maple").exit_code is ExitCode.FAILED
    assert maple.run("maple", "ls -A /var/lib/tenantry/staging") == ""


# Quiesce, restart, liveness


def test_a_gateway_in_conversation_defers_the_run_and_the_restart_stays_owed(maple: LightFleet):
    maple.change_settings(quiesce={"polls": 2, "silence_seconds": 60})

    def talk(event: Event) -> None:
        if event.phase is Phase.QUIESCE:
            maple.say("maple")

    pid = maple.run("maple", "systemctl show -P MainPID light-gateway")
    outcome = maple.converge("maple", report=talk)
    assert (outcome.result, outcome.exit_code) == (RunResult.DEFERRED, ExitCode.DEFERRED)
    assert maple.marker("maple") is None and maple.owed("maple")["restart"]
    assert maple.run("maple", "systemctl show -P MainPID light-gateway") == pid
    maple.change_settings(quiesce={"polls": 20, "silence_seconds": 3})
    again = maple.converge("maple")
    assert (again.exit_code, again.restarted) == (ExitCode.DONE, True)
    assert maple.marker("maple") == HEAD and not maple.owed("maple")["restart"]


def test_a_message_between_gate_and_restart_is_not_cut_off(maple: LightFleet):
    pids: list[str] = []

    def talk(event: Event) -> None:
        if event.phase is Phase.RESTART and not pids:
            pids.append(maple.run("maple", "systemctl show -P MainPID light-gateway"))
            maple.say("maple", "one more thing")

    outcome = maple.converge("maple", report=talk)
    assert outcome.exit_code is ExitCode.DONE
    assert any("between the gate and the restart" in event.message for event in maple.events)


def test_a_restart_that_replaces_nothing_is_a_failure(maple: LightFleet):
    maple.change_settings(**HASTY)
    wrapper = '#!/bin/sh\ncase "$1" in stop|start) exit 0;; esac\nexec /usr/bin/systemctl "$@"\n'
    maple.run("maple", "cat > /usr/local/bin/systemctl; chmod +x /usr/local/bin/systemctl", stdin=wrapper.encode())
    try:
        outcome = maple.converge("maple")
    finally:
        maple.run("maple", "rm /usr/local/bin/systemctl")
    assert outcome.exit_code is ExitCode.FAILED and "replaced nothing" in str(outcome.error)
    assert maple.marker("maple") is None
    maple.change_settings(**PATIENT)
    assert maple.converge("maple", options=Options(retry=True)).restarted


@pytest.mark.parametrize(
    ("fault", "words"), [("crash", "light-gateway.service"), ("no-channel", "channel local is retrying")]
)
def test_a_gateway_that_does_not_come_back_is_never_reported_as_updated(maple: LightFleet, fault: str, words: str):
    maple.run("maple", f"echo {fault} > /srv/light/fault")
    maple.change_settings(**HASTY)
    outcome = maple.converge("maple")
    # What is wrong lies in its state, so putting the tenant back does not help.
    assert (outcome.result, outcome.exit_code) == (RunResult.FAILED, ExitCode.FAILED)
    assert words in str(outcome.error) and "afterwards too" in str(outcome.error)
    assert maple.marker("maple") is None
    maple.run("maple", "rm /srv/light/fault")
    maple.change_settings(**PATIENT)
    again = maple.converge("maple", options=Options(retry=True))
    assert (again.exit_code, again.restarted) == (ExitCode.DONE, True)


def test_at_the_head_with_the_channel_down_is_a_failure(maple: LightFleet):
    maple.converge("maple")
    maple.run("maple", "echo no-channel > /srv/light/fault; systemctl restart light-gateway")
    maple.change_settings(**HASTY)
    outcome = maple.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED and "channel local" in str(outcome.error)


def test_an_owed_reload_of_a_unit_that_is_gone_is_settled(maple: LightFleet):
    maple.run("maple", "cat > /var/lib/tenantry/owed.json", stdin=b'{"reloads": ["gone.service"]}')
    assert maple.converge("maple").error is None
    assert maple.owed("maple")["reloads"] == []


def test_a_gateway_that_never_had_a_history_is_mended_by_a_corrected_template(
    maple: LightFleet,
):
    unit = maple.root / "templates/unit.j2"
    good = unit.read_text()
    unit.write_text(
        good.replace("ExecStart=/usr/bin/python3 -B", "ExecStart=/bin/false").replace("Burst=4", "Burst=400")
    )
    maple.run("maple", "systemctl stop light-gateway; rm -f /srv/light/state.db*")
    maple.change_settings(**HASTY)
    assert maple.converge("maple").exit_code is ExitCode.FAILED
    unit.write_text(good)
    maple.change_settings(**PATIENT)
    outcome = maple.converge("maple", options=Options(retry=True))
    assert (outcome.error, maple.marker("maple")) == (None, HEAD)


# Disks


def test_a_full_disk_on_the_tenant(maple: LightFleet):
    maple.run(
        "maple",
        "mount -t tmpfs -o size=64k tmpfs /var/lib/tenantry/staging; "
        "dd if=/dev/zero of=/var/lib/tenantry/staging/ballast bs=1k 2>/dev/null; true",
    )
    try:
        outcome = maple.converge("maple")
    finally:
        maple.run("maple", "umount /var/lib/tenantry/staging")
    assert outcome.exit_code is ExitCode.FAILED and "No space left" in str(outcome.error)
    assert maple.marker("maple") is None
    assert maple.converge("maple").exit_code is ExitCode.DONE


def test_a_full_disk_on_the_operators_side(maple: LightFleet):
    records = maple.state / "records"
    records.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(records)], check=True)
    try:
        with open(records / "ballast", "wb", buffering=0) as ballast, pytest.raises(OSError):
            while True:
                ballast.write(b"x" * 4096)
        outcome = maple.converge("maple")
    finally:
        subprocess.run(["umount", str(records)], check=True)
    assert outcome.exit_code is ExitCode.FAILED and "No space left" in str(outcome.error)
    assert maple.marker("maple") is None


# A link that is cut, a process that is killed


def test_a_link_cut_in_a_long_step_leaves_its_effect_there_once(maple: LightFleet):
    wait = "touch /srv/light/began; for i in $(seq 1500); do [ -e /srv/light/go ] && break; sleep 0.2; done"
    maple.write_releases(("2026.10.1", [script(f"{wait}; echo once >> /srv/light/effect")]))
    cut = gevent.spawn(cut_when_begun, maple)
    lost = maple.converge("maple")
    cut.join()
    assert lost.exit_code is ExitCode.UNREACHABLE and maple.marker("maple") is None
    maple.lab.restore_link("maple")

    def let_it_end(event: Event) -> None:
        if "still runs on the host" in event.message:
            maple.run("maple", "touch /srv/light/go")

    again = maple.converge("maple", report=let_it_end)
    assert again.exit_code is ExitCode.DONE
    assert maple.run("maple", "cat /srv/light/effect").splitlines() == ["once"]
    assert any("still runs on the host" in event.message for event in maple.events)


@pytest.mark.parametrize("phase", ["connect", "probe", "apply", "render", "quiesce", "restart", "liveness", "commit"])
def test_a_killed_operator_process_is_made_good_by_a_plain_rerun(maple: LightFleet, phase: str):
    if phase == "render":
        template = maple.root / "templates/personality.j2"
        template.write_text(template.read_text() + "More.\n")
    if phase == "quiesce":
        maple.say("maple")
    killed_in(maple, "maple", "converge", phase)

    # From the arming on, the tenant is first put back to what it was before that run.
    outcome = maple.converge("maple", options=Options(retry=phase in ("restart", "liveness")))
    assert (outcome.exit_code, outcome.error) == (ExitCode.DONE, None)
    assert maple.marker("maple") == HEAD
    owed = maple.owed("maple")
    assert not owed.get("restart") and not owed.get("switches")
    assert maple.run("maple", "readlink /opt/light/current").strip() == "/opt/light/1.1"
    assert maple.run("maple", "cat /srv/light/greeting-runs").splitlines() == ["run"]
    assert maple.run("maple", "grep -c please /srv/light/SOUL.md").strip() == "1"
    assert '"1.1"' in maple.run("maple", "curl -s http://127.0.0.1:8642/health")
