"""What the decorators make of a function, without any host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import InvalidInput
from engine.registry.settings import RenderedFile, Settings
from engine.releases.model import StepClass
from engine.steps import Answer, Step, StepContext, install, patch, upgrade


def holds(context: StepContext) -> Answer:
    return Answer.HOLDS


@install(
    bundle="robots-{edition}",
    precondition=holds,
    inputs=("lists/{country}.txt",),
    writes=("file:/srv/{name}", "unit:robots"),
    trades=("bakery",),
)
def robots(context: StepContext, *, edition: int, name: str = "robots.txt", country: str = "fr") -> Iterator[Any]:
    yield from ()


@patch(file="personality")
def polite(text: str, *, word: str = "please") -> str:
    return text if word in text else text + word


@upgrade(link="/opt/x/current", directory="/opt/x/{version}", precondition=holds)
def runtime(context: StepContext, *, version: str) -> Iterator[Any]:
    yield from ()


@pytest.fixture
def located(tmp_path: Path) -> Step:
    """The install step in a fleet with two editions of its bundle and one list."""
    for edition in (1, 2):
        (tmp_path / f"bundles/robots-{edition}").mkdir(parents=True)
        (tmp_path / f"bundles/robots-{edition}/robots.txt").write_text(f"edition {edition}")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/fr.txt").write_text("fr")
    return robots.located(tmp_path)


@pytest.mark.parametrize(
    ("step", "step_class"),
    [(robots, StepClass.INSTALL), (polite, StepClass.PATCH), (runtime, StepClass.UPGRADE)],
)
def test_a_decorated_function_is_a_step_of_its_class(step: Step, step_class: StepClass):
    assert step.info.step_class is step_class


def test_keys_are_filled_in_with_arguments_and_defaults():
    assert robots.keys({"edition": 1}) == {"file:/srv/robots.txt", "unit:robots"}
    assert robots.keys({"edition": 1, "name": "x"}) == {"file:/srv/x", "unit:robots"}
    assert polite.keys({}) == {"file:personality"}
    assert runtime.keys({"version": "2"}) == {"link:/opt/x/current"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "edition"),
        ({"edition": 1, "colour": "red"}, "colour"),
        ({"edition": "1"}, "edition must be int, not '1'"),
        ({"edition": True}, "edition must be int, not True"),
        ({"edition": 1, "name": 5}, "name must be str, not 5"),
    ],
)
def test_arguments_that_the_step_does_not_take_are_refused(arguments: dict[str, Any], words: str):
    with pytest.raises(InvalidInput, match=words):
        robots.check_arguments(arguments)


def test_another_edition_is_another_digest_and_leaves_the_first_alone(located: Step, tmp_path: Path):
    first, second = (located.shipped_digest({"edition": edition}) for edition in (1, 2))
    assert first != second
    (tmp_path / "bundles/robots-2/robots.txt").write_text("changed")
    assert located.shipped_digest({"edition": 1}) == first
    assert located.shipped_digest({"edition": 2}) != second


def test_input_files_count_into_the_digest(located: Step, tmp_path: Path):
    before = located.shipped_digest({"edition": 1})
    (tmp_path / "lists/fr.txt").write_text("changed")
    assert located.shipped_digest({"edition": 1}) != before


@pytest.mark.parametrize("arguments", [{"edition": 3}, {"edition": 1, "country": "de"}])
def test_what_is_not_there_is_refused_with_its_path(located: Step, arguments: dict[str, Any]):
    with pytest.raises(InvalidInput) as caught:
        located.shipped_digest(arguments)
    assert ("robots-3" in caught.value.where) or ("de.txt" in caught.value.where)


def test_a_patch_names_a_file_of_the_rendered_set_or_a_path():
    file = RenderedFile("personality", "p.j2", "/srv/SOUL.md", "root", "root", "0644")
    assert polite.path(Settings("Brand", rendered=(file,))) == "/srv/SOUL.md"
    with pytest.raises(InvalidInput, match="not in the rendered set"):
        polite.path(Settings("Brand"))


def test_an_edit_that_is_no_text_is_refused():
    @patch(file="/etc/motd")
    def wrong(text: str) -> str:
        return None  # type: ignore[return-value]

    with pytest.raises(InvalidInput, match="not text"):
        wrong.edit("x", {})


def test_an_upgrade_needs_a_versioned_directory():
    with pytest.raises(InvalidInput, match="names no argument"):
        upgrade(link="/opt/x/current", directory="/opt/x/new", precondition=holds)
    assert runtime.target({"version": "1.2"}) == "/opt/x/1.2"
