"""``tenantry tenant add``: a valid record beside an untouched rest, or nothing at all."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from engine.locks import LockDirectory
from engine.provision.registration import REGISTRY
from engine.registry.load import load_fleet, load_tenants
from engine.registry.model import Role
from tests.cli.conftest import Tenantry

FLAGS = (
    *("--owner-name", "Ana Cedar", "--business", "Cedar & Söhne: 'fine' \"wood\" # {{ x }}", "--trade", "carpentry"),
    *("--role", "client", "--forwarding-address", "ana@cedar.example", "--page-host", "cedar.example"),
)
RECORD: dict[str, Any] = {
    "owner_name": "Ana Cedar",
    "business": "no",
    "trade": "carpentry",
    "role": "client",
    "daily_backup": True,
    "text_updates": False,
    "provider": {"name": "hetzner", "server": "cedar-1"},
    "address": "192.0.2.9",
    "forwarding_address": "ana@cedar.example",
    "page_host": "cedar.example",
    "parameters": {"hours": {"monday": [9, 17]}, "no": "0644", "motto": "on"},
    "secrets": {"key": "command:pass show cedar/key"},
}


def registry(tenantry: Tenantry) -> Path:
    return tenantry.root / "inventory/tenants.yaml"


def add(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch, record: Any, *more: str) -> Any:
    text = record if isinstance(record, str) else json.dumps(record)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
    return tenantry("tenant", "add", "cedar", "--stdin", *more)


def test_flags_make_a_record_and_the_rest_stays_byte_for_byte(tenantry: Tenantry) -> None:
    path = registry(tenantry)
    before = "# The fleet, by hand.\n" + path.read_text() + "  # the last word\n"
    path.write_text(before)
    document = tenantry.document(
        "tenant-add", "tenant", "add", "cedar", *FLAGS, "--parameter", "motto=slow = good", "--secret", "key=env:KEY"
    )
    assert document["next"] == "tenantry provision cedar --confirm cedar"
    assert path.read_text().startswith(before)
    cedar = load_fleet(tenantry.root).tenants["cedar"]
    assert cedar.business == "Cedar & Söhne: 'fine' \"wood\" # {{ x }}"
    assert (cedar.role, cedar.ssh_user, cedar.daily_backup, cedar.text_updates) == (Role.CLIENT, "ops", True, False)
    assert dict(cedar.parameters) == {"motto": "slow = good"}
    assert dict(cedar.secrets) == {"key": "env:KEY"}
    assert list(load_fleet(tenantry.root).tenants) == ["maple", "harbor", "cedar"]


def test_a_json_object_makes_the_same_record(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(tenantry, monkeypatch, RECORD).code == 0
    cedar = load_fleet(tenantry.root).tenants["cedar"]
    assert (cedar.business, cedar.address) == ("no", "192.0.2.9")
    assert dict(cedar.provider.options) == {"server": "cedar-1"}
    assert cedar.parameters["hours"]["monday"] == (9, 17)
    assert (cedar.parameters["no"], cedar.parameters["motto"]) == ("0644", "on")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_the_files_own_line_ends_and_indent_go_on(
    tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch, newline: str, end: str
) -> None:
    path = registry(tenantry)
    deeper = path.read_text().rstrip("\n").replace("\n  ", "\n      ")
    path.write_bytes((deeper.replace("\n", newline) + end.replace("\n", newline)).encode())
    assert add(tenantry, monkeypatch, RECORD).code == 0
    content = path.read_bytes().decode()
    assert f"{newline}      cedar:{newline}        owner_name:" in content
    assert content.count("\n") == content.count(newline)
    assert set(load_tenants(path)) == {"maple", "harbor", "cedar"}


def test_an_empty_registry_gets_its_first_record(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry(tenantry).write_text("# none yet\ntenants: {} # none\n")
    assert add(tenantry, monkeypatch, RECORD).code == 0
    assert list(load_tenants(registry(tenantry))) == ["cedar"]
    assert registry(tenantry).read_text().startswith("# none yet\ntenants:\n  cedar:\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"role": "owner"}, "cedar.role"),
        ({"owner_name": "a\nb"}, "cedar.owner_name"),
        ({"owner_name": ""}, "cedar.owner_name"),
        ({"forwarding_address": "nowhere"}, "cedar.forwarding_address"),
        ({"page_host": "a b"}, "cedar.page_host"),
        ({"daily_backup": "yes"}, "cedar.daily_backup"),
        ({"colour": "red"}, "cedar.colour"),
        ({"secrets": {"key": "hunter2"}}, "cedar.secrets.key"),
        ({"parameters": {"a": None}}, "cedar.parameters.a"),
        ({"address": "192.0.2.9:22"}, "cedar.address"),
        ({"provider": {"name": "aws"}}, "cedar.provider"),
    ],
)
def test_a_bad_record_is_refused_and_nothing_is_written(
    tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], words: str
) -> None:
    before = registry(tenantry).read_bytes()
    result = add(tenantry, monkeypatch, {**RECORD, **change})
    assert (result.code, result.out) == (2, "")
    assert words in result.err and "inventory/tenants.yaml" in result.err
    assert "/tmp/tenantry-" not in result.err
    assert registry(tenantry).read_bytes() == before
    assert not tenantry.state_directory.exists()


def test_a_missing_flag_is_named(tenantry: Tenantry) -> None:
    result = tenantry("tenant", "add", "cedar", *FLAGS[2:])
    assert result.code == 2 and "owner_name" in result.err


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"role": "test", "role": "client"}', '{"parameters": {"a": NaN}}', "null", "\ufeff{}"]
)
def test_what_is_no_json_object_is_refused(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    result = add(tenantry, monkeypatch, text)
    assert result.code == 2 and "standard input" in result.err


def test_what_is_not_utf_8_is_refused(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"trade": "\xff"}')))
    assert tenantry("tenant", "add", "cedar", "--stdin").code == 2


def test_a_server_of_another_tenant_is_refused(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(tenantry, monkeypatch, RECORD).code == 0
    text = json.dumps({**RECORD, "page_host": "other.example"})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
    result = tenantry("tenant", "add", "birch", "--stdin")
    assert result.code == 2 and "is the server of 'cedar' already" in result.err


def test_a_tenant_that_is_there_and_a_bad_slug_are_refused(tenantry: Tenantry) -> None:
    assert "there is a tenant maple already" in tenantry("tenant", "add", "maple", *FLAGS).err
    for slug in ("Maple", "a", "../x", "a b", "x-", "no"):
        result = tenantry("tenant", "add", slug, *FLAGS)
        assert result.code == (0 if slug == "no" else 2), slug
    assert set(load_fleet(tenantry.root).tenants) == {"maple", "harbor", "no"}


def test_records_in_flow_style_are_left_to_a_person(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry(tenantry).write_text(f"tenants: {json.dumps({'birch': {**RECORD, 'address': '192.0.2.1'}})}\n")
    result = add(tenantry, monkeypatch, RECORD)
    assert result.code == 1 and "block style" in result.err


def test_flags_beside_stdin_are_a_usage_error(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(tenantry, monkeypatch, RECORD, "--trade", "x").code == 2
    assert tenantry("tenant", "add", "cedar", *FLAGS, "--secret", "key").code == 2


def test_a_second_add_at_the_same_time_is_busy(tenantry: Tenantry) -> None:
    locks = LockDirectory(tenantry.state_directory / "locks", SystemClock())
    with locks.hold(REGISTRY, job="tenant add", run="r"):
        assert tenantry("tenant", "add", "cedar", *FLAGS).code == 75
    assert "cedar" not in registry(tenantry).read_text()


def test_the_file_keeps_its_mode(tenantry: Tenantry) -> None:
    os.chmod(registry(tenantry), 0o640)
    assert tenantry("tenant", "add", "cedar", *FLAGS).code == 0
    assert registry(tenantry).stat().st_mode & 0o777 == 0o640
