"""Real hosts for tests. A machine that cannot host a lab fails here, unless TENANTRY_SKIP_LAB=1."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.errors import MissingPart
from engine.provision.providers.lab import Lab, ensure_identity
from engine.provision.providers.lab.lab import CACHE_VARIABLE
from engine.provision.providers.lab.machine import require
from engine.registry.load import load_fleet
from engine.registry.settings import LabSettings
from tests.lab.dead_sessions import end_dead_labs, living_session
from tests.lab.light_fleet import LightFleet

REPOSITORY = Path(__file__).parents[2]

# What the reference fleet asks for, so that its lab and all tests share one base image.
PACKAGES = load_fleet(REPOSITORY).settings.lab.packages

MakeLab = Callable[..., Lab]


@pytest.fixture(scope="session", autouse=True)
def lab_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """This machine can host a lab, and no killed session's labs are left on it.

    Base images are kept between runs, in the fleet's own cache.
    """
    if os.environ.get("TENANTRY_SKIP_LAB") == "1":
        pytest.skip("TENANTRY_SKIP_LAB=1")
    try:
        require()
    except MissingPart as error:
        pytest.fail(f"{error}\n  or leave these tests out: TENANTRY_SKIP_LAB=1", pytrace=False)
    os.environ.setdefault(CACHE_VARIABLE, str(REPOSITORY / "var/lab/base"))
    base = tmp_path_factory.getbasetemp()
    end_dead_labs(base)
    with living_session(base):
        yield


@pytest.fixture(scope="session")
def operator_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with the operator's key, for the session's lab."""
    directory = tmp_path_factory.mktemp("state")
    ensure_identity(directory)
    return directory


@pytest.fixture(scope="session")
def lab(operator_state: Path) -> Iterator[Lab]:
    """One lab for the whole session; each test brings up hosts of its own names."""
    lab = Lab(operator_state, LabSettings(packages=PACKAGES), print)
    yield lab
    lab.destroy()


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[MakeLab]:
    """Make labs that end with the test, each with a state directory and a key of its own."""
    made: list[Lab] = []

    def make(name: str = "state", **settings: object) -> Lab:
        ensure_identity(tmp_path / name)
        lab = Lab(tmp_path / name, LabSettings(packages=PACKAGES, **settings), print, fleet_root=tmp_path)
        made.append(lab)
        return lab

    yield make
    for lab in made:
        lab.destroy()


@pytest.fixture(scope="session")
def light_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightFleet]:
    """Two provisioned light hosts, shared; use `maple` or `two`, which put them back first."""
    fleet = LightFleet.create(tmp_path_factory.mktemp("light") / "fleet", ["maple", "cedar"])
    try:
        outcomes = fleet.provision("maple", "cedar")
        assert all(outcome.error is None for outcome in outcomes), outcomes
        yield fleet
    finally:
        fleet.lab.destroy()


@pytest.fixture
def maple(light_hosts: LightFleet) -> LightFleet:
    """The shared fleet with one registered tenant, as it is right after phases A and B."""
    light_hosts.reset("maple")
    return light_hosts


@pytest.fixture
def two(light_hosts: LightFleet) -> LightFleet:
    """The shared fleet with two registered tenants, as they are right after phases A and B."""
    light_hosts.reset("maple", "cedar")
    return light_hosts
