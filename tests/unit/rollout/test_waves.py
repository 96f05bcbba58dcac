"""Membership of a rollout."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput, Refused
from engine.registry.model import Hold, Pin, Role, Tenant
from engine.registry.safeguards import Provider
from engine.registry.settings import Strategy
from engine.releases.version import Version
from engine.rollout.waves import choose_strategy, membership

TODAY = datetime.date(2026, 11, 29)
TARGET = Version.parse("2026.11.29")


def tenant(slug: str, role: Role = Role.CLIENT) -> Tenant:
    return Tenant(
        slug=slug,
        owner_name="O",
        business="B",
        trade="bakery",
        role=role,
        daily_backup=True,
        text_updates=False,
        address=None,
        ssh_user="ops",
        ssh_port=22,
        provider=Provider("lab"),
        forwarding_address="o@b.example",
        page_host="b.example",
    )


def waves(strategy: Strategy, tenants: Sequence[Tenant]) -> tuple[tuple[str, ...], ...]:
    return membership(strategy, tenants, TARGET, TODAY, {}).waves


TEN = [tenant("t0", Role.TEST), *(tenant(f"t{number}") for number in range(1, 11))]


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        (("10%", "50%"), [1, 1, 4, 5]),
        (("1", "3"), [1, 1, 3, 6]),
        (("100%",), [1, 10]),
        (("0%", "5%"), [1, 1, 9]),
        ((), [1, 10]),
        (("50%", "10%"), [1, 5, 5]),
        (("20",), [1, 10]),
        (("12.5%",), [1, 2, 8]),
    ],
)
def test_sizes_are_counts_or_what_is_reached(sizes: tuple[str, ...], counts: list[int]) -> None:
    assert [len(wave) for wave in waves(Strategy(waves=sizes), TEN)] == counts


def test_named_canaries_come_first_and_of_them_those_of_the_test_role() -> None:
    tenants = [tenant("a"), tenant("b", Role.TEST), tenant("c")]
    assert waves(Strategy(canaries=("a", "b")), tenants)[0] == ("b", "a")


def test_where_every_named_canary_is_left_out_no_other_goes_first_unasked() -> None:
    held = replace(tenant("a"), hold=Hold("fair week", TODAY))
    with pytest.raises(Refused, match="no canary takes part: a: on hold until 2026-11-29: fair week"):
        membership(Strategy(canaries=("a",)), [held, tenant("b")], TARGET, TODAY, {})
    # Where a person chose tenants and no canary among them, one of these goes first.
    assert waves(Strategy(canaries=("a",)), [tenant("b"), tenant("c")])[0] == ("b",)


def test_without_named_canaries_the_test_role_goes_first_and_without_that_one_tenant() -> None:
    assert waves(Strategy(), TEN)[0] == ("t0",)
    assert waves(Strategy(), [tenant("a"), tenant("b")]) == (("a",), ("b",))
    assert waves(Strategy(), [tenant("a")]) == (("a",),)
    assert waves(Strategy(), []) == ()


def test_hold_and_pin_leave_a_tenant_out_until_their_day_is_over() -> None:
    held = replace(tenant("held"), hold=Hold("fair week", TODAY))
    over = replace(tenant("over"), hold=Hold("fair week", TODAY - datetime.timedelta(days=1)))
    pinned = replace(tenant("pinned"), pin=Pin("2026.10.22", "asked for it", TODAY))
    reached = replace(tenant("reached"), pin=Pin("2026.11.29", "asked for it", TODAY))
    found = membership(Strategy(), [held, over, pinned, reached], TARGET, TODAY, {"reached": "no proven restore"})
    assert found.left_out == {
        "held": "on hold until 2026-11-29: fair week",
        "pinned": "pinned to 2026.10.22 until 2026-11-29: asked for it",
        "reached": "no proven restore",
    }
    assert found.waves == (("over",),)


SIZES = st.lists(st.one_of(st.integers(1, 30).map(str), st.integers(0, 100).map(lambda share: f"{share}%")), max_size=5)


@given(sizes=SIZES, roles=st.lists(st.sampled_from(Role), max_size=25), named=st.sets(st.integers(0, 24), max_size=3))
def test_every_tenant_is_in_exactly_one_wave_and_none_is_empty(
    sizes: list[str], roles: list[Role], named: set[int]
) -> None:
    tenants = [tenant(f"t{number}", role) for number, role in enumerate(roles)]
    canaries = tuple(f"t{number}" for number in named if number < len(roles))
    found = waves(Strategy(waves=tuple(sizes), canaries=canaries), tenants)
    assert sorted(slug for wave in found for slug in wave) == sorted(tenant.slug for tenant in tenants)
    assert all(found)


def test_the_only_strategy_needs_no_name_and_an_unknown_one_is_refused() -> None:
    slow = Strategy(soak_seconds=7)
    assert choose_strategy({"slow": slow}, None) == ("slow", slow)
    assert choose_strategy({}, None) == ("default", Strategy())
    assert choose_strategy({"slow": slow, "default": Strategy()}, None) == ("default", Strategy())
    with pytest.raises(InvalidInput, match="no strategy 'fast'"):
        choose_strategy({"slow": slow}, "fast")
