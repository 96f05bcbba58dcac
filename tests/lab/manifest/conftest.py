"""The walk, made once for all tests of the manifest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.manifest.walk import QUICK_STARTS, START_POINTS, Walk


@pytest.fixture(scope="session")
def walk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """A walked and a fresh tenant at the head, and the disks of the start points that this session asks for."""
    is_soak = any(item.get_closest_marker("soak") for item in request.session.items)
    walk = Walk.create(tmp_path_factory.mktemp("manifest"), START_POINTS if is_soak else QUICK_STARTS)
    try:
        walk.go()
        yield walk
    finally:
        walk.destroy()
