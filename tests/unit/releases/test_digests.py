"""Digests change with what an applied release must keep, and with nothing else."""

from __future__ import annotations

import dataclasses
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput
from engine.registry.freeze import freeze
from engine.releases.digests import bundle_files, directory_digest, release_digest, release_digests
from engine.releases.model import StepEntry
from tests.unit.fleets import entry, make_catalog, make_manifest, make_release, make_step

CATALOG = make_catalog(make_step("forms", shipped="sha256:aa"), make_step("guides"), make_step("runtime"))
RELEASE = make_release("2026.10.22", "forms", entry("runtime", version="0.19.0"))


def test_prose_and_place_do_not_count() -> None:
    prose = dataclasses.replace(RELEASE, title="Other", details="Other", owner_note="Other", where="x:1")
    assert release_digest(prose, CATALOG) == release_digest(RELEASE, CATALOG)
    one, other = make_release("2026.01.05", "forms"), make_release("2026.1.5", "forms")
    assert release_digest(one, CATALOG) == release_digest(other, CATALOG)


def test_version_entries_order_arguments_and_bundles_count() -> None:
    variants = [
        make_release("2026.10.23", *RELEASE.steps),
        make_release("2026.10.22", *reversed(RELEASE.steps)),
        make_release("2026.10.22", "forms"),
        make_release("2026.10.22", "forms", entry("runtime", version="0.19.1")),
        make_release("2026.10.22", "guides", entry("runtime", version="0.19.0")),
        make_release("2026.10.22", *RELEASE.steps, "guides"),
    ]
    digests = {release_digest(release, CATALOG) for release in [RELEASE, *variants]}
    digests.add(release_digest(RELEASE, {**CATALOG, "forms": make_step("forms", shipped="sha256:bb")}))
    assert len(digests) == len(variants) + 2


def test_an_unused_bundle_does_not_count() -> None:
    other = {**CATALOG, "guides": make_step("guides", shipped="sha256:cc")}
    assert release_digest(RELEASE, other) == release_digest(RELEASE, CATALOG)


def test_an_unknown_step_has_no_digest() -> None:
    with pytest.raises(InvalidInput, match="unknown step 'forms'"):
        release_digest(RELEASE, {})


def test_the_digest_is_stable_over_time() -> None:
    """Tenants hold digests for years: this value must never change."""
    pinned = "c951a70e7c438bec42a16350d98cca00dc156d8b1bdae152a94034aca75cd3aa"
    assert release_digest(RELEASE, CATALOG) == f"sha256:{pinned}"


def test_the_digest_of_a_bundle_is_stable_over_time(bundle: Path) -> None:
    pinned = "fe96bdf4d6effee6a47ebaddac41b66e41893df99d34fbf032523e0018abd6c1"
    assert directory_digest(bundle) == f"sha256:{pinned}"


def test_digests_of_a_manifest_by_version() -> None:
    manifest = make_manifest(make_release("2026.10.22", "forms"), make_release("2026.10.23"))
    catalog = make_catalog(make_step("forms", shipped="sha256:aa"))
    digests = release_digests(manifest, catalog)
    assert list(digests) == ["2026.10.22", "2026.10.23"]
    assert digests["2026.10.22"] == release_digest(manifest.releases[0], catalog)


arguments = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.text(max_size=5) | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)


@given(arguments)
def test_the_order_of_arguments_does_not_count(values: dict[str, Any]) -> None:
    turned = dict(reversed(values.items()))
    one, other = StepEntry("a", freeze(values)), StepEntry("a", freeze(turned))
    assert one == other
    assert hash(one) == hash(other)


@given(arguments, arguments)
def test_entries_are_equal_exactly_if_their_values_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (StepEntry("a", freeze(one)) == StepEntry("a", freeze(other))) == (repr_of(one) == repr_of(other))


def repr_of(value: Any) -> Any:
    """The value with its types, which Python's equality ignores: 1 is not true and not 1.0."""
    if isinstance(value, dict):
        return {key: repr_of(item) for key, item in value.items()}
    return [repr_of(item) for item in value] if isinstance(value, list) else (type(value), repr(value))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    root = tmp_path / "bundle"
    (root / "assets").mkdir(parents=True)
    (root / "install.sh").write_text("#!/bin/sh\n")
    (root / "install.sh").chmod(0o755)
    (root / "assets/page.html").write_bytes(b"\xff\x00<p>")
    (root / "assets/index.html").symlink_to("page.html")
    return root


def test_what_belongs_to_a_bundle(bundle: Path) -> None:
    files = [(file.path, file.executable, file.link) for file in bundle_files(bundle)]
    assert files == [
        (b"assets/index.html", False, b"page.html"),
        (b"assets/page.html", False, None),
        (b"install.sh", True, None),
    ]


def test_what_version_control_does_not_carry_does_not_count(bundle: Path) -> None:
    before = directory_digest(bundle)
    (bundle / "empty").mkdir()
    (bundle / "assets/__pycache__").mkdir()
    (bundle / "assets/__pycache__/x.pyc").write_bytes(b"x")
    (bundle / "install.sh").chmod(0o700)
    os.utime(bundle / "install.sh", (0, 0))
    assert directory_digest(bundle) == before


def test_every_part_of_a_bundle_counts(bundle: Path) -> None:
    seen = {directory_digest(bundle)}

    def note() -> None:
        digest = directory_digest(bundle)
        assert digest not in seen
        seen.add(digest)

    (bundle / "install.sh").write_text("#!/bin/sh\n#\n")
    note()
    (bundle / "install.sh").chmod(0o644)
    note()
    (bundle / "install.sh").rename(bundle / "setup.sh")
    note()
    (bundle / "assets/index.html").unlink()
    note()
    (bundle / "assets/index.html").symlink_to("other.html")
    note()
    (bundle / "assets/index.html").unlink()
    (bundle / "assets/index.html").write_text("other.html")
    note()
    (bundle / ".hidden").write_text("")
    note()


def test_parts_cannot_run_into_each_other(tmp_path: Path) -> None:
    for name, file, content in (("one", "ab", "c"), ("other", "a", "bc")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(content)
    assert directory_digest(tmp_path / "one") != directory_digest(tmp_path / "other")


@pytest.mark.parametrize("target", ["/etc/passwd", "..", "../other", "assets/../../x"])
def test_a_link_that_leaves_the_bundle_is_refused(bundle: Path, target: str) -> None:
    (bundle / "out").symlink_to(target)
    with pytest.raises(InvalidInput, match="must not leave the bundle") as caught:
        directory_digest(bundle)
    assert caught.value.where == str(bundle / "out")


def test_a_link_that_stays_inside_is_fine(bundle: Path) -> None:
    (bundle / "assets/run").symlink_to("../install.sh")
    assert directory_digest(bundle).startswith("sha256:")


def test_what_cannot_be_shipped_is_refused(bundle: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(bundle / "socket"))
        with pytest.raises(InvalidInput, match="files, directories and links only"):
            directory_digest(bundle)


def test_a_name_of_any_bytes_counts(bundle: Path) -> None:
    before = directory_digest(bundle)
    Path(os.fsdecode(os.fsencode(bundle) + b"/\xff")).write_text("")
    assert directory_digest(bundle) != before


def test_a_missing_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such bundle"):
        directory_digest(tmp_path / "gone")
