"""How one tenant's run ended, and what it was asked."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import Busy, ExitCode, NotQuiet, TenantryError
from engine.records import RunResult
from engine.registry.model import Tenant


@dataclass(frozen=True)
class Options:
    """What a person asked of a converge: plan digests to hold it to, and a hand-written owner note.

    A tenant's plan must have one of `plan_digests`; None means any. A digest names its tenant. `retry` goes on
    although the tenant is held.
    """

    plan_digests: frozenset[str] | None = None
    note: str | None = None
    retry: bool = False


@dataclass(frozen=True)
class Outcome:
    """One tenant's result. `steps` ran, `files` were rendered anew; `error` holds no secret."""

    slug: str
    result: RunResult
    exit_code: ExitCode = ExitCode.DONE
    run: str | None = None
    from_version: str | None = None
    to_version: str | None = None
    steps: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    restarted: bool = False
    messages: tuple[str, ...] = ()
    error: str | None = None


def placed(error: TenantryError, tenant: Tenant) -> TenantryError:
    """`error`, which among many tenants must say of which it is unless it names a place already."""
    error.where = error.where or tenant.slug
    return error


def failed(slug: str, error: TenantryError, run: str | None = None) -> Outcome:
    """The outcome that stands for `error`."""
    return Outcome(slug, result_of(error), error.exit_code, run=run, error=str(error))


def result_of(error: TenantryError) -> RunResult:
    """The result word of a run that `error` ended."""
    if isinstance(error, Busy):
        return RunResult.BUSY
    if isinstance(error, NotQuiet):
        return RunResult.DEFERRED
    return RunResult.UNREACHABLE if error.exit_code is ExitCode.UNREACHABLE else RunResult.FAILED
