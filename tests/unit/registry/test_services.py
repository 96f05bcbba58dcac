"""The units that must be active: a name alone, or one with the version that brought it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.errors import InvalidInput
from engine.registry.load import load_fleet
from engine.registry.settings import Service
from tests.unit.fleets import write_fleet


def test_a_service_may_be_a_unit_alone_or_carry_the_version_that_brought_it(tmp_path: Path) -> None:
    text = 'brand: Queva\nservices:\n  - caddy.service\n  - {unit: tenant-mail.service, since: "2026.10.22.13"}\n'
    settings = load_fleet(write_fleet(tmp_path, settings=text)).settings
    assert settings.services == (
        Service("caddy.service"),
        Service("tenant-mail.service", "2026.10.22.13"),
    )


@pytest.mark.parametrize(
    ("service", "wanted"),
    [
        ("{since: 2026.10.22}", "misses unit"),
        ("{unit: a.service, until: 2026.10.22}", "until"),
        ("{unit: a.service, since: 2026.13.1}", "does not start with a date"),
        ("a.service\n  - {unit: a.service}", "2 times"),
        ("7", "services[0]"),
    ],
)
def test_a_service_that_says_something_else_is_refused(tmp_path: Path, service: str, wanted: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(wanted)):
        load_fleet(write_fleet(tmp_path, settings=f"brand: Queva\nservices:\n  - {service}\n"))
