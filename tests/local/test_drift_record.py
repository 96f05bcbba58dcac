"""Since when: the operator's record of drift."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.drift.compare import Difference, State
from engine.drift.expected import NOBODY
from engine.drift.record import dated, first_seen, forget, last_check, record_file, remember
from engine.drift.report import Drift
from engine.errors import RecordFailed
from engine.subject import Subject


def difference(key: str, state: State = State.DIFFERS) -> Difference:
    return Difference(key, state, "a", "b", NOBODY)


def checked(path: Path, at: str, *keys: str) -> Drift:
    drift = Drift("maple", None, 3, dated([difference(key) for key in keys], first_seen(path), at), at)
    remember(drift, path)
    return drift


def test_a_difference_keeps_its_first_time_until_it_is_gone(tmp_path: Path):
    path = record_file(tmp_path, Subject("tenant", "maple"))
    checked(path, "2026-11-01T00:00:00Z", "file:/a")
    second = checked(path, "2026-11-02T00:00:00Z", "file:/a", "file:/b")
    assert [item.since for item in second.sightings] == ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"]
    checked(path, "2026-11-03T00:00:00Z", "file:/b")
    again = checked(path, "2026-11-04T00:00:00Z", "file:/a", "file:/b")
    assert [item.since for item in again.sightings] == ["2026-11-04T00:00:00Z", "2026-11-02T00:00:00Z"]


def test_what_was_put_right_is_taken_out_and_the_rest_keeps_its_time(tmp_path: Path):
    path = record_file(tmp_path, Subject("tenant", "maple"))
    forget(path, {"file:/a"})
    assert not path.exists()
    checked(path, "2026-11-01T00:00:00Z", "file:/a", "file:/b")
    forget(path, {"file:/a", "file:/c"})
    assert first_seen(path) == {"file:/b": "2026-11-01T00:00:00Z"}
    assert json.loads(path.read_text())["clean"] is False
    forget(path, {"file:/b"})
    assert json.loads(path.read_text())["clean"] is True
    assert last_check(path) == ("2026-11-01T00:00:00Z", 0)
    again = checked(path, "2026-11-03T00:00:00Z", "file:/a")
    assert [item.since for item in again.sightings] == ["2026-11-03T00:00:00Z"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"differences": [{"key": "a"}]}', b"\xff"])
def test_a_garbled_record_costs_the_earlier_times_only(tmp_path: Path, content: bytes):
    (tmp_path / "drift.json").write_bytes(content)
    assert first_seen(tmp_path / "drift.json") == {}
    forget(tmp_path / "drift.json", {"a"})
    assert (tmp_path / "drift.json").read_bytes() == content


def test_a_record_is_private_and_whole(tmp_path: Path):
    path = record_file(tmp_path, Subject("tenant", "maple"))
    drift = checked(path, "2026-11-01T00:00:00Z", "file:/a\udcff")
    assert json.loads(path.read_text())["slug"] == drift.slug
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["drift.json"]


def test_a_record_that_cannot_be_written_is_an_error_with_a_place(tmp_path: Path):
    (tmp_path / "records").write_text("in the way")
    with pytest.raises(RecordFailed, match="cannot record drift"):
        checked(record_file(tmp_path, Subject("tenant", "maple")), "2026-11-01T00:00:00Z", "file:/a")
