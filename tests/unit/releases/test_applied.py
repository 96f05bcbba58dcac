"""What a tenant recorded against what the manifest says now."""

from __future__ import annotations

import pytest

from engine.errors import UnknownState
from engine.releases.applied import AppliedCheck, Edited, check_applied
from engine.releases.version import Version
from tests.unit.fleets import make_manifest, make_release

MANIFEST = make_manifest(make_release("2026.10.22"), make_release("2026.10.22.2"), make_release("2026.10.23"))
DIGESTS = {"2026.10.22": "sha256:a", "2026.10.22.2": "sha256:b", "2026.10.23": "sha256:c"}


def check(applied: dict[str, str], marker: str | None = "2026.10.23") -> AppliedCheck:
    return check_applied(MANIFEST, DIGESTS, applied, None if marker is None else Version.parse(marker))


def test_a_tenant_that_recorded_the_same_is_in_order() -> None:
    assert check(DIGESTS) == AppliedCheck()


def test_an_edited_release_names_both_digests() -> None:
    edited = check({**DIGESTS, "2026.10.22": "sha256:old"}).edited
    assert edited == (Edited(Version.parse("2026.10.22"), "sha256:old", "sha256:a"),)


def test_a_release_put_below_the_marker_later_was_never_applied() -> None:
    applied = {version: digest for version, digest in DIGESTS.items() if version != "2026.10.22.2"}
    assert check(applied) == AppliedCheck(missed=(Version.parse("2026.10.22.2"),))


def test_a_release_that_left_the_manifest_is_named() -> None:
    found = check({**DIGESTS, "2026.10.21": "sha256:z", "2026.10.20": "sha256:y"})
    assert found.removed == (Version.parse("2026.10.20"), Version.parse("2026.10.21"))


def test_what_is_above_the_marker_is_pending_and_may_change() -> None:
    applied = {"2026.10.22": "sha256:a", "2026.10.23": "sha256:other", "2026.10.24": "sha256:x"}
    assert check(applied, "2026.10.22") == AppliedCheck()


def test_a_fresh_tenant_has_applied_nothing() -> None:
    assert check({"2026.10.22": "sha256:old"}, None) == AppliedCheck()


def test_another_spelling_is_the_same_version() -> None:
    manifest = make_manifest(make_release("2026.1.5"))
    found = check_applied(manifest, {"2026.1.5": "sha256:a"}, {"2026.01.05": "sha256:a"}, manifest.head)
    assert found == AppliedCheck()


def test_a_recorded_version_that_is_none_leaves_the_state_unknown() -> None:
    with pytest.raises(UnknownState, match="garbled: 'garbage' is not a version"):
        check({"garbage": "sha256:a"})
