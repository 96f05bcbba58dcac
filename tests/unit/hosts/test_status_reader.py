"""From the probe's object to a status: strict, and never kinder than the host's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.errors import ProbeFailed
from engine.hosts.channel import Output
from engine.hosts.probe import read_answer
from engine.hosts.status import Armed, Held, HistoryState, MarkerState, OwedNote, RecoverySet
from engine.hosts.status_reader import read_marker, read_status, read_time
from engine.registry.settings import Gateway, Route, Settings

UNIT = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": "7", "NRestarts": "1"}
GATEWAY = Gateway("g.service", "127.0.0.1", 1, "/", "/s", "/d", "/c", "/h", "/l", ("api",))
ROUTES = (Route("page", "http://127.0.0.1/"), Route("dead", "http://127.0.0.1/"))
SETTINGS = Settings(brand="B", gateway=GATEWAY, routes=ROUTES)


def _answer(**changes: Any) -> dict[str, Any]:
    return {
        "marker": {"text": "2026.10.22\n"},
        "applied": {},
        "receipts": {"provisioned": {"text": '{"at": "2026"}'}},
        "owed": {"text": '{"restart": ["step a"], "note": {"version": "2026.1.1", "text": "t", "sending": true}}'},
        "held": {},
        "armed": {},
        "recovery": {},
        "host_lock": {"held": True, "text": "run-1\nsleep 60\n"},
        "boot_id": {"text": "abc\n"},
        "services": {"g.service": UNIT},
        "routes": {"page": 200, "dead": None},
        "files": {"f": {"digest": "sha256:1", "mode": "0644", "owner": "root", "group": "root"}, "no": {}},
        "gateway": {
            "port_open": True,
            "running_version": "0.19.0",
            "runtime_version": "0.19.0",
            "report": {"pid": 7, "channels": {"api": {"state": "connected", "updated_at": 12.5}}},
            "history": {"state": "readable", "newest": 99.5},
            "config": {"models": {"chat": "m"}, "pinned": False},
        },
        "clock": 1000.25,
        **changes,
    }


def test_a_whole_answer_becomes_a_status():
    status = read_status(_answer(), SETTINGS)
    assert status.marker.state is MarkerState.PRESENT and str(status.marker.version) == "2026.10.22"
    assert status.owed.restart == ("step a",)
    assert status.owed.note == OwedNote("2026.1.1", "t", True)
    assert (status.host_lock.held, status.host_lock.run) == (True, "run-1")
    assert status.receipts == {"provisioned": {"at": "2026"}}
    assert status.gateway and status.gateway.service.main_pid == 7 and status.gateway.service.is_active
    assert status.gateway.history is HistoryState.READABLE and status.gateway.newest_message == 99.5
    assert status.gateway.channels["api"].is_connected and status.gateway.report_pid == 7
    assert (status.runtime_version, status.models, status.chat_model_pinned) == ("0.19.0", {"chat": "m"}, False)
    assert status.routes == {"page": 200, "dead": None}
    assert status.rendered["no"].digest is None


def test_a_report_that_the_probe_could_not_read_has_no_channels():
    gateway = {**_answer()["gateway"], "report": None}
    status = read_status(_answer(gateway=gateway), SETTINGS)
    assert status.gateway and (status.gateway.channels, status.gateway.report_pid) == ({}, None)


@pytest.mark.parametrize("text", ["2026.10.22", "\ufeff2026.10.22\r\n", "  \t2026.10.22 \n\n"])
def test_a_marker_may_have_a_byte_order_mark_and_blanks(text: str):
    marker = read_marker({"text": text})
    assert marker.state is MarkerState.PRESENT and marker.version and marker.version.text == "2026.10.22"


@pytest.mark.parametrize("text", ["", "\ufeff\r\n", "v2 2026.10.22", "2026.10.22\n2026.10.23", "\udcff\udcfe", "2026"])
def test_a_marker_that_is_no_version_is_unreadable_not_absent(text: str):
    marker = read_marker({"text": text})
    assert marker.state is MarkerState.UNREADABLE and marker.version is None and marker.problem


def test_only_an_absent_file_is_an_absent_marker():
    assert read_marker({}).state is MarkerState.ABSENT
    assert read_marker({"error": "Permission denied"}).state is MarkerState.UNREADABLE


@pytest.mark.parametrize(
    "changes",
    [
        {"owed": {"text": "{"}},
        {"owed": {"text": "[]"}},
        {"owed": {"error": "Input/output error"}},
        {"owed": {"text": '{"restart": [1]}'}},
        {"owed": {"text": '{"note": {"version": "1"}}'}},
        {"applied": {"text": '{"2026.1.1": 5}'}},
        {"receipts": {"provisioned": {"text": ""}}},
        {"clock": "now"},
        {"clock": True},
        {"clock": float("nan")},
        {"boot_id": {}},
        {"services": {}},
        {"services": {"g.service": {"LoadState": "loaded"}}},
        {"gateway": {}},
        {"files": {"f": {"digest": 1}}},
    ],
)
def test_what_is_malformed_is_no_answer(changes: dict[str, Any]):
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_status(_answer(**changes), SETTINGS)


@pytest.mark.parametrize("status", [1, 137])
def test_a_whole_answer_with_a_failing_end_is_no_answer(status: int):
    with pytest.raises(ProbeFailed, match=f"status {status}"):
        read_answer(Output(status, b"\nBEGIN n\n{}\nEND n\n", b"late failure\n"), "n", SETTINGS, "maple")


@pytest.mark.parametrize("changes", [{"receipts": []}, {"clock": 10**400}, {"files": 3}])
def test_what_no_probe_would_print_is_the_tenants_error(changes: dict[str, Any]):
    body = json.dumps(_answer(**changes)).encode()
    with pytest.raises(ProbeFailed):
        read_answer(Output(0, b"\nBEGIN n\n" + body + b"\nEND n\n", b""), "n", SETTINGS, "maple")


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'"text"', b"3", b"[" * 100_000])
def test_an_answer_without_its_parts_is_no_answer(body: bytes):
    with pytest.raises(ProbeFailed):
        read_answer(Output(0, b"\nBEGIN n\n" + body + b"\nEND n\n", b""), "n", SETTINGS, "maple")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (12, 12.0),
        (12.5, 12.5),
        ("1970-01-01T00:00:10+00:00", 10.0),
        ("1970-01-01T01:00:10.5+01:00", 10.5),
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T00:00:10", None),
        ("yesterday", None),
        (True, None),
        (None, None),
        (float("inf"), None),
    ],
)
def test_times_have_a_zone_or_are_none(value: Any, seconds: float | None):
    assert read_time(value) == seconds


SET = {"run": "r1", "from": None, "to": "2026.10.1", "created": 5.5, "irreversible": ["a"], "state": {}, "undone": None}
HELD = {"head": "2026.10.1", "run": "r1", "at": 7, "reason": "it broke", "by": "dead-man"}


def test_what_a_tenant_says_of_its_recovery():
    texts = {name: {"text": json.dumps(value)} for name, value in (("held", HELD), ("set", SET))}
    armed = {"text": json.dumps({"set": "r1", "run": "r2", "head": "2026.10.1", "seconds": 3})}
    # A set that was removed while it was listed is none.
    recovery = {"r0": {}, "r1": texts["set"]}
    status = read_status(_answer(held=texts["held"], armed=armed, recovery=recovery), SETTINGS)
    assert status.held == Held("2026.10.1", "r1", 7, "it broke", "dead-man")
    assert status.armed == Armed("r1", "r2", "2026.10.1")
    assert status.recovery == (RecoverySet("r1", None, "2026.10.1", 5.5, ("a",), has_state=True),)


def test_a_set_that_files_were_moved_into_says_so():
    recovery = {"r1": {"text": json.dumps({**SET, "moved": True})}}
    assert read_status(_answer(recovery=recovery), SETTINGS).recovery[0].moved


@pytest.mark.parametrize("part", ["held", "armed"])
@pytest.mark.parametrize("text", ["", "[]", '{"head": 1}', '{"run": null}'])
def test_a_garbled_word_of_the_recovery_is_no_answer(part: str, text: str):
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_status(_answer(**{part: {"text": text}}), SETTINGS)
