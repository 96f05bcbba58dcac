"""Commands that outlived an earlier run's connection: the next run waits for them before it looks."""

from __future__ import annotations

from engine.errors import Busy
from engine.hosts.session import Session
from engine.hosts.status import Status
from engine.updater.events import Phase
from engine.updater.job import Job


def probe_after_survivors(job: Job, session: Session) -> Status:
    """The tenant's status once no command of an earlier run is at work there.

    Waits up to ``transport.survivor_seconds``, then raises :class:`Busy` naming the run.
    """
    transport, clock = job.workspace.fleet.settings.transport, job.clock
    deadline = clock.monotonic() + transport.survivor_seconds
    status = session.probe()
    while status.host_lock.held:
        if clock.monotonic() >= deadline:
            raise Busy(
                f"a command of run {status.host_lock.run} still runs on the host",
                where=job.tenant.slug,
                hint="it is never killed; give the command again when it has ended",
            )
        job.tell(
            Phase.PROBE,
            f"waiting for a command of run {status.host_lock.run} that still runs on the host",
        )
        clock.sleep(transport.survivor_poll_seconds)
        status = session.probe()
    return status
