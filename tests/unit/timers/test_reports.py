"""What is new about a job, and what its operator knows already."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.timers.reports import Failure, Knowledge, News, Report, error_lines

REPORT = Report("backup", "2026-11-29T01:30:00Z", 1, failure="a", failing_since="2026-11-29T01:30:00Z")


@pytest.mark.parametrize(
    ("failure", "told", "told_failure", "wanted"),
    [
        (None, Knowledge.NOTHING, None, None),
        (None, Knowledge.WORKS, None, None),
        (None, Knowledge.FAILURE, "a", News.RECOVERED),
        (None, Knowledge.UNCERTAIN, None, News.RECOVERED),
        ("a", Knowledge.NOTHING, None, News.FAILED),
        ("a", Knowledge.WORKS, None, News.FAILED),
        ("a", Knowledge.FAILURE, "a", None),
        ("b", Knowledge.FAILURE, "a", News.CHANGED),
        ("a", Knowledge.UNCERTAIN, None, News.FAILED),
    ],
)
def test_what_is_told(failure, told, told_failure, wanted):
    assert replace(REPORT, failure=failure, told=told, told_failure=told_failure).news() is wanted


def test_the_same_failure_at_another_time_is_the_same():
    first = Failure(1, ("maple: no answer in 5.02 s, run 20261129T013000Z-5f3a9c1e",))
    second = Failure(1, ("maple: no answer in 4.9 s, run 20261130T013000Z-ffffffff",))
    assert first.key(["maple"]) == second.key(["maple"])


def test_another_tenant_another_code_or_another_word_is_another_failure():
    failure = Failure(1, ("host-1: no answer",))
    names = ["host-1", "host-2"]
    others = (
        Failure(4, failure.lines),
        Failure(1, ("host-2: no answer",)),
        Failure(1, ("host-1: no room",)),
        Failure(1, ("host-1: no answer", "host-2: no answer")),
    )
    keys = {item.key(names) for item in (failure, *others)}
    assert len(keys) == 5
    assert failure.key(names) == Failure(1, ("host-1: no answer", "host-1: no answer")).key(names)


def test_the_order_of_tenants_says_nothing():
    assert Failure(1, ("a: x", "b: x")).key([]) == Failure(1, ("b: x", "a: x")).key([])


def test_errors_are_taken_from_what_a_command_printed():
    assert error_lines(["maple copying", "error: maple: no room", "  hint: free some"]) == ("maple: no room",)
    assert error_lines(["Traceback", "", "KeyError: 'x'"]) == ("Traceback", "KeyError: 'x'")
