"""What a restore replaces: the archive's contents, whole or child by child, and never what it was not meant to hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.backups.listing import Listed, Listing, sources
from engine.backups.manifest import Database, Manifest
from engine.backups.restore_plan import Tree, check_archive, missing_parents, plain_path, trees_at, trees_of
from engine.errors import AheadOfHead, EditedRelease, InvalidInput, Refused
from engine.registry.safeguards import ContentKind
from engine.registry.settings import Gateway, Settings
from tests.unit.fleets import make_manifest, make_release

SETTINGS = Settings(
    brand="Queva", gateway=Gateway("g.service", "127.0.0.1", 1, "/", "/s", "/d", "/c", "/h", "/opt/current", ("local",))
)
HOME = {
    "name": "home",
    "path": "/srv/home",
    "kind": "state",
    "exclude": ["cache", "logs/*.log"],
    "found": ["/srv/home"],
}
UNITS = {"name": "units", "path": "/etc/units/t-*", "kind": "configuration", "exclude": [], "found": ["/etc/units/t-a"]}


def member(kind: str = "file") -> Listed:
    return Listed(kind, "0644", "root", "root", 0, 0)


LISTING: Listing = {
    "/var/lib/tenantry/version": member(),
    "/srv/home": member("directory"),
    "/srv/home/logs": member("directory"),
    "/srv/home/logs/deep": member("directory"),
    "/srv/home/state.db": member(),
    "/etc/units/t-a": member(),
    "/etc/rendered.conf": member(),
    "/opt/current": member("link"),
}


def manifest(**changes: Any) -> Manifest:
    values: dict[str, Any] = {
        "slug": "maple",
        "archive": "20261101T000000Z",
        "run": "r",
        "engine_version": "1",
        "started_at": "",
        "finished_at": "",
        "size_bytes": 1,
        "digest": "sha256:0",
        "version": "2026.10.22",
        "marker_problem": None,
        "applied": {"2026.10.22": "sha256:1"},
        "contents": (HOME, UNITS),
        "members": 2,
        "uncompressed_bytes": 1,
    }
    return Manifest(**{**values, **changes})


def test_everything_that_the_archive_was_made_with_is_replaced_and_nothing_else():
    live = {"/srv/home": "directory", "/etc/units/t-a": "file", "/etc/units/t-new": "file", "/etc/other": "file"}
    configuration = ContentKind.CONFIGURATION
    assert set(trees_of(manifest(), LISTING, live, SETTINGS)) == {
        Tree("/srv/home", ContentKind.STATE, ("cache", "logs/*.log"), whole=False),
        Tree("/etc/units/t-a", configuration, (), whole=True),
        # Absent from the archive: it does not survive by accident.
        Tree("/etc/units/t-new", configuration, (), whole=True),
        Tree("/etc/rendered.conf", configuration, (), whole=True),
    }


def test_what_stays_is_told_apart_by_its_depth():
    tree = Tree("/srv/home", ContentKind.STATE, ("cache", "logs/*.log"), whole=False)
    assert (tree.keep, tree.deeper) == (("cache",), ("logs/*.log",))


def test_a_directory_that_became_a_file_is_exchanged_whole():
    trees = trees_of(manifest(), LISTING, {"/srv/home": "link"}, SETTINGS)
    assert next(tree for tree in trees if tree.path == "/srv/home").whole


def test_a_directory_that_is_absent_now_comes_whole_so_that_it_goes_again_in_an_undo():
    assert all(tree.whole for tree in trees_of(manifest(), LISTING, {}, SETTINGS))
    assert trees_at("/srv/home/logs", manifest(), LISTING, {})[0].whole


def test_a_content_inside_another_goes_with_it():
    inner = {**UNITS, "path": "/srv/home/logs", "found": ["/srv/home/logs"]}
    trees = trees_of(manifest(contents=(inner, HOME)), LISTING, {"/srv/home": "directory"}, SETTINGS)
    assert [tree.path for tree in trees if tree.path.startswith("/srv")] == ["/srv/home"]


def test_one_path_keeps_what_is_left_out_below_it():
    live = {"/srv/home/logs": "directory"}
    (tree,) = trees_at("/srv/home//logs/", manifest(), LISTING, live)
    assert tree == Tree("/srv/home/logs", ContentKind.STATE, ("*.log",), whole=False)
    assert list(missing_parents(tree, LISTING)) == ["/srv/home"]


SIDECARS = ["/srv/home/state.db-wal", "/srv/home/state.db-shm", "/srv/home/state.db-journal"]


def test_a_database_goes_with_what_sqlite_keeps_beside_it():
    databases = {"/srv/home/state.db": Database({}, 0, 1)}
    trees = trees_at("/srv/home/state.db", manifest(databases=databases), LISTING, {})
    assert [tree.path for tree in trees] == [*SIDECARS, "/srv/home/state.db"]
    assert all(tree.whole and tree.kind is ContentKind.STATE for tree in trees)
    (plain,) = trees_at("/srv/home/state.db", manifest(), LISTING, {})
    assert plain.whole


def test_a_content_that_is_a_database_itself_goes_with_them_too():
    alone = {**UNITS, "path": "/srv/home/*.db", "kind": "data", "found": ["/srv/home/state.db"]}
    described = manifest(contents=(alone,), databases={"/srv/home/state.db": Database({}, 0, 1)})
    # One that matches the pattern comes once.
    live = {"/srv/home/state.db": "file", "/srv/home/state.db-wal": "file"}
    paths = [tree.path for tree in trees_of(described, LISTING, live, SETTINGS)]
    assert set(SIDECARS) < set(paths) and len(paths) == len(set(paths))


def test_the_content_of_a_hard_link_is_unpacked_with_it():
    link = replace(member(), source="/srv/home/first")
    listing = {"/srv/home/first": member(), "/srv/home/in/a": link, "/srv/home/in/b": link, "/srv/home/other": member()}
    assert list(sources(listing, ["/srv/home/in"])) == ["/srv/home/first"]
    assert list(sources(listing, ["/srv/home"])) == []


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("srv/home", InvalidInput, "no absolute path"),
        ("/srv/home/../x", InvalidInput, "no absolute path"),
        ("/etc/shadow", Refused, "in none of the archive's contents"),
        ("/srv/homely", Refused, "in none of the archive's contents"),
        ("/srv/home/absent", Refused, "has nothing at"),
        ("/var/lib/tenantry/version", Refused, "in none of the archive's contents"),
    ],
)
def test_a_path_that_cannot_be_restored(path: str, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        trees_at(path, manifest(), LISTING, {})


def test_a_path_in_its_plain_form():
    assert plain_path("//srv//home/./x/") == "/srv/home/x"


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"slug": "cedar"}, Refused, "one of cedar"),
        ({"version": None, "marker_problem": "garbled"}, Refused, "no version: garbled"),
        ({"version": "2026.10.24"}, AheadOfHead, "above this manifest's head"),
        ({"version": "2026.10.22.5"}, Refused, "does not have"),
        ({"applied": {"2026.10.22": "sha256:other"}}, EditedRelease, "edited since"),
    ],
)
def test_an_archive_that_does_not_fit_is_refused(changes: dict[str, Any], error: type[Exception], words: str):
    releases = make_manifest(make_release("2026.10.22"), make_release("2026.10.23"))
    digests = {"2026.10.22": "sha256:1", "2026.10.23": "sha256:2"}
    check_archive(manifest(), "maple", releases, digests)
    check_archive(manifest(version=None, applied={}), "maple", releases, digests)
    with pytest.raises(error, match=words):
        check_archive(manifest(**changes), "maple", releases, digests)
