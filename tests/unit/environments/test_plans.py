"""What a plan of one environment ends with."""

from __future__ import annotations

import pytest

from engine.cli.env_life import plan_code
from engine.environments.drivers.base import Kind
from engine.environments.effects import Step, Verdict
from engine.environments.hosting import SubjectPlan
from engine.environments.hosting.plan import ResourcePlan
from engine.environments.observation import Absent, Observation, Unknown
from engine.environments.words import Attention
from engine.errors import ExitCode

CREATE = (Absent(), Verdict(Step.CREATE))
DONE = (Absent(), Verdict(Step.NOTHING))
UNSEEN = (Unknown("timedOut"), Verdict(Step.STOP, Unknown("timedOut")))
MISSING = (Absent(), Verdict(Step.STOP, Attention.RESOURCE_MISSING))


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([DONE], ExitCode.DONE),
        ([DONE, CREATE], ExitCode.CHANGES),
        ([CREATE, UNSEEN], ExitCode.UNREACHABLE),
        ([UNSEEN, MISSING], ExitCode.FAILED),
        ([CREATE, MISSING], ExitCode.FAILED),
    ],
)
def test_the_exit_code_of_a_plan(found: list[tuple[Observation, Verdict]], code: ExitCode) -> None:
    resources = tuple(ResourcePlan(Kind.BUCKET, "name", *each) for each in found)
    plan = SubjectPlan(
        uuid="u",
        kind="env",
        project="p",
        state=None,
        attention=None,
        retires=False,
        spec_digest="d",
        resources=resources,
    )
    assert plan_code(plan, exit_code=True) is code
