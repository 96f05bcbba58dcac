"""How one tenant's run ended, and what it was asked."""

from __future__ import annotations

from dataclasses import dataclass

from engine.clock import moment_of
from engine.errors import Busy, ExitCode, NotQuiet, TenantryError
from engine.hosts.status import Held
from engine.records import RunResult
from engine.registry.model import Tenant


@dataclass(frozen=True)
class Options:
    """What a person asked of a converge: plan digests to hold it to, and a hand-written owner note.

    A tenant's plan must have one of `plan_digests`; None means any. A digest names its tenant. `retry` goes on
    although the tenant is held. `resumes` is the id of a job whose process died: its converge goes on although the
    tenant's dead-man has undone a run that began since.
    """

    plan_digests: frozenset[str] | None = None
    note: str | None = None
    retry: bool = False
    resumes: str | None = None

    def goes_on_after(self, undone_run: str) -> bool:
        """Whether this converge goes on although the dead-man of `undone_run` put the tenant back."""
        return self.retry or (self.resumes is not None and moment_of(undone_run) >= moment_of(self.resumes))

    def overrides(self, held: Held | None) -> bool:
        """Whether this converge goes on although the tenant is `held`."""
        return self.retry or (held is not None and held.by == "dead-man" and self.goes_on_after(held.run))


@dataclass(frozen=True)
class Outcome:
    """One tenant's result. `steps` ran, `files` were rendered anew; `error` holds no secret.

    `recovery_set` is the run whose set leads back from what this one changed.
    """

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
    recovery_set: str | None = None


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
