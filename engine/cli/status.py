"""``tenantry status``: what the records say, and with --live what the tenants say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

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
ARRIVED = (RunResult.UPDATED, RunResult.UNCHANGED)


@dataclass(frozen=True)
class Recorded:
    """What the operator's machine knows of one tenant; `version` is the last one known to be reached."""

    slug: str
    version: str | None
    lock: Holder | None
    last_run: Mapping[str, Any] | None


@click.command()
@tenants_option(required=False)
@click.option("--live", is_flag=True, help="Ask the tenants themselves.")
@parallel_option
@json_option
@click.pass_obj
def status(invocation: Invocation, choice: Choice, live: bool, parallel: int | None, as_json: bool) -> ExitCode:
    """Show what the records say of each tenant; --live asks the tenants.

    Without --live nothing is connected to: version is the one that the last successful run of this
    machine reached, which the tenant may have left since. Only --live tells the version of record. A
    run that ended without closing its record is shown as interrupted.
    """
    fleet = invocation.fleet()
    head = str(load_manifest(invocation.root / MANIFEST_FILE).head)
    tenants = choice.of(fleet)
    clock = SystemClock()
    locks = LockDirectory(invocation.state_directory / "locks", clock)
    runs = RunStore(invocation.state_directory / "records", clock)
    records = [recorded(tenant, locks, runs) for tenant in tenants]
    answers = _ask(invocation, tenants, parallel) if live else {}
    if as_json:
        print_document(document(records, head, answers))
    else:
        _show(records, head, answers)
    errors = [answer for answer in answers.values() if isinstance(answer, TenantryError)]
    for error in errors:
        report_error(error)
    return most_serious(error.exit_code for error in errors)


def recorded(tenant: Tenant, locks: LockDirectory, runs: RunStore) -> Recorded:
    """Read one tenant's lock and run records; takes no lock."""
    lock = locks.holder(tenant.subject)
    reached = [entry["to_version"] for entry in runs.history(tenant.subject) if entry["result"] in ARRIVED]
    return Recorded(tenant.slug, reached[-1] if reached else None, lock, _last_run(runs.latest(tenant.subject), lock))


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


def _show(records: Sequence[Recorded], head: str, live: Mapping[str, Mapping[str, Any] | TenantryError]) -> None:
    columns = ["tenant", "version", "head", "lock", "last run", "result", "ended"]
    print_table(
        [*columns, *(["tenant says"] if live else [])],
        [[*_row(record, head), *([_says(live.get(record.slug))] if live else [])] for record in records],
    )


def _row(record: Recorded, head: str) -> list[str]:
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
    ]


def _says(answer: Mapping[str, Any] | TenantryError | None) -> str:
    if answer is None or isinstance(answer, TenantryError):
        return "nothing"
    gateway = answer["gateway"]
    words = [answer["version"] or f"marker {answer['marker']}"]
    words += [f"runtime {answer['runtime_version']}"] if answer["runtime_version"] else []
    words += [f"gateway {gateway['active']}"] if gateway else []
    words += ["restart owed"] if answer["owed"]["restart"] else []
    return ", ".join(words)
