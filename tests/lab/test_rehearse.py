"""Rehearsals on real hosts: proof that an archive restores, at nobody's expense."""

from __future__ import annotations

import http.server
import json
import shutil
import signal
import socket
import threading
from collections.abc import Iterator

import pytest
import yaml

from engine.backups.proofs import ProofStore
from engine.backups.rehearsal import RehearsalOutcome, rehearse_many
from engine.backups.store import manifest_path
from engine.errors import ExitCode
from engine.records import RunResult
from engine.updater.events import Event, Phase, Reporter
from engine.updater.outcome import Outcome
from tests.lab.light_fleet import LightFleet
from tests.lab.provision_runs import WatchedRun, killed_in
from tests.lab.restores import HEAD, back_up, fill, seen

SCRATCH = "scratch-maple"

REACH = """
import socket, sys
for address, port in (line.split(':') for line in sys.argv[1:]):
    try:
        socket.create_connection((address, int(port)), 1).close()
        print('reached')
    except OSError:
        print('not reached')
"""


@pytest.fixture
def lived(maple: LightFleet) -> LightFleet:
    """A tenant at the head with something to lose and an archive of it."""
    shutil.rmtree(maple.state / "backups", ignore_errors=True)
    assert maple.converge("maple").error is None
    fill(maple)
    back_up(maple)
    return maple


@pytest.fixture
def inbox() -> Iterator[tuple[int, list[str]]]:
    """The port of a server that takes owner messages, and what it got."""
    got: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server.server_port, got
    server.shutdown()
    thread.join()
    server.server_close()


def rehearsed(fleet: LightFleet, report: Reporter | None = None) -> Outcome:
    workspace = fleet.workspace(report)
    (outcome,) = rehearse_many(workspace, [workspace.fleet.tenants["maple"]])
    return outcome


def proofs(fleet: LightFleet) -> ProofStore:
    return ProofStore(fleet.state / "records")


def test_a_rehearsal_proves_the_archive_and_leaves_nobody_the_wiser(lived: LightFleet, inbox: tuple[int, list[str]]):
    port, messages = inbox
    target = lived.root / "target"
    target.write_text(f"json://127.0.0.1:{port}/")
    target.chmod(0o600)
    followed = lived.root / "followed"
    secrets = {"gateway_key": f"command:touch {followed}", "notify_url": "file:target"}
    lived.register(["maple"], maple={"text_updates": True, "secrets": secrets})
    lived.change_settings(notify={"target_secret": "notify_url"})
    before = seen(lived)
    subject = lived.workspace().fleet.tenants["maple"].subject
    answers: list[str] = []

    def look(event: Event) -> None:
        if event.phase is Phase.UNPACK and not answers:
            others = [(lived.lab.find_required(slug).address, 22) for slug in ("maple", "cedar")]
            with socket.create_server((lived.lab.gateway_address, 0)) as here:
                places = [*others, here.getsockname()]
                asked = f"python3 - {' '.join(f'{address}:{number}' for address, number in places)}"
                answers.append(lived.run(SCRATCH, asked, stdin=REACH.encode()))
            for other in others:
                # They do answer: it is not the question that is wrong.
                socket.create_connection(other, 10).close()
            answers.append(lived.run(SCRATCH, "ip route; ip -6 route"))
            answers.append(lived.run(SCRATCH, "cat /etc/light-gateway.env"))

    with lived.workspace().locks.hold(subject, job="something else", run="r"):
        outcome = rehearsed(lived, look)
    assert (outcome.error, outcome.result, outcome.to_version) == (None, RunResult.REHEARSED, HEAD)
    assert answers[0].split("\n")[:3] == ["not reached", "not reached", "reached"]
    assert "default" not in answers[1] and "GATEWAY_KEY" in answers[2]
    assert not followed.exists() and messages == []
    assert seen(lived) == before and lived.lab.find(SCRATCH) is None
    assert isinstance(outcome, RehearsalOutcome) and outcome.proof
    proven = proofs(lived).last_proven(subject)
    assert proven == outcome.proof and proven.phases and sum(proven.phases.values()) <= proven.duration_seconds + 1
    assert any("0 failed" in message for message in outcome.messages)
    process = lived.cli("status", "maple", "--json")
    (entry,) = json.loads(process.communicate()[0])["tenants"]
    assert entry["last_proven_restore"]["archive"] == proven.archive


def test_failed_rehearsals_are_recorded_and_take_the_scratch_server_with_them(lived: LightFleet):
    subject = lived.workspace().fleet.tenants["maple"].subject
    proven = proofs(lived).last_proven(subject)

    def open_a_way(event: Event) -> None:
        if event.phase is Phase.PHASE_B:
            lived.run(SCRATCH, "ip route replace 128.0.0.0/1 dev eth0")

    outcome = rehearsed(lived, open_a_way)
    assert "the scratch server has a way out: 128.0.0.0/1 (eth0)" in str(outcome.error)
    assert lived.lab.find(SCRATCH) is None

    (path,) = (lived.state / "backups/tenant/maple").glob("*.tar.zst")
    document = json.loads(manifest_path(path).read_text())
    document["databases"]["/srv/light/ledger.db"]["tables"]["entries"] += 1
    manifest_path(path).write_text(json.dumps(document))
    outcome = rehearsed(lived)
    assert outcome.exit_code is ExitCode.FAILED and "has 500 rows" in str(outcome.error)
    assert lived.lab.find(SCRATCH) is None
    attempt = proofs(lived).last_attempt(subject)
    assert attempt and not attempt.is_good and "has 500 rows" in str(attempt.error)
    assert proofs(lived).last_proven(subject) == proven

    document["databases"]["/srv/light/ledger.db"]["tables"]["entries"] -= 1
    manifest_path(path).write_text(json.dumps(document))
    releases = lived.root / "releases.yaml"
    present = yaml.safe_load(releases.read_text())["releases"]
    lived.write_releases(("2026.10.9", [{"script": {"command": "exit 3", "effect": "/srv/light/effect"}}]))
    more = yaml.safe_load(releases.read_text())["releases"]
    releases.write_text(yaml.safe_dump({"releases": present + more}))
    outcome = rehearsed(lived)
    assert outcome.exit_code is ExitCode.FAILED and "step script failed" in str(outcome.error)
    assert lived.lab.find(SCRATCH) is None and lived.lab.find_required("maple").running


def test_what_a_killed_rehearsal_left_is_destroyed_by_the_next_one(lived: LightFleet):
    killed_in(lived, "maple", "rehearse", "phase-a")
    assert lived.lab.find(SCRATCH) is not None
    left = lived.lab.find_required(SCRATCH).host_key
    # By its name alone it could be anybody's.
    mark = lived.state / f"scratch/{SCRATCH}.json"
    kept = mark.read_text()
    mark.unlink()
    assert "that no rehearsal made" in str(rehearsed(lived).error) and lived.lab.find(SCRATCH) is not None
    mark.write_text(kept)
    # Its tenant is removed meanwhile.
    lived.register(["cedar"])
    workspace = lived.workspace()
    # One of another tenant's, which has no archive: what is left goes before anything else.
    (outcome,) = rehearse_many(workspace, [workspace.fleet.tenants["cedar"]])
    assert "no verified archive" in str(outcome.error)
    assert left and lived.lab.find(SCRATCH) is None


def test_a_rehearsal_whose_timer_is_ended_destroys_its_scratch_server(lived: LightFleet):
    lived.register(["maple"])
    run = WatchedRun(lived.cli("timers", "run", "rehearse"), "maple")
    assert run.reach("phase-b")
    run.process.send_signal(signal.SIGTERM)
    assert run.end().code == 130
    assert lived.lab.find(SCRATCH) is None
