"""Jobs run by real processes and told over HTTP; units checked by systemd's own tools."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.errors import InvalidInput
from engine.registry.safeguards import Timers
from engine.registry.settings import Settings
from engine.timers import job_named
from engine.timers.reports import Contact, Knowledge, News, read_report
from engine.timers.systemd import check_calendars
from engine.timers.units import Caller, units_of
from engine.timers.watch import Watch, Watched, report_file
from engine.updater.notify import Delivery, send
from tests.conftest import needs

JOB = job_named("backup")
needs_systemd = needs("systemd-analyze")


@dataclass
class Hook:
    """A web hook: the messages that it took, and whether it refuses those that hold a text."""

    url: str = ""
    refuses: str | None = None
    messages: list[str] = field(default_factory=list)


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["message"]
            refused = hook.refuses is not None and hook.refuses in body
            if not refused:
                hook.messages.append(body)
            self.send_response(400 if refused else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook.url = f"json://127.0.0.1:{server.server_port}/"
    yield hook
    server.shutdown()
    server.server_close()


@dataclass
class Machine:
    """A stand-in for the command ``tenantry``, and what the watcher of its runs says."""

    root: Path
    hook: Hook
    said: list[str] = field(default_factory=list)
    reachable: bool = True

    def run(self, script: str, *, contact: bool = True, target: str | None = "file:url") -> Watched:
        command = self.root / "tenantry"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        secret = self.root / "url"
        secret.write_text(f"{self.hook.url if self.reachable else 'json://127.0.0.1:1/'}\n")
        secret.chmod(0o600)
        caller = Caller(command, self.root, self.root / "var")
        given = Contact(target, brand="Queva", limit=400) if contact else None
        return Watch(caller, SystemClock(), given, ("maple",), self.hear, send).run(JOB)

    @property
    def heard(self) -> Path:
        """There once the watcher has handed a line on."""
        return self.root / "heard"

    def hear(self, line: str) -> None:
        self.said.append(line)
        self.heard.touch()

    @property
    def report(self):
        return read_report(report_file(self.root / "var", JOB))


@pytest.fixture
def machine(tmp_path: Path, hook: Hook) -> Machine:
    return Machine(tmp_path, hook)


FAILS = "echo 'error: maple: foo_bar*[x](' >&2; echo '  hint: look' >&2; exit 4"


def test_a_failure_its_change_and_its_recovery_are_told_once_each(machine: Machine, hook: Hook):
    assert machine.run("exit 0").news is None
    assert machine.run(FAILS).exit_code == 4
    for _ in range(3):
        assert machine.run(FAILS).news is None
    assert machine.run("echo 'error: maple: no room' >&2; exit 1").news is News.CHANGED
    assert machine.run("exit 0").news is News.RECOVERED
    assert machine.run("exit 0").news is None
    first, changed, recovered = hook.messages
    unit = Caller(machine.root / "tenantry", machine.root, machine.root / "var").prefix + "backup.service"
    assert first == f"Queva: backup failed, exit 4\nmaple: foo_bar*[x](\njournalctl -u {unit}"
    assert changed.startswith("Queva: backup fails in another way, exit 1\nmaple: no room\n")
    assert recovered.startswith("Queva: backup works again\nIt had failed since 20")


def test_a_service_that_refuses_the_markup_gets_plain_words(machine: Machine, hook: Hook):
    hook.refuses = "*["
    assert machine.run(FAILS).delivery is Delivery.DELIVERED
    assert "maple: foo bar  x" in hook.messages[0]
    assert machine.run(FAILS).news is None


def test_a_message_that_does_not_arrive_changes_nothing_and_is_tried_again(machine: Machine, hook: Hook):
    machine.reachable = False
    failed = machine.run(FAILS)
    assert (failed.exit_code, failed.report.told) == (4, Knowledge.UNCERTAIN)
    assert machine.run("exit 0").exit_code == 0
    machine.reachable = True
    assert machine.run("exit 0").news is News.RECOVERED
    assert "It had failed since" in hook.messages[0]


def test_without_a_target_or_with_one_that_cannot_be_followed_the_result_is_the_jobs(machine: Machine):
    assert machine.run(FAILS, target=None).exit_code == 4
    assert machine.run(FAILS, target="file:missing").exit_code == 4
    assert any("secret file:missing" in line for line in machine.said)
    assert machine.run("exit 0", target="env:NOT_SET").exit_code == 0


def test_broken_settings_still_reach_the_operator(machine: Machine, hook: Hook):
    machine.run("exit 0")
    assert machine.run("echo 'error: fleet.yaml:3: brand' >&2; exit 2", contact=False).delivery is Delivery.DELIVERED
    assert "fleet.yaml:3: brand" in hook.messages[0]


def test_a_job_ended_by_a_signal_has_failed(machine: Machine, hook: Hook):
    assert machine.run("kill -9 $$").exit_code == 137
    assert hook.messages[0].startswith("Queva: backup failed, ended by signal 9")


def test_an_interruption_is_handed_on_and_waits_for_what_the_job_cleans_up(machine: Machine, hook: Hook):
    cleaned = machine.root / "cleaned"
    with pytest.raises(KeyboardInterrupt):
        machine.run(
            f"trap 'echo cleaning up >&2; touch {cleaned}; exit 130' TERM\n"
            # Not before it is watched: what starts it is not interrupted here.
            f"echo working >&2\nuntil [ -e {machine.heard} ]; do sleep 0.05; done\n"
            "kill -INT $PPID\nfor _ in $(seq 100); do sleep 0.1; done"
        )
    assert cleaned.exists() and machine.said == ["working", "cleaning up"]
    assert hook.messages == []


def test_a_process_left_behind_does_not_hold_the_watcher(machine: Machine):
    assert machine.run("sleep 60 & echo $! > left; exit 0".replace("left", str(machine.root / "left"))).exit_code == 0
    subprocess.run(["kill", (machine.root / "left").read_text().strip()], check=True)


def test_output_without_an_end_is_bounded(machine: Machine, hook: Hook):
    noise = (
        "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; yes 'error: maple: \033[2J' | head -n 20000 >&2; exit 1"
    )
    assert machine.run(noise).exit_code == 1
    assert len(hook.messages[0].encode("utf-16-le")) // 2 <= 400
    assert "\033" not in hook.messages[0]
    assert report_file(machine.root / "var", JOB).stat().st_size < 100_000


def test_a_report_that_is_garbled_counts_as_none(machine: Machine, hook: Hook):
    machine.run(FAILS)
    report_file(machine.root / "var", JOB).write_text('{"job": 1')
    assert machine.run(FAILS).news is News.FAILED


def test_a_report_that_cannot_be_kept_does_not_change_the_result(machine: Machine, hook: Hook):
    (machine.root / "var").write_text("a file, no directory")
    assert machine.run(FAILS).exit_code == 4
    assert hook.messages
    assert any("is not kept" in line for line in machine.said)


@needs_systemd
def test_calendars_are_checked_by_systemd(tmp_path: Path):
    caller = Caller(tmp_path / "tenantry", tmp_path, tmp_path / "var")
    check_calendars(units_of(Settings("Q"), caller), tmp_path)
    for wrong in ("every night", "--help", "*-*-* 25:00"):
        with pytest.raises(InvalidInput, match=r"timers\.rehearse: .* is no calendar event") as caught:
            check_calendars(units_of(Settings("Q", timers=Timers(rehearse=wrong)), caller), tmp_path)
        assert caught.value.where.endswith("inventory/fleet.yaml")


@needs_systemd
@pytest.mark.parametrize("name", ["plain", "with space", "100%h $HOME", 'quo"te\\d', "ümlaut", "new\nline"])
def test_systemd_takes_the_units_of_any_path(tmp_path: Path, name: str):
    root = tmp_path / name
    root.mkdir()
    # The program's own path may have blanks and percent signs; systemd takes no quotes and controls in it.
    command = (root if name.isprintable() and '"' not in name else tmp_path) / "tenantry"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    paths = []
    for unit in units_of(Settings("Q%n\\"), Caller(command, root, root / "var")):
        for file, text in unit.files:
            (tmp_path / file).write_text(text)
            paths.append(str(tmp_path / file))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "tenantry-" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr
