"""Owner messages through Apprise to a real HTTP receiver: at most once, and never the run's result."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from engine.errors import ExitCode, InvalidInput
from engine.records import RunResult
from engine.updater.events import Event, Phase
from engine.updater.outcome import Options
from tests.lab.light_fleet import LightFleet


@dataclass
class Receiver:
    """A web hook. `answer` is the HTTP status it gives, None to hang up after it has read the message."""

    url: str
    messages: list[str] = field(default_factory=list)
    answer: int | None = 200


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known.messages.append(json.loads(body)["message"])
            if known.answer is not None:
                self.send_response(known.answer)
                self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Keep the test's output quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known = Receiver(f"json://127.0.0.1:{server.server_port}/canary-token")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield known
    server.shutdown()
    server.server_close()


@pytest.fixture
def texting(maple: LightFleet, receiver: Receiver) -> LightFleet:
    """The tenant wants update texts, sent to the receiver."""
    secret = maple.root / "var/secrets/hook"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text(receiver.url)
    secret.chmod(0o600)
    maple.change_settings(notify={"target_secret": "hook"})
    maple.register(["maple"], maple={"text_updates": True, "secrets": {"hook": "file:var/secrets/hook"}})
    return maple


ALL_NOTES = "Lightly updated to 2026.10.3: There is a greeting. It says please. The gateway is newer."


def test_one_message_joins_the_pending_notes(texting: LightFleet, receiver: Receiver):
    assert texting.converge("maple").messages == ("the owner was told about 2026.10.3",)
    assert receiver.messages == [ALL_NOTES]
    assert texting.converge("maple").result is RunResult.UNCHANGED
    assert receiver.messages == [ALL_NOTES]


def test_a_tenant_without_the_flag_is_updated_silently(maple: LightFleet, receiver: Receiver):
    maple.converge("maple")
    assert receiver.messages == []
    assert maple.owed("maple").get("note") is None


def test_a_hand_written_text_is_sent_instead(texting: LightFleet, receiver: Receiver):
    text = "Lightly updated to 2026.10.3: we moved to a newer gateway."
    texting.converge("maple", options=Options(note=text))
    assert receiver.messages == [text]


def test_a_hand_written_text_without_the_prefix_is_refused_before_any_connection(texting: LightFleet):
    for text in ("hello", "Lightly updated to 2026.10.3: " + "x" * 480):
        with pytest.raises(InvalidInput):
            texting.converge("maple", options=Options(note=text))
    assert texting.marker("maple") is None and texting.events == []


def test_a_refused_message_stays_owed_and_is_sent_by_the_next_run(texting: LightFleet, receiver: Receiver):
    receiver.answer = 500
    outcome = texting.converge("maple")
    assert (outcome.result, outcome.exit_code) == (RunResult.UPDATED, ExitCode.DONE)
    assert "refused" in outcome.messages[0] and texting.marker("maple") == "2026.10.3"
    receiver.answer = 200
    again = texting.converge("maple")
    assert again.exit_code is ExitCode.DONE and receiver.messages == [ALL_NOTES, ALL_NOTES]
    assert texting.owed("maple")["note"] is None


def test_a_message_whose_delivery_is_unknown_is_never_sent_again(texting: LightFleet, receiver: Receiver):
    receiver.answer = None
    outcome = texting.converge("maple")
    assert outcome.exit_code is ExitCode.DONE and "unknown" in outcome.messages[0]
    receiver.answer = 200
    texting.converge("maple")
    assert receiver.messages == [ALL_NOTES]


def test_a_crash_during_the_attempt_does_not_lead_to_a_second_message(texting: LightFleet, receiver: Receiver):
    texting.converge("maple")
    note = {"version": "2026.10.3", "text": "again", "sending": True}
    texting.run("maple", "cat > /var/lib/tenantry/owed.json", stdin=json.dumps({"note": note}).encode())
    outcome = texting.converge("maple")
    assert "may have been delivered" in outcome.messages[0] and receiver.messages == [ALL_NOTES]


def test_a_missing_target_never_changes_the_result_and_no_target_is_shown(texting: LightFleet, receiver: Receiver):
    (texting.root / "var/secrets/hook").unlink()
    outcome = texting.converge("maple")
    assert outcome.exit_code is ExitCode.DONE and "stays owed" in outcome.messages[0]
    logs = "".join(path.read_text() for path in (texting.state / "records").rglob("log"))
    assert "canary-token" not in logs + str(outcome) + str(texting.events)


def test_the_note_is_owed_before_the_marker_is_written(texting: LightFleet, receiver: Receiver):
    seen: list[object] = []

    def look(event: Event) -> None:
        if event.phase is Phase.NOTIFY and not seen:
            seen.append(texting.owed("maple")["note"])

    receiver.answer = 500
    texting.converge("maple", report=look)
    assert seen == [{"version": "2026.10.3", "text": ALL_NOTES, "sending": False}]


def test_a_note_of_a_crash_before_the_marker_is_sent_once_and_after_it(texting: LightFleet, receiver: Receiver):
    note = {"version": "2026.10.3", "text": "too early", "sending": False}
    texting.run("maple", "cat > /var/lib/tenantry/owed.json", stdin=json.dumps({"note": note}).encode())
    texting.converge("maple")
    assert receiver.messages == [ALL_NOTES]


def test_an_owed_note_of_a_reached_version_is_sent_before_the_next_one(texting: LightFleet, receiver: Receiver):
    receiver.answer = 500
    texting.converge("maple")
    receiver.answer = 200
    receiver.messages.clear()
    path = texting.root / "releases.yaml"
    more = {"version": "2026.10.4", "title": "More", "steps": [], "details": "More.", "owner_note": "More."}
    path.write_text(path.read_text() + f"  - {json.dumps(more)}\n")
    texting.converge("maple")
    assert receiver.messages == [ALL_NOTES, "Lightly updated to 2026.10.4: More."]


def test_a_note_that_is_refused_twice_is_part_of_the_next_one(texting: LightFleet, receiver: Receiver):
    receiver.answer = 500
    texting.converge("maple")
    path = texting.root / "releases.yaml"
    more = {"version": "2026.10.4", "title": "More", "steps": [], "details": "More.", "owner_note": "More."}
    path.write_text(path.read_text() + f"  - {json.dumps(more)}\n")
    texting.converge("maple")
    receiver.answer = 200
    receiver.messages.clear()
    texting.converge("maple")
    notes = "There is a greeting. It says please. The gateway is newer. More."
    assert receiver.messages == [f"Lightly updated to 2026.10.4: {notes}"]


def test_a_hand_written_note_that_is_not_sent_is_said(texting: LightFleet, receiver: Receiver):
    texting.converge("maple")
    outcome = texting.converge("maple", options=Options(note="Lightly updated to 2026.10.3: again"))
    assert "not sent" in outcome.messages[0] and receiver.messages == [ALL_NOTES]
