"""What environments need on this machine before they can be converged: running parents and machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.environments.drivers.base import Kind
from engine.environments.hosting.workspace import Hosting
from engine.environments.journal import State
from engine.environments.parents import LabParents
from engine.environments.spec import read


def bring_up(hosting: Hosting, progress: Callable[[str], None]) -> None:
    """Have the parents running, and every machine of an environment that was made and is not let go of.

    Does nothing for a fleet that hosts no environment. Makes nothing: that is what converging is for.
    """
    if not hosting.entries:
        return
    LabParents(hosting.state_directory, progress).up()
    hosts = {host.slug: host for host in hosting.lab.list()}
    # One without a whole disk cannot be switched on: it is finished, or let go of, by its environment's own job.
    off = [name for name in _machines(hosting) if name in hosts and hosts[name].whole and not hosts[name].running]
    if off:
        progress(f"switching on {len(off)} machines of environments")
        hosting.stores_for_machines()
        hosting.lab.start(off)


def _machines(hosting: Hosting) -> Iterator[str]:
    for row in hosting.journal.subjects() if hosting.journal_file.exists() else ():
        spec = read(row.spec)
        if row.state in (State.CREATING, State.READY):
            yield from (spec.name(kind) for kind in (Kind.GATEWAY, Kind.WEB) if kind in spec.kinds)
