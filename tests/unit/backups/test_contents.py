"""What goes into an archive, as declared in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.backups.contents import check_contents, included
from engine.errors import InvalidInput
from engine.registry.load import load_settings
from engine.registry.safeguards import Content, ContentKind
from engine.registry.settings import Settings

REPOSITORY = Path(__file__).parents[3]


def declared(*contents: tuple[str, tuple[str, ...]]) -> Settings:
    return Settings(
        brand="Queva",
        contents=tuple(
            Content(str(number), path, ContentKind.STATE, exclude) for number, (path, exclude) in enumerate(contents)
        ),
    )


@pytest.mark.parametrize("path", ["inventory/fleet.yaml", "tests/lab/light/inventory/fleet.yaml"])
def test_the_fleets_of_this_repository_can_be_archived(path: str):
    settings = load_settings(REPOSITORY / path)
    check_contents(settings)
    paths = [item.path for item in included(settings)]
    assert settings.gateway and settings.gateway.runtime_link in paths
    assert "/var/lib/tenantry/version" in paths and len(set(paths)) == len(paths)


def test_a_content_within_another_is_fine_unless_it_is_excluded_there():
    check_contents(declared(("/srv", ("cache", "a/*.log")), ("/srv/a", ()), ("/srv/logs", ())))
    for inner in ("/srv/cache", "/srv/cache/deep", "/srv/a/x.log"):
        with pytest.raises(InvalidInput, match="is left out by the excludes of content 0"):
            check_contents(declared(("/srv", ("cache", "a/*.log")), (inner, ())))


@pytest.mark.parametrize("path", ["/tenantry", "/tenantry/x"])
def test_a_content_where_the_archive_keeps_its_own_description_is_refused(path: str):
    with pytest.raises(InvalidInput, match="keeps its own description"):
        check_contents(declared((path, ())))
    check_contents(declared(("/tenantry2", ())))
