"""Releases of hosted environments: read whole, known by their bytes, refused by file and key."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.environments.binding import BASE_KEYS, OPTIONAL_KEYS, check_keys
from engine.environments.releases import RELEASES, load_releases
from engine.errors import InvalidInput

REPOSITORY = Path(__file__).parents[3]
KEYS = "[access_policy, hostname, restore, tier]"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A fleet directory with one whole release."""
    for kind in ("gateway", "web"):
        directory = tmp_path / RELEASES / "first" / kind
        directory.mkdir(parents=True)
        (directory / "main.py").write_text("print('here')\n")
    release = tmp_path / RELEASES / "first"
    (release / "manifest.yaml").write_text(f"application: {{keys: {KEYS}}}\nchildSpecExtensions: []\n")
    (release / "gateway/closure.yaml").write_text(f"keys: {KEYS}\npackages: [curl]\n")
    return tmp_path


def test_the_fleets_own_releases_agree_with_the_engine() -> None:
    releases = load_releases(REPOSITORY)
    for release in releases.values():
        check_keys(release)
    assert {release.extensions for release in releases.values()} == {frozenset(), OPTIONAL_KEYS}


def test_a_release_is_read_whole(root: Path) -> None:
    release = load_releases(root)["first"]
    assert (release.gateway_keys, release.manifest_keys, release.extensions) == (BASE_KEYS, BASE_KEYS, frozenset())
    assert release.packages == {"curl"}
    assert release.directory == root / RELEASES / "first"
    assert re.fullmatch("sha256:[0-9a-f]{64}", release.digest)


def test_a_fleet_without_releases_has_none(tmp_path: Path) -> None:
    assert not load_releases(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda release: (release / "web/main.py").write_text("print('there')\n"),
        lambda release: (release / "web/main.py").chmod(0o755),
        lambda release: (
            (release / "web/main.py").rename(release / "web/other.py") and (release / "web/main.py").write_text("")
        ),
        lambda release: (release / "web/more").mkdir() or (release / "web/more/a").write_text(""),
    ],
    ids=["content", "mode", "name", "one more"],
)
def test_every_change_is_another_digest(root: Path, change: Callable[[Path], object]) -> None:
    before = load_releases(root)["first"].digest
    change(root / RELEASES / "first")
    assert load_releases(root)["first"].digest != before


def test_what_python_keeps_beside_a_program_is_no_part_of_it(root: Path) -> None:
    before = load_releases(root)["first"].digest
    cache = root / RELEASES / "first/web/__pycache__"
    cache.mkdir()
    (cache / "main.pyc").write_text("")
    (root / RELEASES / "first/web/main.py").chmod(0o600)
    assert load_releases(root)["first"].digest == before


def test_a_link_counts_as_what_it_leads_to(root: Path) -> None:
    before = load_releases(root)["first"].digest
    program = root / RELEASES / "first/web/main.py"
    program.unlink()
    program.symlink_to("../gateway/main.py")
    assert load_releases(root)["first"].digest == before


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("manifest.yaml", f"application: {{keys: {KEYS}}}\n", "misses childSpecExtensions"),
        ("manifest.yaml", "application: {keys: [A]}\nchildSpecExtensions: []\n", "application.keys"),
        ("manifest.yaml", f"application: {{keys: {KEYS}, more: 1}}\nchildSpecExtensions: []\n", "more"),
        ("gateway/closure.yaml", "keys: tier\npackages: []\n", "keys"),
        ("gateway/closure.yaml", "keys: [tier, tier]\npackages: []\n", "keys"),
        ("gateway/closure.yaml", "keys: [tier]\n", "misses packages"),
        ("gateway/closure.yaml", "keys: [tier]\npackages: [--force]\n", "packages"),
        ("gateway/closure.yaml", "keys: [tier\n", "closure.yaml"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_key(root: Path, file: str, text: str, said: str) -> None:
    (root / RELEASES / "first" / file).write_text(text)
    with pytest.raises(InvalidInput) as caught:
        load_releases(root)
    assert file in str(caught.value) and said in str(caught.value)


@pytest.mark.parametrize("file", ["manifest.yaml", "gateway/closure.yaml", "gateway/main.py", "web/main.py"])
def test_a_release_without_one_of_its_files_is_refused(root: Path, file: str) -> None:
    (root / RELEASES / "first" / file).unlink()
    with pytest.raises(InvalidInput, match=re.escape(file)):
        load_releases(root)


@pytest.mark.parametrize("target", ["/etc/passwd", "nowhere", "../../../../inventory", "../gateway"])
def test_links_out_of_the_releases_and_to_directories_are_refused(root: Path, target: str) -> None:
    (root / "inventory").mkdir()
    os.symlink(target, root / RELEASES / "first/web/more")
    with pytest.raises(InvalidInput, match="link"):
        load_releases(root)


def test_a_path_like_name_is_refused(root: Path) -> None:
    (root / RELEASES / "Up, down").mkdir()
    with pytest.raises(InvalidInput, match="no release"):
        load_releases(root)
