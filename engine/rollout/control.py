"""What a person does with rollouts: begin one, go on with it, accept, halt, retry, undo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from engine.backups.proofs import ProofStore, restore_block
from engine.clock import iso, new_run_id
from engine.errors import InvalidInput, Refused
from engine.registry.model import Tenant
from engine.releases.version import Version
from engine.rollout.live import LiveFleet, at_target
from engine.rollout.runner import Runner, accept, begin_again, look_again
from engine.rollout.state import Member, Rollout, Stage, Wave, WaveStage
from engine.rollout.store import ROLLOUT, RolloutStore
from engine.rollout.waves import choose_strategy, membership
from engine.updater.notify import Sender, send
from engine.updater.workspace import Workspace

EventSink = Callable[[Mapping[str, Any]], None]

_UNFINISHED = (Stage.RUNNING, Stage.PAUSED, Stage.AWAITING_APPROVAL)


def store_of(workspace: Workspace) -> RolloutStore:
    """Where this fleet's rollouts are kept."""
    return RolloutStore(workspace.state_directory / "rollouts", workspace.clock)


def prepare(
    workspace: Workspace,
    tenants: Sequence[Tenant],
    *,
    to: str | None,
    strategy: str | None,
) -> Rollout:
    """The rollout as it would begin, membership included; nothing is written or contacted.

    Raises :class:`InvalidInput` for an unknown version or strategy, :class:`Refused` where no tenant takes part.
    """
    target = Version.parse(to) if to else workspace.manifest.head
    manifest = workspace.manifest.up_to(target)
    name, chosen = choose_strategy(workspace.fleet.settings.strategies, strategy)
    members = membership(chosen, tenants, target, workspace.clock.now().date(), unproven(workspace, tenants))
    if not members.waves:
        reasons = "; ".join(f"{slug}: {reason}" for slug, reason in members.left_out.items())
        raise Refused(f"no tenant takes part: {reasons or 'none was chosen'}", hint="look at their hold and pin")
    return Rollout(
        id=new_run_id(workspace.clock),
        target=str(manifest.head),
        strategy_name=name,
        strategy=chosen,
        waves=tuple(_waves(members.waves)),
        started_at=iso(workspace.clock.now()),
        left_out=members.left_out,
    )


def unproven(workspace: Workspace, tenants: Sequence[Tenant]) -> Mapping[str, str]:
    """Tenants that the fleet leaves alone because no restore of them was proven lately, each with its reason."""
    proofs, now = ProofStore(workspace.state_directory / "records"), workspace.clock.now()
    settings = workspace.fleet.settings
    reasons = {tenant.slug: restore_block(settings, proofs.last_proven(tenant.subject), now) for tenant in tenants}
    return {slug: reason for slug, reason in reasons.items() if reason}


def _beginning(rollout: Rollout) -> Mapping[str, Any]:
    """What the story says of a rollout that begins."""
    return {
        "target": rollout.target,
        "strategy": rollout.strategy_name,
        "waves": [[member.slug for member in wave.members] for wave in rollout.waves],
        "left_out": rollout.left_out,
    }


def _waves(waves: Sequence[Sequence[str]]) -> Iterator[Wave]:
    for number, slugs in enumerate(waves):
        name = f"wave-{number}" if number else "canaries"
        yield Wave(name, tuple(Member(slug) for slug in slugs))


@dataclass(frozen=True)
class Control:
    """Rollouts of one fleet, for one process. `report` gets every event of the story as it happens."""

    workspace: Workspace
    report: EventSink
    sender: Sender = send

    def begin(self, rollout: Rollout) -> Rollout:
        """Run a prepared rollout; raises :class:`Refused` while an earlier one is unfinished."""
        with self._held("rollout start"):
            latest = self._store.load() if self._store.names() else None
            if latest and latest.stage in _UNFINISHED:
                raise Refused(
                    f"rollout {latest.id} to {latest.target} is not finished: {latest.stage}",
                    hint="`tenantry rollout resume` goes on with it, `tenantry rollout halt` ends it",
                )
            self.report(self._store.tell(rollout.id, "start", **_beginning(rollout)))
            self._store.save(rollout)
            return self._runner(rollout).run()

    def resume(self) -> Rollout:
        """Go on where the newest rollout stands; what could not be judged is looked at again."""
        return self._go_on("rollout resume", look_again)

    def retry(self) -> Rollout:
        """Converge those of the newest rollout once more that failed, were busy or in conversation."""
        return self._go_on("rollout retry", begin_again)

    def approve(self) -> Rollout:
        """Let the wave begin that waits for it, or promote the one that paused, and go on."""

        def accepted(rollout: Rollout) -> Rollout:
            found = accept(rollout)
            if found is None:
                raise Refused(f"rollout {rollout.id} waits for no approval: it is {rollout.stage}")
            return found

        return self._go_on("rollout approve", accepted)

    def undo(self, wave: str) -> Rollout:
        """Put the updated tenants of a wave of the newest rollout back to where they were."""
        with self._held("rollout undo"):
            rollout = self._store.load()
            names = [item.name for item in rollout.waves]
            if wave not in names:
                raise InvalidInput(f"rollout {rollout.id} has no wave {wave!r}", hint=f"known: {', '.join(names)}")
            return self._runner(rollout).undo(names.index(wave))

    def halt(self, reason: str) -> Rollout:
        """Halt the newest rollout: at once where nobody runs it, else as soon as its begun tenants have ended."""
        rollout = self._store.load()
        if self.workspace.locks.holder(ROLLOUT) is not None:
            self._store.ask_to_halt(rollout.id, reason)
            return rollout
        with self._held("rollout halt"):
            rollout = self._store.load()
            if rollout.stage not in _UNFINISHED:
                raise Refused(f"rollout {rollout.id} does not run: it is {rollout.stage}")
            now = iso(self.workspace.clock.now())
            halted = replace(rollout, stage=Stage.HALTED, reason=f"a person halted it: {reason}", finished_at=now)
            self.report(self._store.tell(rollout.id, "halted", reason=halted.reason))
            self._store.save(halted)
            return halted

    def _go_on(self, job: str, change: Callable[[Rollout], Rollout]) -> Rollout:
        with self._held(job):
            rollout = self._store.load()
            self._store.forget_halt(rollout.id)
            undone = [wave for wave in rollout.waves if wave.stage.is_taken_back]
            if undone:
                left = [
                    f"`tenantry rollout undo {wave.name}` goes on with it"
                    for wave in undone
                    if wave.stage is WaveStage.UNDOING
                ]
                raise Refused(
                    f"rollout {rollout.id} cannot go on: {', '.join(wave.name for wave in undone)} was undone",
                    hint=left[0] if left else "begin a new one with `tenantry rollout start`",
                )
            changed = change(rollout)
            self.report(self._store.tell(rollout.id, job.removeprefix("rollout ")))
            return self._runner(changed).run()

    def _runner(self, rollout: Rollout) -> Runner:
        target = at_target(self.workspace, rollout.target)
        fleet = LiveFleet(target, rollout.id, rollout.strategy, self.sender)
        return Runner(rollout, self._store, fleet, self.workspace.clock, self.report)

    @contextmanager
    def _held(self, job: str) -> Iterator[None]:
        with self.workspace.locks.hold(ROLLOUT, job=job, run=new_run_id(self.workspace.clock)):
            yield

    @property
    def _store(self) -> RolloutStore:
        return store_of(self.workspace)
