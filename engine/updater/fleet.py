"""Many tenants at once: batches of one pyinfra State each, a greenlet a tenant."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from engine.clock import new_run_id
from engine.errors import RecordFailed, TenantryError
from engine.hosts.access import Access
from engine.hosts.pool import SessionPool
from engine.hosts.session import Session
from engine.records import replace_file
from engine.registry.model import Tenant
from engine.updater.assessment import render_heads
from engine.updater.converge import Converge
from engine.updater.events import Event, Phase
from engine.updater.job import Job, run_job
from engine.updater.mending import Mender, Mending
from engine.updater.notify import Sender, send
from engine.updater.outcome import Options, Outcome, placed
from engine.updater.owner_note import check_note
from engine.updater.workspace import Workspace

Result = TypeVar("Result")


def converge_many(
    workspace: Workspace,
    tenants: Sequence[Tenant],
    options: Options,
    *,
    parallel: int | None = None,
    sender: Sender = send,
    mender: Mender | None = None,
) -> tuple[Outcome, ...]:
    """Converge `tenants`, at most `parallel` at a time; one tenant's failure leaves the others alone.

    With a `mender`, each run first puts right what that finds broken. A tenant that waits, for silence above all,
    counts as none of the `parallel` ones. Raises :class:`InvalidInput` before any connection for a template or a
    hand-written note that cannot be used.
    """

    if options.note is not None:
        check_note(workspace, options.note)
    return map_tenants(
        workspace,
        tenants,
        lambda pool, tenant: converge_one(workspace, pool, tenant, options, sender, mender() if mender else None),
        parallel=parallel,
    )


def converge_one(
    workspace: Workspace,
    pool: SessionPool,
    tenant: Tenant,
    options: Options,
    sender: Sender = send,
    mending: Mending | None = None,
) -> Outcome:
    """Converge one tenant within :func:`map_tenants`: its lock, its record, its connection."""

    def work(job: Job) -> Outcome:
        job.tell(Phase.CONNECT, "connecting")
        with pool.session(tenant) as session:
            return Converge(job, session, options, sender, mending=mending).run()

    return run_job(workspace, tenant, "converge", work, pool.clock)


def ask_many(
    workspace: Workspace,
    tenants: Sequence[Tenant],
    question: Callable[[Tenant, Session], Result],
    *,
    parallel: int | None = None,
) -> tuple[Result | TenantryError, ...]:
    """Ask each tenant something without lock, record or change; an error stands in its place."""

    def ask_one(pool: SessionPool, tenant: Tenant) -> Result | TenantryError:
        workspace.report(Event(tenant.slug, Phase.PROBE, "asking the tenant"))
        try:
            with pool.session(tenant) as session:
                return question(tenant, session)
        except TenantryError as error:
            return placed(error, tenant)
        except Exception as error:
            return _defect(workspace, tenant, error)
        finally:
            workspace.report(Event(tenant.slug, Phase.DONE, "answered"))

    return map_tenants(workspace, tenants, ask_one, parallel=parallel)


def map_tenants(
    workspace: Workspace,
    tenants: Sequence[Tenant],
    work: Callable[[SessionPool, Tenant], Result],
    *,
    parallel: int | None = None,
) -> tuple[Result, ...]:
    """Call `work` for each tenant in a greenlet of its own, in batches that share a pyinfra State.

    Raises :class:`InvalidInput` before any connection where a template cannot be rendered.
    """
    render_heads(workspace, tenants)
    return each_tenant(workspace, tenants, work, parallel=parallel)


def each_tenant(
    workspace: Workspace,
    tenants: Sequence[Tenant],
    work: Callable[[SessionPool, Tenant], Result],
    *,
    parallel: int | None = None,
) -> tuple[Result, ...]:
    """Like :func:`map_tenants`, for work that needs no rendered files."""
    settings = workspace.fleet.settings
    access = Access(workspace.fleet, workspace.state_directory, workspace.clock)
    results: dict[str, Result] = {}
    for batch in _batches(tenants, settings.batch_size):
        with SessionPool(access, batch) as pool:

            def keep(tenant: Tenant, pool: SessionPool = pool) -> None:
                results[tenant.slug] = work(pool, tenant)

            defects = pool.run(keep, parallel=parallel or settings.parallel)
        # `work` turns what a tenant can cause, and our own defects, into its result.
        for raised in filter(None, defects.values()):
            raise raised
    return tuple(results[tenant.slug] for tenant in tenants)


def _defect(workspace: Workspace, tenant: Tenant, error: Exception) -> TenantryError:
    """An error of ours in a question, as that tenant's answer; its traceback is kept in a private file."""
    path = workspace.state_directory / "defects" / f"{new_run_id(workspace.clock)}-{tenant.slug}.log"
    hint = f"report it with {path}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, "".join(traceback.format_exception(error)).encode(errors="backslashreplace"))
    except (OSError, RecordFailed):
        hint = "report it; its traceback could not be written to the state directory"
    return TenantryError(f"internal error: {type(error).__name__}", where=tenant.slug, hint=hint)


def _batches(tenants: Iterable[Tenant], size: int) -> Iterable[Sequence[Tenant]]:
    iterator = iter(tenants)
    while batch := list(islice(iterator, size)):
        yield batch
