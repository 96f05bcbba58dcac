"""Which keys a step's `writes` cover, and what an expectation becomes for one tenant."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import InvalidInput
from engine.registry.settings import Settings
from engine.releases.digests import digest_of
from engine.steps import File, Place, Value, shipped
from engine.steps.expectations import is_written
from tests.unit.fleets import make_rendered, make_tenant


@pytest.mark.parametrize(
    ("key", "written", "is_covered"),
    [
        ("file:/a/b", "file:/a/b", True),
        ("file:/a/b", "file:/a", False),
        ("file:/a/b", "directory:/a", True),
        ("directory:/a/b", "directory:/a", True),
        ("directory:/a", "directory:/a", True),
        ("file:/ab", "directory:/a", False),
        ("file:/a/.stamp", "link:/a", True),
        ("unit:a.service", "unit:a.service", True),
        ("unit:a.service", "file:a.service", False),
        ("value:/a/c.yaml#x.y", "file:/a/c.yaml", True),
        ("value:/a/c.yaml#x.y", "directory:/a", True),
        ("value:/a/c.yaml#x.y", "value:/a/c.yaml#x.y", True),
        ("value:/a/c.yaml#x.y", "file:/a", False),
        ("model:chat", "model:chat", True),
    ],
)
def test_what_a_written_key_covers(key: str, written: str, is_covered: bool):
    assert is_written(key, [written]) is is_covered


def place(tmp_path: Path) -> Place:
    (tmp_path / "bundle/docs/deep").mkdir(parents=True)
    (tmp_path / "bundle/docs/one.md").write_text("1")
    (tmp_path / "bundle/docs/deep/two.md").write_text("2")
    settings = Settings(brand="B", rendered=(make_rendered("config"),))
    return Place(make_tenant(), settings, {}, tmp_path / "bundle", tmp_path)


def test_a_tree_is_a_file_for_each_of_its_files(tmp_path: Path):
    at = place(tmp_path)
    assert [item.at(at) for item in at.tree("docs", "/srv", mode="0640")] == [
        File("/srv/deep/two.md", mode="0640", digest=digest_of(b"2")),
        File("/srv/one.md", mode="0640", digest=digest_of(b"1")),
    ]


def test_shipped_files_have_the_bundles_digest_and_the_given_modes(tmp_path: Path):
    one, two = shipped({"/a": "docs/one.md", "/b": "docs/one.md"}, {"/b": "0755"})
    at = place(tmp_path)
    assert (one.at(at), two.at(at)) == (
        File("/a", digest=digest_of(b"1")),
        File("/b", mode="0755", digest=digest_of(b"1")),
    )


def test_a_value_of_a_rendered_file_is_at_its_path(tmp_path: Path):
    at = place(tmp_path)
    assert Value("config", "a.b", 1).at(at).key == "value:/srv/config#a.b"
    assert Value("/etc/x", "a.b", 1).at(at).key == "value:/etc/x#a.b"
    with pytest.raises(InvalidInput, match="'other' is not in the rendered set"):
        Value("other", "a", 1).at(at)
