"""``tenantry metrics``: what the records say of each tenant, as Prometheus's node exporter reads it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from engine.cli.invocation import Invocation
from engine.cli.status import Recorded, all_recorded
from engine.drift.record import last_check, record_file
from engine.errors import ExitCode
from engine.records import replace_file
from engine.releases.manifest import MANIFEST_FILE, load_manifest


@click.command()
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Replace FILE, such as one in node exporter's textfile directory, instead of printing.",
)
@click.pass_obj
def metrics(invocation: Invocation, output: Path | None) -> ExitCode:
    """Print what the records say in Prometheus's text format.

    Of each tenant: version, last run, last proven restore and its archive, last drift check and lock. No tenant is
    asked. A time that never was is left out.
    """
    head = str(load_manifest(invocation.root / MANIFEST_FILE).head)
    tenants = invocation.fleet().tenants.values()
    drift = {tenant.slug: last_check(record_file(invocation.state_directory, tenant.subject)) for tenant in tenants}
    text = exposition(all_recorded(invocation, tenants), head, drift)
    if output is None:
        click.echo(text, nl=False)
    else:
        # Read by the exporter's own account; it holds no secret.
        replace_file(output, text.encode(), mode=0o644)
    return ExitCode.DONE


def exposition(records: Sequence[Recorded], head: str, drift: Mapping[str, tuple[str, int] | None]) -> str:
    """The metrics of these tenants as text; `drift` is each one's last check: when, and how many keys differed."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Records(records, head, drift))
    return generate_latest(registry).decode()


class _Records(Collector):
    """The records as metric families."""

    def __init__(self, records: Sequence[Recorded], head: str, drift: Mapping[str, tuple[str, int] | None]) -> None:
        self._records = records
        self._head = head
        self._drift = drift

    def collect(self) -> Iterator[GaugeMetricFamily]:
        version = _gauge(
            "version_info", "The version that the last run brought the tenant to, or put it back to.", "version", "head"
        )
        at_head = _gauge("at_head", "Whether that version is the manifest's head.")
        run = _gauge("last_run_info", "How the last run ended.", "job", "result")
        run_at = _gauge("last_run_timestamp_seconds", "When the last run began.")
        proven = _gauge("last_proven_restore_timestamp_seconds", "When a restore was last proven to work.")
        archive = _gauge("last_proven_archive_timestamp_seconds", "When the archive that was restored then was made.")
        drifted = _gauge("drift_keys", "How many keys the last drift check found other than expected.")
        drift_at = _gauge("drift_check_timestamp_seconds", "When drift was last looked for.")
        locked = _gauge("locked", "Whether a job holds the tenant's lock.")
        for record in self._records:
            slug = [record.slug]
            version.add_metric([*slug, record.version or "", self._head], 1)
            at_head.add_metric(slug, record.version == self._head)
            locked.add_metric(slug, record.lock is not None)
            if record.last_run:
                run.add_metric([*slug, str(record.last_run["job"]), str(record.last_run["result"])], 1)
                run_at.add_metric(slug, _seconds(record.last_run["started_at"]))
            if record.proven:
                proven.add_metric(slug, _seconds(record.proven.at))
                archive.add_metric(slug, record.proven.archive_at.timestamp())
            if checked := self._drift.get(record.slug):
                drifted.add_metric(slug, checked[1])
                drift_at.add_metric(slug, _seconds(checked[0]))
        yield from (version, at_head, run, run_at, proven, archive, drifted, drift_at, locked)


def _gauge(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tenantry_tenant_{name}", meaning, labels=["slug", *labels])


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()
