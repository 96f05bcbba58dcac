"""Drift's part of the probe against files and programs of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.drift.found import Kind, read_found
from engine.drift.question import PART, question
from engine.hosts import probe_script
from engine.hosts.probe import SCRIPT, make_script
from engine.hosts.scripts import read_frame
from engine.registry.settings import Settings
from engine.releases.digests import digest_of
from engine.steps.expectations import Absent, Directory, EditableFile, Expectation, File, Group, Package, Value
from tests.unit.fleets import make_tenant

LOOK = (Path(probe_script.__file__).parents[1] / "drift/look_script.py").read_text()


@pytest.fixture
def script() -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "probe"}
    exec(compile(SCRIPT + LOOK, "probe", "exec"), space)
    return space


def asked(*expected: Expectation) -> Any:
    """The whole way: question, script in a bare Python, answer."""
    text = make_script("n", Settings(brand="B"), make_tenant(), question(Settings(brand="B"), expected))
    done = subprocess.run([sys.executable, "-ISs", "-"], input=text.encode(), capture_output=True, check=True)
    return read_found(read_frame(done.stdout, "n")[PART], "maple")


def test_the_kinds_of_places(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    names = ("file", "link", "pipe", "nothing", "file/below")
    found = asked(*(File(f"{tmp_path}/{name}") for name in names), Directory(str(tmp_path)))
    places = {path.removeprefix(str(tmp_path)): place for path, place in found.places.items()}
    assert [places[f"/{name}"].kind for name in names] == [
        Kind.FILE,
        Kind.LINK,
        Kind.OTHER,
        Kind.ABSENT,
        Kind.ABSENT,
    ]
    assert places[""].kind is Kind.DIRECTORY
    assert (places["/file"].digest, places["/file"].mode) == (digest_of(b"abc"), "0640")
    assert places["/link"].target == "file"


def test_fragments_of_every_version_are_looked_for(tmp_path: Path):
    (tmp_path / "page").write_text("<h1>Ünder construction</h1>")
    path = f"{tmp_path}/page"
    found = asked(EditableFile(path, ("Ünder",)), EditableFile(path, ("contact",)), Absent(f"{tmp_path}/x"))
    assert found.places[path].missing == ("contact",)


def test_values_of_yaml_and_json_files(tmp_path: Path):
    (tmp_path / "c.yaml").write_text("routing:\n  only: [a, b]\n  nothing: null\nport: 8642\n")
    (tmp_path / "c.json").write_text('{"a": {"b": true}}')
    (tmp_path / "bad").write_text("{[")
    names = ("routing.only", "routing.nothing", "routing.only.x", "port", "other")
    found = asked(
        *(Value(f"{tmp_path}/c.yaml", name, 0) for name in names),
        Value(f"{tmp_path}/c.json", "a.b", 0),
        Value(f"{tmp_path}/bad", "a", 0),
        Value(f"{tmp_path}/none", "a", 0),
        Value(str(tmp_path), "a", 0),
    )
    assert {name: json.loads(text) for name, text in found.values[f"{tmp_path}/c.yaml"].values.items()} == {
        "routing.only": ["a", "b"],
        "routing.nothing": None,
        "port": 8642,
    }
    assert found.values[f"{tmp_path}/c.json"].values == {"a.b": "true"}
    assert found.values[f"{tmp_path}/bad"].values == found.values[f"{tmp_path}/none"].values == {}
    assert found.values[str(tmp_path)].problem == "Is a directory"


def test_groups_and_packages():
    found = asked(Group("root"), Group("no-such-group"), Package("dpkg"), Package("no-such-package"))
    assert found.groups == {"root": (), "no-such-group": None}
    assert found.packages is not None
    assert found.packages["dpkg"].state == "installed" and "no-such-package" not in found.packages


def test_a_program_that_fails_or_is_not_there_says_nothing(script: dict[str, Any]):
    assert script["said"](["false"]) is None
    assert script["said"](["/no/such/program"]) is None
    assert script["said"](["printf", "x\\n"]) == "x\n"
    assert len(script["said"](["head", "-c", "300000", "/dev/zero"])) == 300_000


def test_the_newest_change_of_a_package_counts(script: dict[str, Any], tmp_path: Path):
    log = tmp_path / "dpkg.log"
    log.write_text(
        "2026-11-01 10:00:00 upgrade curl:amd64 8.0-1 7.0-1\n"
        "2026-11-01 10:00:01 status installed curl:amd64 7.0-1\n"
        "2026-11-02 10:00:00 upgrade caddy:amd64 2.6 2.4\n"
        "2026-11-03 10:00:00 upgrade caddy:amd64 2.4 2.10\n"
        "2026-11-03 11:00:00 upgrade zstd:amd64 1.5 1.4\n"
        "2026-11-03 12:00:00 install zstd:amd64 <none> 1.4\n"
        "2026-11-03 13:00:00 upgrade jq:amd64 1.7 1.6\n"
        "2026-11-03 13:00:01 remove jq:amd64 1.6 <none>\n"
        "2026-11-03 14:00:00 upgrade yq:amd64 4.1 4.0\n"
        "2026-11-03 14:00:01 purge yq:amd64 4.0 <none>\n"
        "2026-11-04 10:00:00 upgrade torn"
    )
    script["open"] = lambda path, **options: (tmp_path / Path(path).name).open(**options)
    assert script["downgraded"]() == {"curl": {"from": "8.0-1", "to": "7.0-1", "at": "2026-11-01 10:00:00"}}


def test_drop_ins_of_the_name_its_beginnings_and_the_type(script: dict[str, Any], tmp_path: Path):
    script["DROP_INS"] = (str(tmp_path),)
    for name in ("tenant-forms.service.d/a.conf", "tenant-.service.d/b.conf", "service.d/c.conf", "tenant-.d/no.conf"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    (tmp_path / "tenant-forms.service.d/README").write_text("")
    assert [path.removeprefix(f"{tmp_path}/") for path in script["drop_ins"]("tenant-forms.service")] == [
        "tenant-forms.service.d/a.conf",
        "tenant-.service.d/b.conf",
        "service.d/c.conf",
    ]


def test_the_answer_of_systemd_must_be_whole(script: dict[str, Any]):
    block = "Id=a.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nMainPID=1\n"
    script["said"] = lambda command: f"{block}\n{block}"
    assert script["units"](["a.service", "b.service"])["b.service"]["UnitFileState"] == "enabled"
    assert script["units"](["a.service"]) is None
    script["said"] = lambda command: None
    assert script["units"](["a.service"]) is None
    assert script["units"]([]) == {}
    assert script["failed"]() is None


def test_a_process_is_as_old_as_the_kernel_says(script: dict[str, Any], tmp_path: Path):
    import time

    script["said"] = lambda command: f"{child.pid}\n"
    with subprocess.Popen(["sleep", "60"]) as child:
        (tmp_path / "newer").symlink_to("x")
        found = script["process"]({"unit": "a.service", "paths": [f"{tmp_path}/newer", f"{tmp_path}/none"]})
        child.kill()
    assert abs(found["started"] - time.time()) < 30
    assert list(found["changed"]) == [f"{tmp_path}/newer"]
    assert found["changed"][f"{tmp_path}/newer"] >= found["started"] - 0.05
    script["said"] = lambda command: "0\n"
    assert script["process"]({"unit": "a.service", "paths": []}) == {"started": None, "changed": {}}
