"""The manifest: versions are texts, distinct and in order; errors name file, line and key."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from engine.errors import ExitCode, InvalidInput
from engine.registry.schema import read_schema
from engine.releases.manifest import load_manifest, next_version
from engine.releases.model import Manifest
from engine.releases.version import Version
from tests.unit.fleets import entry, make_manifest, make_release

WHOLE = """\
releases:
  - version: "2026.10.22"
    title: Forms
    steps:
      - forms
      - runtime: {version: "0.19.0", models: [a, b]}
    details: |
      For the operator.
    owner_note: Forms are here.
  - {version: 2026.10.22.1, title: Guides, steps: [], details: "", owner_note: ""}
"""


def load_text(directory: Path, text: str) -> Manifest:
    file = directory / "releases.yaml"
    file.write_text(text)
    return load_manifest(file)


def release(**changes: str) -> str:
    values = {
        "version": '"2026.10.22"',
        "title": "x",
        "steps": "[forms]",
        "details": '""',
        "owner_note": '""',
    }
    return "".join(
        f"{'  - ' if index == 0 else '    '}{key}: {value}\n"
        for index, (key, value) in enumerate({**values, **changes}.items())
    )


def test_a_whole_manifest(tmp_path: Path) -> None:
    manifest = load_text(tmp_path, WHOLE)
    first, second = manifest
    assert (first.version.text, first.title, first.owner_note) == ("2026.10.22", "Forms", "Forms are here.")
    assert first.details == "For the operator.\n"
    assert first.steps == (entry("forms"), entry("runtime", version="0.19.0", models=["a", "b"]))
    assert first.steps[1].arguments["models"] == ("a", "b")
    assert second.steps == ()
    assert manifest.head == Version.parse("2026.10.22.1")


def test_releases_and_entries_know_their_place(tmp_path: Path) -> None:
    first, second = load_text(tmp_path, WHOLE)
    file = tmp_path / "releases.yaml"
    assert (first.where, second.where) == (f"{file}:2", f"{file}:10")
    assert [step.where for step in first.steps] == [f"{file}:5", f"{file}:6"]


def test_places_do_not_matter_to_equality(tmp_path: Path) -> None:
    moved = load_text(tmp_path, "# a comment\n" + WHOLE)
    assert moved == load_text(tmp_path, WHOLE)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("2026.10", '2026.10 reads as the number 2026.1 (or hint) quote it: "2026.10"'),
        ("2026.1", 'wanted text, found the number 2026.1 (or hint) quote it: "2026.1"'),
        ("20261022", 'wanted text, found the number 20261022 (or hint) quote it: "20261022"'),
        ("2026-10-22", "'2026-10-22' is not a version"),
        (
            "!!float 2026.10",
            '2026.10 reads as the number 2026.1 (or hint) quote it: "2026.10"',
        ),
        ("~", "wanted text, found nothing (null)"),
        ("true", "wanted text, found the truth value true"),
        ('"2026.10.22-rc1"', "'2026.10.22-rc1' is not a version"),
        ('"2026.13.1"', "'2026.13.1' does not start with a date"),
        ('"2026.10.22\\n"', "is not a version"),
    ],
)
def test_versions_that_are_none(tmp_path: Path, value: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_text(tmp_path, "releases:\n" + release(version=value))
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.where == f"{tmp_path / 'releases.yaml'}:2"
    assert caught.value.message.startswith("releases[0].version: ")
    assert words in f"{caught.value.message} (or hint) {caught.value.hint}"


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("2026.10.22", "2026.10.22", "2026.10.22 equals 2026.10.22"),
        ("2026.1.5", "2026.01.05", "2026.01.05 equals 2026.1.5"),
        ("2026.10.22.10", "2026.10.22.9", "2026.10.22.9 stands after 2026.10.22.10"),
        ("2026.10.22.0", "2026.10.22", "2026.10.22 stands after 2026.10.22.0"),
    ],
)
def test_equal_and_unordered_versions(tmp_path: Path, first: str, second: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_text(tmp_path, "releases:\n" + release(version=first) + release(version=second))
    assert caught.value.where == f"{tmp_path / 'releases.yaml'}:7"
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("title", '""', "wanted text that is not empty"),
        ("title", '"a\\nb"', "wanted one line"),
        ("title", "~", "wanted text, found nothing (null)"),
        ("steps", "forms", "wanted a list, found the text"),
        ("steps", "[Forms]", "wanted a step's name"),
        ("steps", "[forms, {a: {}, b: {}}]", "wanted a step's name, or one step's name with its arguments"),
        ("steps", "[{}]", "wanted a step's name, or one step's name with its arguments"),
        ("steps", "[{forms: ~}]", "wanted a mapping of the step's arguments, found nothing (null)"),
        ("steps", "[{forms: [1]}]", "wanted a mapping of the step's arguments, found a list"),
        ("steps", "[{forms: {port: ~}}]", "releases[0].steps[0].forms.port: wanted text, a number"),
        ("steps", "[{forms: {port: 0o17}}]", "0o17 reads as the number 15"),
        ("steps", "[{../x: {}}]", "wanted a step's name"),
        ("details", "~", "wanted text, found nothing (null)"),
        ("owner_note", "[]", "wanted text, found a list"),
        ("onwer_note", "x", "did you mean 'owner_note'?"),
    ],
)
def test_bad_records_name_the_key(tmp_path: Path, key: str, value: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_text(tmp_path, "releases:\n" + release(**{key: value}))
    line = 2 + ["version", "title", "steps", "details", "owner_note", "onwer_note"].index(key)
    assert caught.value.where == f"{tmp_path / 'releases.yaml'}:{line}"
    assert words in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("text", ["releases: []\n", "releases:\n", "{}\n", ""])
def test_an_empty_manifest_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput):
        load_text(tmp_path, text)


def test_a_missing_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        load_manifest(tmp_path / "releases.yaml")


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(read_schema("engine.releases", "releases.json"))


@pytest.mark.parametrize(
    ("head", "following"),
    [
        ("2026.10.21.4", "2026.10.22"),
        ("2026.10.22", "2026.10.22.1"),
        ("2026.10.22.9", "2026.10.22.10"),
        ("2026.12.1", "2026.12.1.1"),
    ],
)
def test_the_next_version_is_above_the_head(head: str, following: str) -> None:
    manifest = make_manifest(make_release(head))
    assert next_version(manifest, datetime.date(2026, 10, 22)).text == following


def test_a_manifest_up_to_a_version_has_that_version_as_its_head() -> None:
    manifest = make_manifest(*(make_release(version) for version in ("2026.10.22", "2026.10.22.3", "2026.10.23")))
    assert [release.version.text for release in manifest.up_to(Version.parse("2026.10.22.03"))] == [
        "2026.10.22",
        "2026.10.22.3",
    ]
    assert manifest.up_to(manifest.head) == manifest
    for unknown in ("2026.10.21", "2026.10.22.1", "2030.1.1"):
        with pytest.raises(InvalidInput, match=f"no release {unknown}"):
            manifest.up_to(Version.parse(unknown))
