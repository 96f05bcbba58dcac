"""What a fleet's own code gets wrong is named, as the failure of one step on one tenant."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest
from pyinfra.api.exceptions import MissingCommandError, NestedOperationError, OperationError

from engine.errors import CommandTimedOut, StepFailed, UnknownState
from engine.registry.settings import Settings
from engine.steps import StepContext
from engine.steps.operation import operation_errors
from engine.steps.step import fleet_code
from tests.unit.fleets import make_tenant
from tests.unit.updater.statuses import status


class Session:
    """Notes what is removed from the host; nothing else may be asked of it."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def stage(self, directory: Path) -> str:
        return f"/staging/{directory.name}"

    def unstage(self, path: str) -> None:
        self.removed.append(path)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def context(session: Session) -> StepContext:
    tenant, settings = make_tenant(), Settings(brand="B")
    made = StepContext(tenant, settings, cast(Any, session), status(), Path("/fleet"), Path("/fleet/var"))
    made.ship(Path("/fleet/bundle"))
    return made


def test_an_operation_that_is_used_wrongly_fails_the_step(context: StepContext, session: Session):
    words = f"{context.tenant.slug}: step x failed: no such argument"
    with pytest.raises(StepFailed, match=words), operation_errors(context, "step x"):
        raise OperationError("no such argument")
    assert session.removed == ["/staging/bundle"]


def test_what_a_command_of_unknown_outcome_may_still_read_is_left_to_the_next_claim(
    context: StepContext, session: Session
):
    with pytest.raises(CommandTimedOut), operation_errors(context, "step x"):
        raise CommandTimedOut("too long")
    assert session.removed == []


def test_a_facts_missing_command_is_unknown_not_a_defect():
    with pytest.raises(UnknownState, match="the precondition raised MissingCommandError"), _asking():
        raise MissingCommandError("jq is missing")


def test_a_failed_command_passes_as_what_it_is():
    with pytest.raises(NestedOperationError), _asking():
        raise NestedOperationError("hash")


def _asking() -> AbstractContextManager[None]:
    return fleet_code("the precondition", UnknownState)
