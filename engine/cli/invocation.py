"""What every command is given: the fleet, the state directory, and the options they share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from engine.errors import InvalidInput

if TYPE_CHECKING:
    from engine.registry.model import Fleet, Tenant
    from engine.updater.workspace import Workspace

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Invocation:
    """The fleet and state directory of one command line, as absolute paths."""

    root: Path
    state_directory: Path

    @classmethod
    def of(cls, fleet: Path, state_directory: Path | None) -> Invocation:
        """The invocation for ``-C`` and ``--state-dir`` as they were typed."""
        root = Path(os.path.abspath(fleet))
        return cls(root, Path(os.path.abspath(state_directory or root / "var")))

    def fleet(self) -> Fleet:
        """The registry and settings; raises :class:`InvalidInput`."""
        from engine.registry.load import load_fleet

        return load_fleet(self.root)

    def workspace(self) -> Workspace:
        """The whole fleet, checked; raises :class:`InvalidInput` before anything is touched."""
        from engine.updater.workspace import open_workspace

        return open_workspace(self.root, self.state_directory)


@dataclass(frozen=True)
class Choice:
    """Which tenants a person chose: by name, or all that have a role and a trade."""

    names: tuple[str, ...] = ()
    everyone: bool = False
    role: str | None = None
    trade: str | None = None

    @property
    def is_made(self) -> bool:
        return bool(self.names or self.everyone or self.role or self.trade)

    def check(self, *, required: bool) -> None:
        """Raise a usage error for a choice that is missing or contradicts itself."""
        if required and not self.is_made:
            raise click.UsageError("name tenants, or choose them with --all, --role or --trade")
        ways = (bool(self.names), self.everyone, bool(self.role or self.trade))
        if sum(ways) > 1:
            raise click.UsageError("choose tenants in one way: by name, with --all, or with --role and --trade")

    def of(self, fleet: Fleet) -> tuple[Tenant, ...]:
        """The chosen tenants in the order of the registry; raises :class:`InvalidInput` for unknown ones."""
        unknown = [name for name in self.names if name not in fleet.tenants]
        if unknown:
            raise InvalidInput(
                f"unknown tenant: {', '.join(unknown)}",
                hint=f"known: {', '.join(fleet.tenants) or 'none'}",
            )
        chosen = tuple(tenant for tenant in fleet.tenants.values() if self._includes(tenant))
        if not chosen and (self.role or self.trade):
            wanted = " and ".join(
                f"{key} {value}" for key, value in (("role", self.role), ("trade", self.trade)) if value
            )
            raise InvalidInput(f"no tenant has {wanted}", hint=f"known trades: {_trades(fleet)}")
        return chosen

    def _includes(self, tenant: Tenant) -> bool:
        if self.names:
            return tenant.slug in self.names
        return self.role in (None, tenant.role.value) and self.trade in (None, tenant.trade)


def tenants_option(*, required: bool) -> Callable[[Function], Function]:
    """Give a command the argument ``T…`` and the options that choose tenants, as one `choice`."""

    def decorate(function: Function) -> Function:
        def command(
            *args: Any, names: tuple[str, ...], everyone: bool, role: str | None, trade: str | None, **kw: Any
        ) -> Any:
            choice = Choice(names, everyone, role, trade)
            choice.check(required=required)
            return function(*args, choice=choice, **kw)

        # click keeps the options of the decorators below on the function itself.
        command.__doc__ = function.__doc__
        command.__name__ = function.__name__
        command.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        for option in reversed(_choice_parameters()):
            command = option(command)
        return command  # type: ignore[return-value]

    return decorate


def json_option(function: Function) -> Function:
    """Give a command ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def parallel_option(function: Function) -> Function:
    """Give a command ``--parallel``."""
    return click.option(
        "--parallel",
        type=click.IntRange(min=1),
        metavar="N",
        help="How many tenants at once; the fleet's setting by default.",
    )(function)


def one_tenant(fleet: Fleet, name: str) -> Tenant:
    """The tenant `name`; raises :class:`InvalidInput` naming the known ones."""
    return Choice((name,)).of(fleet)[0]


def _choice_parameters() -> Sequence[Callable[[Any], Any]]:
    return (
        click.argument("names", nargs=-1, metavar="[T]..."),
        click.option("--all", "everyone", is_flag=True, help="Every tenant of the fleet."),
        click.option("--role", type=click.Choice(["test", "client"]), help="Every tenant of this role."),
        click.option("--trade", metavar="TRADE", help="Every tenant of this trade."),
    )


def _trades(fleet: Fleet) -> str:
    return ", ".join(sorted({tenant.trade for tenant in fleet.tenants.values()})) or "none"
