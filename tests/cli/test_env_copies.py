"""``tenantry env duplicate`` and ``restore``: a new entry beside an untouched rest; and the documents of copies."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from engine.cli.env_copies import copies_document
from engine.registry.environments import ENVIRONMENTS_FILE, load_environments
from engine.registry.environments_model import Environment, RestoreFrom
from tests.cli.conftest import Tenantry, valid
from tests.unit.environments.test_copies import COPY
from tests.unit.hosted import MEMBER, OWN, TIER

NEW = "3e0b7a36-6f0a-4b62-9e6c-0f2a4d0b8c11"


def entries(root: Path) -> dict[str, Environment]:
    return dict(load_environments(root).environments)


def duplicate(tenantry: Tenantry, *arguments: str) -> Any:
    return tenantry.document("env-new", "env", "duplicate", *arguments, "--no-converge")


def test_a_duplicate_has_its_sources_settings_and_another_uuid(hosted: Tenantry) -> None:
    path = hosted.root / ENVIRONMENTS_FILE
    path.write_text(f"# By hand.\n{path.read_text()}")
    before, lines = entries(hosted.root), path.read_text().splitlines()
    document = duplicate(hosted, OWN)
    after = entries(hosted.root)
    new = after.pop(document["uuid"])
    assert (after, document["source"], document["copy"], document["subjects"]) == (before, OWN, None, [])
    assert new == dataclasses.replace(before[OWN], uuid=document["uuid"], hostname=None)
    assert [line for line in path.read_text().splitlines() if line in lines] == lines
    assert duplicate(hosted, OWN)["uuid"] != document["uuid"]


def test_a_duplicate_of_a_member_is_a_member(hosted: Tenantry) -> None:
    made = duplicate(hosted, MEMBER)["uuid"]
    assert entries(hosted.root)[made].tier == "common"


def test_the_same_command_may_be_given_again_under_one_uuid(hosted: Tenantry) -> None:
    path = hosted.root / ENVIRONMENTS_FILE
    duplicate(hosted, OWN, "--uuid", NEW)
    text = path.read_text()
    assert duplicate(hosted, OWN, "--uuid", NEW)["uuid"] == NEW
    result = hosted("env", "duplicate", MEMBER, "--uuid", NEW, "--no-converge")
    assert (result.code, NEW in result.err, path.read_text()) == (1, True, text)


def test_a_duplicate_of_what_was_restored_begins_empty(hosted: Tenantry) -> None:
    path = hosted.root / ENVIRONMENTS_FILE
    origin = f"restore: {{environment: {NEW}, backup: {COPY.id}}}\n    retired: true"
    path.write_text(path.read_text().replace("hostname: shop.example.com", origin))
    assert entries(hosted.root)[OWN].restore == RestoreFrom(NEW, COPY.id)
    made = duplicate(hosted, OWN)["uuid"]
    new = entries(hosted.root)[made]
    assert (new.restore, new.retired) == (None, False)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("duplicate", TIER), "tier"),
        (("duplicate", NEW), NEW),
        (("duplicate", OWN, "--uuid", "../x"), "uuid"),
        (("restore", OWN), "--backup"),
        (("restore", TIER, "--backup", COPY.id), "tier"),
        (("backup",), "--all"),
        (("backup", OWN, "--all"), "--all"),
        (("backup", NEW), NEW),
        (("expire-backups", NEW), NEW),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    hosted: Tenantry, arguments: tuple[str, ...], word: str
) -> None:
    before = (hosted.root / ENVIRONMENTS_FILE).read_bytes()
    result = hosted("env", *arguments)
    assert (result.code, word in result.err) == (2, True), result
    assert (hosted.root / ENVIRONMENTS_FILE).read_bytes() == before


def test_no_entry_is_written_for_a_copy_that_cannot_be_looked_for(hosted: Tenantry) -> None:
    before = (hosted.root / ENVIRONMENTS_FILE).read_bytes()
    result = hosted("env", "restore", OWN, "--backup", COPY.id)
    assert (result.code, "lab parents up" in result.err) == (1, True)
    assert (hosted.root / ENVIRONMENTS_FILE).read_bytes() == before


def test_the_documents_of_copies(hosted: Tenantry) -> None:
    assert hosted.document("env-run", "env", "backup", "--all") == {"subjects": []}
    document = valid("env-backups", {"copies": copies_document([COPY])})
    assert (document["copies"][0]["copy"], document["copies"][0]["rows"]) == (COPY.id, 2)
