"""What the lab writes down comes back as it was, and cloud-init can read it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.provision.providers.lab.processes import Process, identify
from engine.provision.providers.lab.seed import default_user_data, meta_data
from engine.provision.providers.lab.state import HostRecord, LabState, Phase, ServiceRecord

RECORD = HostRecord("maple", 2, "10.77.1.2", 22, "ops", None, Phase.PREPARING)


def test_host_records_come_back(tmp_path: Path) -> None:
    state = LabState(tmp_path)
    started = RECORD.with_process(Process(7, 99))
    state.write_host(started)
    state.write_host(HostRecord("ash", 3, "10.77.1.3", 22, "ops", "ssh-ed25519 AAAA", Phase.PREPARED))
    assert [record.slug for record in state.read_hosts()] == ["ash", "maple"]
    assert state.read_host("maple") == started
    state.forget_host("maple")
    assert state.read_host("maple") is None


def test_a_host_record_from_before_labels_is_a_tenants(tmp_path: Path) -> None:
    state = LabState(tmp_path)
    state.write_host(RECORD)
    content = json.loads(state.host_file("maple").read_text())
    del content["label"]
    state.host_file("maple").write_text(json.dumps(content))
    assert state.read_host("maple") == RECORD
    assert RECORD.label is None


def test_service_records_come_back(tmp_path: Path) -> None:
    state = LabState(tmp_path)
    assert state.read_stub() is None
    record = ServiceRecord(7, 99, "10.77.1.1", 8099, ("python3", "stub.py"))
    state.write_stub(record)
    assert state.read_stub() == record


def test_an_unfinished_disk_stays_unfinished_when_the_host_stops() -> None:
    assert RECORD.stopped().phase is Phase.PREPARING
    assert RECORD.with_process(Process(7, 99)).stopped().phase is Phase.PREPARED


def test_a_process_is_known_by_its_start_too() -> None:
    own = identify(os.getpid())
    assert own is not None and own.alive
    assert not Process(own.pid, own.started + 1).alive
    assert identify(0) is None


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))))
def test_user_data_holds_any_key_as_it_is(key: str) -> None:
    text = default_user_data("ops", key)
    assert text.startswith("#cloud-config\n")
    (account,) = yaml.safe_load(text)["users"]
    assert account["ssh_authorized_keys"] == [key]


def test_meta_data_names_the_instance() -> None:
    assert json.loads(meta_data("maple", "maple-1")) == {
        "instance-id": "maple-1",
        "local-hostname": "maple",
    }
