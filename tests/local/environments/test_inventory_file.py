"""Entries that commands write into the inventory, which a person goes on to edit."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.environments.inventory_file import add_environment, mark_retired
from engine.errors import InvalidInput, Refused
from engine.registry.environments import ENVIRONMENTS_FILE, load_environments
from tests.unit.hosted import ENVIRONMENTS, MEMBER, OWN, TIER, write_environments

NEW = "3e0b7a36-6f0a-4b62-9e6c-0f2a4d0b8c11"
RECORD = {"project": "shop", "tenant": "maple", "stage": "trial", "lifetime": "disposable", "release": "first"}


def text_of(root: Path) -> str:
    return (root / ENVIRONMENTS_FILE).read_text()


def add(root: Path, uuid: str = NEW, **more: object) -> None:
    add_environment(root, root / "var", SystemClock(), uuid, {**RECORD, **more})


def retire(root: Path, uuid: str) -> bool:
    return mark_retired(root, root / "var", SystemClock(), uuid)


def test_an_entry_is_added_and_every_other_line_stays(tmp_path: Path) -> None:
    root = write_environments(tmp_path, f"# Ours.\n{ENVIRONMENTS}# The end.\n")
    before = text_of(root).splitlines()
    add(root)
    assert [line for line in text_of(root).splitlines() if line in before] == before
    added = load_environments(root).environments[NEW]
    assert (added.stage, added.release, added.retired) == ("trial", "first", False)


@pytest.mark.parametrize("ending", ["", "environments: {}\n", "environments:\n  {}\n"])
def test_the_first_entry_of_all(tmp_path: Path, ending: str) -> None:
    start = ENVIRONMENTS.partition("environments:")[0]
    root = write_environments(tmp_path, start + ending)
    add(root)
    assert list(load_environments(root).environments) == [NEW]


def test_a_wrong_entry_leaves_the_file(tmp_path: Path) -> None:
    root = write_environments(tmp_path)
    with pytest.raises(InvalidInput, match="no project none"):
        add(root, project="none")
    with pytest.raises(Refused, match="already"):
        add(root, OWN)
    assert text_of(root) == ENVIRONMENTS


def test_an_entry_is_marked_as_retired_once(tmp_path: Path) -> None:
    root = write_environments(tmp_path)
    assert retire(root, MEMBER) and not retire(root, MEMBER)
    assert retire(root, TIER) and not retire(root, NEW)
    inventory = load_environments(root)
    assert inventory.environments[MEMBER].retired and inventory.tiers["common"].retired
    assert not inventory.environments[OWN].retired
    assert text_of(root).count("retired: true") == 2 and TIER in text_of(root)


def test_a_tier_with_members_is_not_marked(tmp_path: Path) -> None:
    root = write_environments(tmp_path)
    with pytest.raises(InvalidInput, match="this one has 1"):
        retire(root, TIER)
    assert text_of(root) == ENVIRONMENTS
