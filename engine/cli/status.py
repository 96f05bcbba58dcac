"""``tenantry status``: what the records say, and with --live what the tenants say."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from engine.backups.proofs import Proof, ProofStore
from engine.cli.backups import age
from engine.cli.failures import report_error
from engine.cli.invocation import Choice, Invocation, json_option, parallel_option, tenants_option
from engine.cli.output import print_document, print_table
from engine.clock import SystemClock
from engine.errors import ExitCode, TenantryError, most_serious
from engine.locks import Holder, LockDirectory
from engine.records import RunResult, RunStore
from engine.registry.model import Tenant
from engine.releases.manifest import MANIFEST_FILE, load_manifest

INTERRUPTED = "interrupted"
PROVEN_FIELDS = ("run", "archive", "archive_at", "at", "duration_seconds", "result", "unproven")
REHEARSED_FIELDS = ("run", "archive", "at", "result", "error")
# A tenant that was put back is at what its run calls the version that it led to.
ARRIVED = (RunResult.UPDATED, RunResult.UNCHANGED, RunResult.RESTORED, RunResult.ROLLED_BACK)


@dataclass(frozen=True)
class Recorded:
    """What the operator's machine knows of one tenant; `version` is the last one that it was brought or put back to.

    `proven` is the last restore that a rehearsal has proven, `rehearsed` the last rehearsal, good or not.
    """

    slug: str
    version: str | None
    lock: Holder | None
    last_run: Mapping[str, Any] | None
    proven: Proof | None = None
    rehearsed: Proof | None = None


@click.command()
@tenants_option(required=False)
@click.option("--live", is_flag=True, help="Ask the tenants themselves.")
@parallel_option
@json_option
@click.pass_obj
def status(invocation: Invocation, choice: Choice, live: bool, parallel: int | None, as_json: bool) -> ExitCode:
    """Show what the records say of each tenant; --live asks the tenants.

    Without --live nothing is connected to: version is the one that the last run of this machine brought
    the tenant to, or put it back to, which the tenant may have left since. Only --live tells the version of record. A
    run that ended without closing its record is shown as interrupted. The proven restore is the last
    one that a rehearsal booted: how long ago, and how old the archive is that it booted.
    """
    fleet = invocation.fleet()
    head = str(load_manifest(invocation.root / MANIFEST_FILE).head)
    tenants = choice.of(fleet)
    records = all_recorded(invocation, tenants)
    answers = _ask(invocation, tenants, parallel) if live else {}
    if as_json:
        print_document(document(records, head, answers))
    else:
        _show(records, head, answers, SystemClock().now())
    errors = [answer for answer in answers.values() if isinstance(answer, TenantryError)]
    for error in errors:
        report_error(error)
    return most_serious(error.exit_code for error in errors)


def all_recorded(invocation: Invocation, tenants: Iterable[Tenant]) -> list[Recorded]:
    """What this machine knows of each of `tenants`; takes no lock."""
    clock, directory = SystemClock(), invocation.state_directory
    locks, proofs = LockDirectory(directory / "locks", clock), ProofStore(directory / "records")
    runs = RunStore(directory / "records", clock)
    return [recorded(tenant, locks, runs, proofs) for tenant in tenants]


def recorded(tenant: Tenant, locks: LockDirectory, runs: RunStore, proofs: ProofStore) -> Recorded:
    """Read one tenant's lock, run records and proofs; takes no lock."""
    lock = locks.holder(tenant.subject)
    reached = [entry["to_version"] for entry in runs.history(tenant.subject) if entry["result"] in ARRIVED]
    return Recorded(
        tenant.slug,
        reached[-1] if reached else None,
        lock,
        _last_run(runs.latest(tenant.subject), lock),
        proofs.last_proven(tenant.subject),
        proofs.last_attempt(tenant.subject),
    )


def document(
    records: Sequence[Recorded], head: str, live: Mapping[str, Mapping[str, Any] | TenantryError]
) -> dict[str, Any]:
    """The status document; `live` is null for a tenant that was not asked or gave no answer."""
    return {
        "tenants": [
            {
                "slug": record.slug,
                "version": record.version,
                "head": head,
                "lock": asdict(record.lock) if record.lock else None,
                "last_run": record.last_run,
                "last_proven_restore": record.proven.document(*PROVEN_FIELDS) if record.proven else None,
                "last_rehearsal": record.rehearsed.document(*REHEARSED_FIELDS) if record.rehearsed else None,
                "live": None if isinstance(live.get(record.slug), TenantryError) else live.get(record.slug),
            }
            for record in records
        ]
    }


def _last_run(state: Mapping[str, Any] | None, lock: Holder | None) -> Mapping[str, Any] | None:
    if state is None:
        return None
    keys = (
        "run",
        "job",
        "result",
        "phase",
        "started_at",
        "finished_at",
        "from_version",
        "to_version",
        "error",
    )
    run = {key: state[key] for key in keys}
    if run["result"] == RunResult.RUNNING and (lock is None or lock.run != run["run"]):
        run["result"] = INTERRUPTED
    return run


def _ask(
    invocation: Invocation, tenants: Sequence[Tenant], parallel: int | None
) -> dict[str, Mapping[str, Any] | TenantryError]:
    # pyinfra is slow to import, and the records can be read without it.
    from engine.cli.live import ask

    return ask(invocation, tenants, parallel)


def _show(
    records: Sequence[Recorded],
    head: str,
    live: Mapping[str, Mapping[str, Any] | TenantryError],
    now: datetime.datetime,
) -> None:
    columns = ["tenant", "version", "head", "lock", "last run", "result", "ended", "proven restore"]
    print_table(
        [*columns, *(["tenant says"] if live else [])],
        [[*_row(record, head, now), *([_says(live.get(record.slug))] if live else [])] for record in records],
    )


def _row(record: Recorded, head: str, now: datetime.datetime) -> list[str]:
    run = record.last_run or {}
    lock = f"{record.lock.job} {record.lock.run}" if record.lock else ""
    return [
        record.slug,
        record.version or "",
        head,
        lock,
        f"{run['job']} {run['run']}" if run else "",
        str(run.get("result", "")),
        run.get("finished_at") or "",
        proof_words(record.proven, record.rehearsed, now),
    ]


def proof_words(proven: Proof | None, rehearsed: Proof | None, now: datetime.datetime) -> str:
    """How long ago a restore was last proven, how old its archive is, and whether a later rehearsal failed."""

    def since(moment: datetime.datetime) -> str:
        return age((now - moment).total_seconds())

    words = f"{since(proven.rehearsed_at)} ago, archive {since(proven.archive_at)} old" if proven else "never"
    if rehearsed and not rehearsed.is_good:
        words += f", failed {since(rehearsed.rehearsed_at)} ago"
    return words


def _says(answer: Mapping[str, Any] | TenantryError | None) -> str:
    if answer is None or isinstance(answer, TenantryError):
        return "nothing"
    gateway = answer["gateway"]
    words = [answer["version"] or f"marker {answer['marker']}"]
    words += [f"runtime {answer['runtime_version']}"] if answer["runtime_version"] else []
    words += [f"gateway {gateway['active']}"] if gateway else []
    words += [f"held back from {answer['held']['head']}"] if answer["held"] else []
    words += [f"dead-man armed for run {answer['armed']['run']}"] if answer["armed"] else []
    words += ["restart owed"] if answer["owed"]["restart"] else []
    return ", ".join(words)
