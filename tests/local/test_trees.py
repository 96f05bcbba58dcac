"""Copying, moving and replacing trees: nothing is lost at a crash, and nobody else's link leads root astray."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from engine.recovery.assembly import assembled
from tests.local.crashes import dies_at


@pytest.fixture
def modules() -> tuple[Any, Any]:
    """The modules `trees` and `moves`, as a script on a host finds them."""
    space: dict[str, Any] = {}
    exec(compile(assembled(""), "assembled", "exec"), space)
    return space["trees"], space["moves"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree with what an account's directory may hold."""
    tree = tmp_path / "source"
    (tree / "deep/er").mkdir(parents=True)
    (tree / "deep/er/file").write_bytes(os.urandom(300_000))
    (tree / "empty").touch()
    (tree / "sparse").write_bytes(b"")
    os.truncate(tree / "sparse", 50_000_000)
    (tree / "link").symlink_to("/etc/shadow")
    (tree / "cache").mkdir()
    (tree / "cache/blob").write_text("again and again")
    os.mkfifo(tree / "pipe")
    os.chmod(tree / "deep", 0o751)
    os.chmod(tree / "deep/er/file", 0o4711)
    os.utime(tree / "deep", ns=(1, 10**18))
    (tree / os.fsdecode(b"\xff.txt")).write_text("no text")
    return tree


def test_a_copy_has_contents_modes_times_and_links_and_names_what_it_left_out(
    modules: tuple[Any, Any], source: Path, tmp_path: Path
):
    trees, _ = modules
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "socket"))
    entries, skipped = trees.copy_tree(str(source), str(tmp_path / "copy"), ["cache"])
    assert sorted(skipped) == ["pipe", "socket"]
    assert trees.describe(str(tmp_path / "copy")) == entries
    expected = [entry for entry in trees.describe(str(source), ["cache"]) if entry["kind"] != "special"]
    assert entries == expected
    assert os.readlink(tmp_path / "copy/link") == "/etc/shadow"
    assert (tmp_path / "copy/sparse").stat().st_blocks == 0
    assert "cache" not in os.listdir(tmp_path / "copy")


def test_a_copy_of_what_is_absent_is_nothing(modules: tuple[Any, Any], tmp_path: Path):
    assert modules[0].copy_tree(str(tmp_path / "none/at/all"), str(tmp_path / "copy")) == ([], [])
    assert not (tmp_path / "copy").exists()


def test_nested_directories_without_end_do_not_stop_a_copy(modules: tuple[Any, Any], tmp_path: Path):
    (tmp_path / "source").mkdir()
    place = os.open(tmp_path / "source", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=place)
        place, before = os.open("d", os.O_RDONLY, dir_fd=place), place
        os.close(before)
    os.close(place)
    entries, skipped = modules[0].copy_tree(str(tmp_path / "source"), str(tmp_path / "copy"))
    assert len(entries) == 100 and len(skipped) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's own links are followed")
def test_a_link_of_another_account_on_the_way_is_not_followed(modules: tuple[Any, Any], tmp_path: Path):
    trees, _ = modules
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("secret")
    (tmp_path / "way").symlink_to(tmp_path / "real")
    os.lchown(tmp_path / "way", 65534, 65534)
    with pytest.raises(OSError, match="not root's alone"):
        trees.describe(str(tmp_path / "way/file"))


def test_patterns_match_part_by_part(modules: tuple[Any, Any]):
    is_excluded = modules[0].is_excluded
    assert is_excluded("logs/a.log", ["logs/*.log"]) and is_excluded("cache", ["cache/"])
    assert not is_excluded("logs/deep/a.log", ["logs/*.log"])
    assert not is_excluded("other/cache", ["cache"])


def test_a_glob_in_the_last_part_is_expanded(modules: tuple[Any, Any], tmp_path: Path):
    for name in ("tenant-b", "tenant-a", "other"):
        (tmp_path / name).touch()
    expand = modules[0].expand
    assert expand(f"{tmp_path}/tenant-*") == [f"{tmp_path}/tenant-a", f"{tmp_path}/tenant-b"]
    assert expand(f"{tmp_path}/none/tenant-*") == []
    assert expand(f"{tmp_path}/absent") == [f"{tmp_path}/absent"]


def trees_to_swap(base: Path) -> dict[str, Any]:
    """A live tree with old children, a new one beside it, and the arguments of their exchange."""
    live, new = base / "live", base / "new"
    for tree, words in ((live, "old"), (new, "new")):
        (tree / "sub").mkdir(parents=True)
        (tree / "sub/file").write_text(words)
        (tree / "both").write_text(words)
        (tree / f"only-{words}").write_text(words)
    (live / "cache").mkdir()
    os.chmod(live, 0o755)
    os.chmod(new, 0o750)
    aside = base / "aside"
    return {
        "live": str(live), "new": str(new), "aside": str(aside / "home"), "journal": str(aside / "home.json"),
        "keep": ["cache"],
    }  # fmt: skip


def assert_swapped(base: Path) -> None:
    """Nothing but the new children is live, and all old ones are aside."""
    live, aside = base / "live", base / "aside/home"
    assert sorted(os.listdir(live)) == ["both", "cache", "only-new", "sub"]
    assert (live / "both").read_text() == (live / "sub/file").read_text() == "new"
    assert sorted(os.listdir(aside)) == ["both", "only-old", "sub"]
    assert (aside / "both").read_text() == (aside / "sub/file").read_text() == "old"
    assert live.stat().st_mode & 0o777 == 0o750


def test_children_are_replaced_and_the_old_ones_kept(modules: tuple[Any, Any], tmp_path: Path):
    arguments = trees_to_swap(tmp_path)
    (tmp_path / "aside").mkdir()
    modules[1].replace_children(**arguments)
    assert_swapped(tmp_path)
    modules[1].replace_children(**arguments)
    assert_swapped(tmp_path)


def test_replacing_children_goes_on_after_a_death_at_every_change(modules: tuple[Any, Any], tmp_path: Path):
    for change in range(1, 200):
        base = tmp_path / str(change)
        arguments = trees_to_swap(base)
        (base / "aside").mkdir()
        died = dies_at(change, lambda given=arguments: modules[1].replace_children(**given))  # type: ignore[misc]
        modules[1].replace_children(**arguments)
        assert_swapped(base)
        if not died:
            assert change > 15
            return
    pytest.fail("it never came to its end")


def test_what_has_the_name_of_something_aside_replaces_nothing(modules: tuple[Any, Any], tmp_path: Path):
    arguments = trees_to_swap(tmp_path)
    (tmp_path / "aside/home").mkdir(parents=True)
    (tmp_path / "aside/home/both").write_text("from an earlier attempt")
    modules[1].replace_children(**arguments)
    assert (tmp_path / "aside/home/both").read_text() == "from an earlier attempt"
    assert (tmp_path / "aside/home/both.1").read_text() == "old"


def test_a_link_in_the_place_of_the_live_directory_goes_aside_itself(modules: tuple[Any, Any], tmp_path: Path):
    arguments = trees_to_swap(tmp_path)
    (tmp_path / "live").rename(tmp_path / "elsewhere")
    (tmp_path / "live").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "aside").mkdir()
    modules[1].replace_children(**arguments)
    assert not (tmp_path / "live").is_symlink()
    assert (tmp_path / "aside/home/live").is_symlink()
    assert (tmp_path / "elsewhere/only-old").exists()


def test_a_file_takes_the_place_of_a_link_and_not_of_what_it_leads_to(modules: tuple[Any, Any], tmp_path: Path):
    trees, moves = modules
    (tmp_path / "saved").write_text("saved")
    os.chmod(tmp_path / "saved", 0o640)
    (tmp_path / "victim").write_text("victim")
    (tmp_path / "live").symlink_to(tmp_path / "victim")
    (entry,) = trees.describe(str(tmp_path / "saved"))
    moves.place_file(str(tmp_path / "saved"), entry, str(tmp_path / "live"))
    assert (tmp_path / "victim").read_text() == "victim"
    assert trees.describe(str(tmp_path / "live")) == [entry]
    assert sorted(os.listdir(tmp_path)) == ["live", "saved", "victim"]
