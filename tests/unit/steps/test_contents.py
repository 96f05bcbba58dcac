"""Preconditions put together: three answers stay three."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.hosts.status import Answer, ServiceState
from engine.steps.contents import all_hold, present, runs

HOLDS, NOT, UNKNOWN = Answer.HOLDS, Answer.DOES_NOT_HOLD, Answer.UNKNOWN


@pytest.mark.parametrize(
    ("answers", "together"),
    [
        ((), HOLDS),
        ((HOLDS, HOLDS), HOLDS),
        ((HOLDS, NOT), NOT),
        ((NOT, UNKNOWN), UNKNOWN),
        ((UNKNOWN, HOLDS), UNKNOWN),
    ],
)
def test_all_hold(answers: tuple[Answer, ...], together: Answer) -> None:
    assert all_hold(*answers) is together


def context(**values: Any) -> Any:
    return SimpleNamespace(**values)


@pytest.mark.parametrize(("active", "answer"), [("active", HOLDS), ("failed", NOT), ("activating", NOT)])
def test_a_service_runs_while_it_is_active(active: str, answer: Answer) -> None:
    services = {"a.service": ServiceState("loaded", active, "", 1, 0, "success")}
    assert runs(context(status=SimpleNamespace(services=services)), "a.service") is answer


def test_a_service_that_the_status_does_not_name_is_unknown() -> None:
    assert runs(context(status=SimpleNamespace(services={})), "a.service") is UNKNOWN


@pytest.mark.parametrize(
    ("found", "answer"), [({"/a": "0", "/b": "1"}, HOLDS), ({"/a": "0", "/b": None}, NOT), (UNKNOWN, UNKNOWN)]
)
def test_files_are_present_when_each_is(found: Any, answer: Answer) -> None:
    assert present(context(fact=lambda fact, paths: found), "/a", "/b") is answer
