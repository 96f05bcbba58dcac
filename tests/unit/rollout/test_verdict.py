"""Thresholds and verdicts, above all in small fleets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.registry.settings import Strategy
from engine.rollout.verdict import Decision, MemberResult, is_reached, judge

UPDATED, FAILED, DEFERRED = MemberResult.UPDATED, MemberResult.FAILED, MemberResult.DEFERRED


@pytest.mark.parametrize(
    ("errors", "size", "count", "percent", "reached"),
    [
        (0, 1, 0, 0, False),
        (1, 1, 0, 0, True),
        (1, 1, 1, 100, True),
        (1, 1, 2, 100, True),
        (1, 2, 2, 50, True),
        (1, 2, 2, 51, False),
        (1, 3, 2, 34, False),
        (1, 3, 2, 33, True),
        (2, 3, 3, 100, False),
        (3, 3, 4, 100, True),
        (1, 3, 1, 100, True),
        (0, 3, 1, 0, False),
    ],
)
def test_reached_means_equal_or_more(errors: int, size: int, count: int, percent: float, reached: bool) -> None:
    assert is_reached(errors, size, Strategy(error_count=count, error_percent=percent)) is reached


STRATEGIES = st.builds(Strategy, error_count=st.integers(0, 4), error_percent=st.integers(0, 100))
RESULTS = st.lists(st.sampled_from(MemberResult), min_size=1, max_size=6)


@given(errors=st.integers(0, 6), size=st.integers(1, 6), strategy=STRATEGIES)
def test_more_errors_never_take_a_halt_back(errors: int, size: int, strategy: Strategy) -> None:
    if is_reached(min(errors, size), size, strategy):
        assert all(is_reached(more, size, strategy) for more in range(min(errors, size), size + 1))


@given(size=st.integers(1, 6), strategy=STRATEGIES)
def test_a_wave_in_which_all_went_wrong_is_never_promoted(size: int, strategy: Strategy) -> None:
    assert judge([FAILED] * size, strategy).decision is not Decision.PROMOTE


@given(results=RESULTS, strategy=STRATEGIES)
def test_only_a_wave_without_doubt_is_promoted(results: list[MemberResult], strategy: Strategy) -> None:
    if judge(results, strategy).decision is Decision.PROMOTE:
        assert UPDATED in results
        assert not any(result.is_open or result is MemberResult.UNCLEAR for result in results)
        assert not is_reached(sum(result.is_error for result in results), len(results), strategy)


@given(size=st.integers(1, 6), strategy=STRATEGIES)
def test_a_wave_that_is_all_well_is_promoted(size: int, strategy: Strategy) -> None:
    assert judge([UPDATED] * size, strategy).decision is Decision.PROMOTE


def test_one_that_could_not_be_stopped_in_time_proves_nothing_and_breaks_nothing() -> None:
    assert judge([DEFERRED], Strategy()).decision is Decision.PAUSE
    assert judge([DEFERRED, UPDATED], Strategy()).decision is Decision.PROMOTE
    assert judge([MemberResult.UNCLEAR, UPDATED], Strategy()).decision is Decision.PAUSE


def test_a_halt_says_what_went_wrong() -> None:
    verdict = judge([FAILED, UPDATED, MemberResult.SILENT, FAILED], Strategy())
    assert verdict.reason == "3 of 4 went wrong: 2 failed, 1 silent"
