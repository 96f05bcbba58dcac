"""A journal on this machine's disk and a provider that keeps its state in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local.environments.simulated import Store, simulated_drivers
from tests.local.environments.subjects import World, world


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "provider.json")


@pytest.fixture
def subject(tmp_path: Path, store: Store) -> World:
    return world(tmp_path, simulated_drivers(store))
