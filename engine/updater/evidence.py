"""What is kept of a gateway whose owner could not reach it, before the tenant is put back."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from engine.errors import TenantryError
from engine.hosts.session import Session
from engine.hosts.status import Status
from engine.records import replace_file
from engine.updater.events import Phase
from engine.updater.job import Job

SCRIPT = Path(__file__).with_name("evidence_script.py").read_text()
JOURNAL_LINES = 1000


def collect(job: Job, session: Session, before: Status | None) -> Path | None:
    """Keep journal, unit, health answer and the statuses before and after in the run's record; where they are.

    Best effort: the owner waits for the way back, so what cannot be kept is only said.
    """
    gateway = job.workspace.fleet.settings.gateway
    if gateway is None:
        return None
    directory = job.record.directory / "evidence"
    try:
        after = session.probe()
        texts = session.run_script(
            SCRIPT,
            {
                "unit": gateway.unit,
                "since": before.clock if before else after.clock - 3600,
                "lines": JOURNAL_LINES,
                "url": f"http://{_host(gateway.address)}:{gateway.port}{gateway.health_path}",
            },
            label="collect evidence",
        )
        directory.mkdir(mode=0o700, exist_ok=True)
        statuses = {"status-before.json": before, "status-after.json": after}
        texts |= {name: _document(status) for name, status in statuses.items() if status}
        for name, text in texts.items():
            replace_file(directory / name, text.encode(errors="backslashreplace"))
    except (TenantryError, OSError) as error:
        job.tell(Phase.ROLLBACK, f"not all evidence could be kept: {error}")
    return directory if directory.is_dir() else None


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _document(status: Status) -> str:
    return json.dumps(asdict(status), indent=2, default=str) + "\n"
