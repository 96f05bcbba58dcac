"""Who takes part in a rollout, and in which wave. Pure; decided once, at the start."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.errors import InvalidInput, Refused
from engine.registry.model import Role, Tenant
from engine.registry.settings import Strategy
from engine.releases.version import Version


@dataclass(frozen=True)
class Membership:
    """The frozen waves of a rollout, canaries first, and why others are left out, by slug."""

    waves: tuple[tuple[str, ...], ...]
    left_out: Mapping[str, str]


def membership(
    strategy: Strategy, tenants: Sequence[Tenant], target: Version, today: datetime.date, blocked: Mapping[str, str]
) -> Membership:
    """Divide `tenants` into waves; `blocked` are those that something else keeps out, with its reason.

    Every tenant is in exactly one wave or left out with a reason. No wave is empty. Raises :class:`Refused` where
    canaries are named among `tenants` and all of them are left out: another tenant would go first unasked.
    """
    left_out = {tenant.slug: reason for tenant in tenants if (reason := _why_not(tenant, target, today, blocked))}
    members = [tenant for tenant in tenants if tenant.slug not in left_out]
    named = [tenant.slug for tenant in tenants if tenant.slug in strategy.canaries]
    if members and named and all(slug in left_out for slug in named):
        raise Refused(
            f"no canary takes part: {'; '.join(f'{slug}: {left_out[slug]}' for slug in named)}",
            hint="choose a strategy with other canaries, or wait until one of these may take part",
        )
    canaries = _canaries(strategy, members)
    others = [tenant.slug for tenant in members if tenant.slug not in canaries]
    waves = [canaries, *_divided(strategy.waves, others)]
    return Membership(tuple(wave for wave in waves if wave), left_out)


def _why_not(tenant: Tenant, target: Version, today: datetime.date, blocked: Mapping[str, str]) -> str | None:
    if tenant.hold and today <= tenant.hold.until:
        return f"on hold until {tenant.hold.until}: {tenant.hold.reason}"
    if tenant.pin and today <= tenant.pin.until and target > Version.parse(tenant.pin.version):
        return f"pinned to {tenant.pin.version} until {tenant.pin.until}: {tenant.pin.reason}"
    return blocked.get(tenant.slug)


def _canaries(strategy: Strategy, members: Sequence[Tenant]) -> tuple[str, ...]:
    """The named canaries, tenants of the test role first; without any those of that role, or the first tenant."""
    by_role = sorted(members, key=lambda tenant: tenant.role is not Role.TEST)
    if named := tuple(tenant.slug for tenant in by_role if tenant.slug in strategy.canaries):
        return named
    testers = tuple(tenant.slug for tenant in by_role if tenant.role is Role.TEST)
    return testers or tuple(tenant.slug for tenant in by_role[:1])


def _divided(sizes: Sequence[str], slugs: Sequence[str]) -> list[tuple[str, ...]]:
    """The waves after the canaries. A share says how much of `slugs` is reached after its wave, rounded up."""
    waves, reached = [], 0
    for size in (*sizes, "100%"):
        until = min(len(slugs), max(reached, _reach(size, reached, len(slugs))))
        waves.append(tuple(slugs[reached:until]))
        reached = until
    return waves


def _reach(size: str, reached: int, total: int) -> int:
    if size.endswith("%"):
        # Hundredths as whole numbers first: 0.1 + 0.2 must not make a wave one tenant larger.
        return math.ceil(round(float(size[:-1]) * total * 1000) / 100_000)
    return reached + int(size)


def choose_strategy(strategies: Mapping[str, Strategy], name: str | None) -> tuple[str, Strategy]:
    """The strategy of that name; without a name the only one, the one named ``default``, or the built-in one."""
    if name is None:
        name = next(iter(strategies)) if len(strategies) == 1 else "default"
        return name, strategies.get(name, Strategy())
    if name not in strategies:
        raise InvalidInput(
            f"there is no strategy {name!r}",
            where="inventory/fleet.yaml: strategies",
            hint=f"known: {', '.join(strategies) or 'none; leave --strategy out for the built-in one'}",
        )
    return name, strategies[name]
