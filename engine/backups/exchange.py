"""An archive takes the place of a tenant's files, in one window; what was there moves into the recovery set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.backups import unpack
from engine.backups.choice import Chosen
from engine.backups.restore_plan import Tree, lies_in, missing_parents
from engine.errors import CommandFailed, UnknownState
from engine.hosts.session import Session
from engine.recovery import sets
from engine.recovery.assembly import assembled
from engine.registry.safeguards import ContentKind
from engine.registry.settings import Gateway, Settings
from engine.releases.version import ZERO, Version
from engine.render.compare import compare
from engine.updater.assessment import render_at
from engine.updater.events import Phase
from engine.updater.job import Job
from engine.updater.quiesce import not_quiet
from engine.updater.rendered import write_rendered
from engine.updater.restart import OwedRestart
from engine.updater.safety_net import SafetyNet

EXCHANGE = Path(__file__).with_name("exchange_script.py").read_text()
MEBIBYTE = 1024 * 1024

_SETTLE_UNITS = """
problems = [
    units.systemctl(verb, name)
    for verb, names in PARAMETERS.items() for name in names if units.show(name, "LoadState") == "loaded"
]
RESULT = [problem for problem in problems if problem]
"""


def set_of(run: str) -> str:
    """The recovery set that the restore `run` moves files into; one of its own name may be its installation's."""
    return f"{run}-restore"


@dataclass
class Exchange:
    """One archive on its way into the place of a tenant's files, in a job that has claimed the host.

    `bring` touches nothing that is live. `carry_out` arms `net` right before the window; once it `has_begun`, whatever
    fails is undone by that, or by the dead-man.
    """

    job: Job
    session: Session
    chosen: Chosen
    net: SafetyNet
    trees: tuple[Tree, ...] = ()
    has_begun: bool = False
    _stopped: Sequence[str] = field(default=())
    _running: Sequence[str] = field(default=())

    def bring(self) -> None:
        """Have the archive beside the live files, every file and every database of it checked.

        Raises :class:`Refused` without room, :class:`ArchiveRejected` for what does not come out as it went in.
        """
        session, chosen, run = self.session, self.chosen, self.job.run_id
        self.job.enter(Phase.UNPACK, f"unpacking archive {chosen.archive} beside the live files")
        unpack.clean(session)
        found = unpack.look(session, chosen.places)
        self.trees = chosen.trees(found.live, self._settings)
        there = [tree for tree in self.trees if tree.path in chosen.listing]
        reserve = self._settings.recovery.reserve_mebibytes * MEBIBYTE
        needed = unpack.needed_bytes(chosen.listing, there, reserve) + unpack.carried_bytes(session, self.trees)
        unpack.require_room(found, self.trees, needed, self._slug)
        unpack.unpack(session, chosen.file, run, chosen.listing, there, self._settings.backup.seconds)
        checked = unpack.check(session, run, chosen.listing, there, chosen.manifest)
        self.job.tell(Phase.UNPACK, f"{checked} members are as they were, {self._databases(there)} databases sound")

    def carry_out(self, marker: Version | None, head: Version) -> None:
        """Exchange the files while nobody uses them; the gateway stays stopped if it had to be.

        The tenant's marker becomes the archive's, unless only a path of it is restored. Raises :class:`NotQuiet`.
        """
        moved = tuple(tree.document() for tree in self.trees)
        change = sets.Change(set_of(self.job.run_id), marker, head, moved=moved)
        gateway = self._settings.gateway if self._needs_stop else None
        if gateway is None:
            self._window(None, change)
        else:
            self._window_in_silence(gateway, change)

    def settle(self, version: Version | None) -> None:
        """Put the rendered set of `version` in force, and let the units run from it; a stopped gateway stays stopped.

        Of the rendered set only what lies in the path, where one is restored.
        """
        rendered = render_at(self.job.workspace, self.job.tenant, version or ZERO)
        for difference in compare(rendered, self.session.probe().rendered):
            if self.chosen.path is None or lies_in(difference.rendered.file.path, [self.chosen.path]):
                write_rendered(self.session, difference)
        self.session.check("systemctl daemon-reload")
        problems = self.session.run_script(
            assembled(_SETTLE_UNITS),
            {
                "start": list(self._stopped),
                "reload-or-restart": list(self._running) if self._is_read_by_services else [],
            },
            label="start what was stopped",
        )
        if problems:
            raise CommandFailed(
                f"with the archive's files a service does not start: {'; '.join(problems)}", where=self._slug
            )

    @property
    def stops_gateway(self) -> bool:
        """Whether the gateway had to be stopped, and is to be started again."""
        return self._settings.gateway is not None and self._needs_stop

    @property
    def reason(self) -> str:
        """What the restart of a gateway that was stopped is owed for."""
        return f"restore of archive {self.chosen.archive}"

    def _window_in_silence(self, gateway: Gateway, change: sets.Change) -> None:
        quiesce = self._settings.quiesce
        self.job.enter(Phase.QUIESCE, "the gateway must be stopped for the restore")
        polls_left = quiesce.polls
        while polls_left > 0:
            polls_left -= self._await_silence(gateway, polls_left)
            if self._window(gateway, change):
                return
            self.job.enter(Phase.QUIESCE, "a message came between the gate and the stop")
        raise not_quiet(quiesce, self._slug)

    def _await_silence(self, gateway: Gateway, polls: int) -> int:
        """Wait for silence; how many polls it took. A history that says nothing may be what is to be restored."""
        try:
            return OwedRestart(self.job, self.session, self.net).await_silence(gateway, polls)
        except UnknownState as error:
            self.job.tell(Phase.QUIESCE, f"{error.message}; the restore was confirmed, so it counts as silent")
            return 1

    def _window(self, gateway: Gateway | None, change: sets.Change) -> bool:
        """Go through the window; False where the last look before the stop found a conversation."""
        self.job.enter(Phase.RECOVERY, "taking the recovery set that the files move into")
        self.net.set_run = sets.take(self.session, change).run
        self.net.head = str(change.to_version)
        self.has_begun = True
        self.net.arm()
        self.job.enter(Phase.EXCHANGE, f"exchanging {len(self.trees)} paths")
        result = self.session.run_script(
            assembled(EXCHANGE), self._parameters(gateway), label="exchange the files for the archive's"
        )
        if result["outcome"] == "exchanged":
            self._stopped, self._running = result["stopped"], result["running"]
            if result["unknown"]:
                self.job.tell(Phase.EXCHANGE, f"stopped although its history cannot be read: {result['unknown']}")
            return True
        if result["outcome"] == "failed":
            raise CommandFailed(f"the files could not be exchanged: {result['problem']}", where=self._slug)
        self._call_off()
        return False

    def _call_off(self) -> None:
        """Nothing was touched: neither the dead-man nor the set is wanted."""
        self.net.disarm()
        self.session.run_script(
            assembled("RESULT = sets.drop(PARAMETERS['run'])"), {"run": self.net.set_run}, label="drop the recovery set"
        )
        self.net.set_run, self.has_begun = None, False

    def _parameters(self, gateway: Gateway | None) -> Mapping[str, Any]:
        parents = {
            path: member.document()
            for tree in self.trees
            for path, member in missing_parents(tree, self.chosen.listing).items()
        }
        silence = self._settings.quiesce.silence_seconds
        return {
            "set": self.net.set_run,
            "tree": unpack.tree_of(self.job.run_id),
            "moved": [tree.document() for tree in self.trees],
            "parents": parents,
            "gateway": gateway and {"unit": gateway.unit, "database": gateway.database, "silence_seconds": silence},
            "own_gateway": self._settings.gateway.unit if self._settings.gateway else "",
            "holders_only": bool(self.chosen.path),
            "own": {} if self.chosen.path else self._own_files(),
            "owe": self.reason,
        }

    def _own_files(self) -> Mapping[str, str | None]:
        """The engine's own files as they were when the archive was made, the marker last."""
        manifest = self.chosen.manifest
        applied = json.dumps(dict(manifest.applied), indent=1, sort_keys=True) + "\n" if manifest.applied else None
        return {"applied.json": applied, "version": f"{manifest.version}\n" if manifest.version else None}

    @property
    def _needs_stop(self) -> bool:
        if self.chosen.path is None or any(tree.kind is ContentKind.STATE for tree in self.trees):
            return True
        return any(
            lies_in(path, [self.chosen.path]) or lies_in(self.chosen.path, [path]) for path in self._gateway_files
        )

    @property
    def _is_read_by_services(self) -> bool:
        """Whether a unit that has nothing open there may run from it; which one is not declared."""
        paths = [tree.path for tree in self.trees]
        return any(tree.kind is ContentKind.CONFIGURATION for tree in self.trees) or any(
            file.reload and lies_in(file.path, paths) for file in self._settings.rendered
        )

    @property
    def _gateway_files(self) -> tuple[str, ...]:
        """What the gateway reads only when it starts, beside its state."""
        gateway = self._settings.gateway
        rendered = [file.path for file in self._settings.rendered if file.restart]
        if gateway is None:
            return tuple(rendered)
        unit = f"{sets.UNITS}/{gateway.unit}"
        return (*rendered, gateway.config_file, unit, f"{unit}.d")

    def _databases(self, trees: Sequence[Tree]) -> int:
        paths = [tree.path for tree in trees]
        return sum(lies_in(path, paths) for path in self.chosen.manifest.databases)

    @property
    def _settings(self) -> Settings:
        return self.job.workspace.fleet.settings

    @property
    def _slug(self) -> str:
        return self.job.tenant.slug
