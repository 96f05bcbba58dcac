"""The probe's script against files, a database and a port of this machine."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from engine.hosts import probe_gateway_script, probe_script
from engine.hosts.probe import Extra, make_script
from engine.registry.settings import Gateway, Route, Settings
from tests.unit.fleets import make_rendered, make_tenant

MESSAGES = "CREATE TABLE messages (session_id, role, content, timestamp REAL)"


def _database(path: Path, *timestamps: object, wal: bool = True) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path)
    if wal:
        database.execute("PRAGMA journal_mode=WAL")
    database.execute(MESSAGES)
    database.executemany("INSERT INTO messages VALUES (1, 'user', 'x', ?)", [(value,) for value in timestamps])
    database.commit()
    return database


@pytest.mark.parametrize("directory", ["plain", "a#b", "a?mode=rwc&b", "a%41 b", "ü"])
def test_the_newest_message_is_read_while_the_database_is_live(tmp_path: Path, directory: str):
    path = tmp_path / directory / "state.db"
    writer = _database(path, 10.5, 30.25, 20)
    before = sorted(os.listdir(tmp_path)), sorted(os.listdir(path.parent))
    assert probe_gateway_script.history(str(path)) == {"state": "readable", "newest": 30.25}
    assert (sorted(os.listdir(tmp_path)), sorted(os.listdir(path.parent))) == before
    writer.close()


def test_a_database_at_rest_gets_no_files_beside_it(tmp_path: Path):
    path = tmp_path / "state.db"
    _database(path, 5).close()
    assert os.listdir(tmp_path) == ["state.db"]
    assert probe_gateway_script.history(str(path)) == {"state": "readable", "newest": 5}
    assert os.listdir(tmp_path) == ["state.db"]


def test_an_uncommitted_message_does_not_block_the_reader(tmp_path: Path):
    writer = _database(tmp_path / "state.db", 1)
    writer.execute("INSERT INTO messages VALUES (1, 'user', 'x', 99)")
    assert probe_gateway_script.history(str(tmp_path / "state.db")) == {"state": "readable", "newest": 1}


def test_a_missing_database_is_missing_and_stays_so(tmp_path: Path):
    assert probe_gateway_script.history(str(tmp_path / "state.db")) == {"state": "missing"}
    assert os.listdir(tmp_path) == []


def test_an_empty_table_is_empty(tmp_path: Path):
    _database(tmp_path / "state.db").close()
    assert probe_gateway_script.history(str(tmp_path / "state.db")) == {"state": "empty"}


@pytest.mark.parametrize("content", [b"", b"garbage" * 100])
def test_what_is_no_such_database_is_unreadable(tmp_path: Path, content: bytes):
    (tmp_path / "state.db").write_bytes(content)
    assert probe_gateway_script.history(str(tmp_path / "state.db"))["state"] == "unreadable"


def test_a_timestamp_that_is_no_number_is_unreadable(tmp_path: Path):
    _database(tmp_path / "state.db", "2026-10-22T00:00:00").close()
    assert probe_gateway_script.history(str(tmp_path / "state.db"))["state"] == "unreadable"


def test_file_facts(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    path.chmod(0o640)
    assert probe_script.file_facts(str(path)) == {
        "digest": "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "mode": "0640",
        "owner": "root",
        "group": "root",
    }
    assert probe_script.file_facts(str(tmp_path / "absent")) == {}
    assert probe_script.file_facts(str(tmp_path))["digest"].startswith("unreadable")


def test_a_pipe_in_a_files_place_does_not_hang_the_probe(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert probe_script.file_facts(str(tmp_path / "pipe"))["digest"] == "unreadable: not a regular file"


@pytest.mark.parametrize("target", ["f", "absent", "link"])
def test_a_link_in_a_files_place_is_told_and_not_read_through(tmp_path: Path, target: str):
    (tmp_path / "f").write_text("secret")
    (tmp_path / "link").symlink_to(target)
    assert probe_script.file_facts(str(tmp_path / "link")) == {"digest": "link", "mode": "", "owner": "", "group": ""}


def test_the_report_keeps_states_and_times_and_drops_the_rest(tmp_path: Path):
    path = tmp_path / "state.json"
    platform = {"state": "connected", "updated_at": "2026-11-29T13:27:10+00:00", "error_message": "token abc"}
    path.write_text(json.dumps({"pid": 7, "argv": ["--key", "abc"], "platforms": {"api": platform}}))
    assert probe_gateway_script.report(str(path)) == {
        "pid": 7,
        "channels": {"api": {"state": "connected", "updated_at": "2026-11-29T13:27:10+00:00"}},
    }


@pytest.mark.parametrize("text", ["", "{", "[]", '{"platforms": [1]}', '{"platforms": {"api": 3}}'])
def test_a_report_that_cannot_be_read_is_none(tmp_path: Path, text: str):
    (tmp_path / "state.json").write_text(text)
    assert probe_gateway_script.report(str(tmp_path / "state.json")) is None


NOTHING = {"models": {}, "pinned": None}


@pytest.mark.parametrize("kind", ["pipe", "link", "large"])
def test_only_small_regular_files_are_read(tmp_path: Path, kind: str):
    """Who owns the directory could hang the probe with a pipe, fill it, or lead it to another file."""
    for name, text in (("report", '{"pid": 7}'), ("config", "{model: {default: m}}"), (".tenantry-complete", "1.0")):
        path = tmp_path / name
        if kind == "pipe":
            os.mkfifo(path)
            continue
        path.write_text(text + (" " * (1 << 20) if kind == "large" else ""))
        if kind == "link":
            path.symlink_to(path.rename(tmp_path / f"real-{name}"))
    assert probe_gateway_script.report(str(tmp_path / "report")) is None
    assert probe_gateway_script.config(str(tmp_path / "config")) == NOTHING
    assert probe_gateway_script.stamp(str(tmp_path)) is None


def test_a_report_without_an_end_of_brackets_is_none(tmp_path: Path):
    (tmp_path / "state.json").write_text("[" * 100_000)
    assert probe_gateway_script.report(str(tmp_path / "state.json")) is None


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_database_file_is_not_opened(tmp_path: Path, kind: str):
    _database(tmp_path / "real.db", 5, wal=False).close()
    path = tmp_path / "state.db"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("real.db")
    assert probe_gateway_script.history(str(path)) == {"state": "unreadable", "problem": "not a regular file"}


def test_a_question_without_an_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probe_gateway_script, "QUERY_SECONDS", 0.0)
    database = sqlite3.connect(tmp_path / "state.db")
    endless = "WITH RECURSIVE n(timestamp) AS (SELECT 1 UNION ALL SELECT timestamp + 1 FROM n) SELECT * FROM n"
    database.execute(f"CREATE VIEW messages AS {endless}")
    database.close()
    found = probe_gateway_script.history(str(tmp_path / "state.db"))
    assert found == {"state": "unreadable", "problem": "interrupted"}


def test_json_is_the_same_as_the_modules():
    value = {"a": [1, 2.5, None, True, False, 0, 1, 'ü\n"\\\ud800'], "b": {}, "c": [], "d": "", "é": -1}
    decoded = json.loads(probe_script.encode(value))
    assert decoded == value
    # 0 == False: a route's status 0 must not arrive as a truth value.
    assert [type(item) for item in decoded["a"]] == [type(item) for item in value["a"]]


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def _route(port: int, path: str, host: str = "maple.example") -> dict[str, object]:
    return {"address": "127.0.0.1", "port": port, "tls": False, "path": path, "host": host}


def test_a_route_answers_with_its_status_under_its_public_name(port: int):
    assert probe_gateway_script.get(_route(port, "/page?x=1")) == (200, b"maple.example /page?x=1")
    assert probe_gateway_script.get(_route(port, "/missing"))[0] == 404


def test_a_closed_port_is_no_answer(port: int):
    assert probe_gateway_script.get(_route(1, "/")) == (None, None)


def _run_alone(settings: Settings, directory: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-ISs", "-"],
        input=make_script("n1", settings, make_tenant(), Extra()),
        capture_output=True,
        text=True,
        check=True,
        cwd=directory,
    )
    body = done.stdout.split("BEGIN n1\n")[1].split("END n1\n")[0]
    answer: dict[str, Any] = json.loads(body)
    return answer


def test_the_script_stands_alone_on_plain_python(tmp_path: Path):
    """Its whole text on standard input, without packages: one framed object, nothing else needed."""
    file = make_rendered("f", path=str(tmp_path / "absent"))
    answer = _run_alone(Settings(brand="B", rendered=(file,)), tmp_path)
    assert answer["files"] == {"f": {}} and "gateway" not in answer
    assert os.listdir(tmp_path) == []


def test_with_a_gateway_it_stands_alone_too(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch):
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text("#!/bin/sh\necho LoadState=loaded\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{systemctl.parent}:{os.environ['PATH']}")
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / ".tenantry-complete").write_text("0.19.0\n")
    home = str(tmp_path)
    gateway = Gateway(
        "g.service", "127.0.0.1", port, "/health", f"{home}/s", f"{home}/d", f"{home}/c", home, f"{home}/current", ()
    )
    routes = (Route("page", f"http://127.0.0.1:{port}/missing"), Route("closed", "http://127.0.0.1:1/"))
    answer = _run_alone(Settings(brand="B", gateway=gateway, routes=routes), tmp_path)
    assert answer["routes"] == {"page": 404, "closed": None}
    assert answer["services"] == {"g.service": {"LoadState": "loaded"}}
    assert answer["gateway"] == {
        "port_open": True,
        "running_version": None,
        "runtime_version": "0.19.0",
        "report": None,
        "history": {"state": "missing"},
        "config": {"models": {}, "pinned": None},
    }


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.headers['Host']} {self.path}".encode()
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""
