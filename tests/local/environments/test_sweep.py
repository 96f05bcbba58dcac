"""Ticks over a real journal and a simulated provider, in which everything that can go wrong does."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.cli.sweep import Starter
from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind, Owned
from engine.environments.due import Due
from engine.environments.hosting import Hosting, open_hosting
from engine.environments.journal import State
from engine.environments.orphans import orphans
from engine.environments.sweep import SWEEP, Sweep, by_journal
from engine.environments.verbs import retire, run
from engine.errors import ExitCode, NeedsAttention, RecordFailed, TenantryError, UnknownState
from engine.registry.environments_model import Lifetime
from engine.subject import Subject
from engine.timers.units import Caller
from tests.fleets import write_whole_fleet
from tests.local.environments.simulated import Store, simulated_drivers
from tests.local.environments.subjects import World, specification, world
from tests.local.environments.test_tiers import tier_spec
from tests.unit.hosted import OWN, TIER

HOUR = 3600
ENV = Subject("env", OWN)


@dataclass
class Site:
    """A fleet with a journal of which the provider is simulated, and jobs that run in this process."""

    root: Path
    subject: World
    store: Store
    started: list[Due] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def open(self) -> Hosting:
        hosting = open_hosting(self.root, self.root / "var")
        # The provider and the clock are the simulated ones; the journal is that of the fleet.
        vars(hosting)["parts"] = self.subject.parts
        object.__setattr__(hosting, "clock", self.subject.clock)
        return hosting

    def start(self, due: Due) -> int:
        self.started.append(due)
        parts, uuid = self.subject.parts, due.subject.id
        words = {"reclaim": Verb.RECLAIM, "expire-retained": Verb.EXPIRE_RETAINED}
        try:
            if due.command == "retire":
                retire(parts, uuid)
            else:
                run(parts, words[due.command], uuid)
        except TenantryError as error:
            return error.exit_code
        return 0

    def sweep(self, **changes: object) -> Sweep:
        # The simulated provider holds no copies.
        sources = (by_journal,)
        values = {"open_fleet": self.open, "start": self.start, "stop": self.stop, "sources": sources, **changes}
        return Sweep(**values)  # type: ignore[arg-type]

    def receipts(self) -> list[tuple[str, str]]:
        return [(item.result, item.word) for item in self.subject.parts.journal.receipts(None)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    root = write_whole_fleet(tmp_path / "fleet")
    store = Store(tmp_path / "provider.json")
    found = world(root / "var/environments", simulated_drivers(store), specification(lifetime=Lifetime.DURABLE))
    return Site(root, found, store)


def test_a_tick_takes_what_is_due_and_writes_a_receipt_only_then(site: Site) -> None:
    site.subject.create()
    retire(site.subject.parts, OWN)
    site.subject.clock.sleep(167 * HOUR)
    tier = site.subject.of(tier_spec())
    tier.create()
    retire(tier.parts, TIER)
    idle = site.sweep().tick()
    assert (idle.jobs, idle.orphans, idle.errors, site.receipts()) == ([], (), [], [])
    site.subject.clock.sleep(HOUR)
    tick = site.sweep().tick()
    assert [(job.due, job.exit_code) for job in tick.jobs] == [(Due(ENV, "expire-retained"), 0)]
    assert (site.subject.state, site.receipts()) == (State.TOMBSTONED, [("done", "1 of 1 jobs, 0 errors")])
    for _ in range(2):
        site.sweep().tick()
    assert len(site.receipts()) == 1
    site.subject.clock.sleep(168 * HOUR)
    assert [job.due for job in site.sweep().tick().jobs] == [Due(Subject("tier", TIER), "expire-retained")]
    assert site.store.things() == {}


def test_what_needs_a_person_is_named_and_left_alone(site: Site) -> None:
    site.store.faults["create", Kind.ROLE] = ["lost"]
    with pytest.raises(NeedsAttention):
        site.subject.create()
    before = site.store.content()
    for _ in range(2):
        tick = site.sweep().tick()
        assert [(item.subject, item.word) for item in tick.waiting] == [(ENV, "createOutcomeUnknown")]
    assert (site.started, site.store.content(), site.receipts(), tick.exit_code) == ([], before, [], 0)


def test_orphans_are_listed_and_never_deleted(site: Site) -> None:
    site.store.put("bucket/x", {"reference": "r", "digest": "d", "mark": {"uuid": OWN, "intent_id": "i-nobody-knows"}})
    tick = site.sweep().tick()
    assert tick.orphans is not None
    assert [(item.kind, item.owned.mark.intent_id) for item in tick.orphans] == [(Kind.BUCKET, "i-nobody-knows")]
    assert "bucket/x" in site.store.things()


def test_what_is_let_go_of_while_it_is_listed_is_no_orphan(site: Site) -> None:
    subject = site.subject.of(specification())
    subject.create()
    listed = subject.parts.drivers[Kind.DATABASE].list_owned

    def let_go_after_listing() -> tuple[Owned, ...]:
        found = listed()
        run(subject.parts, Verb.RECLAIM, OWN)
        return found

    vars(subject.parts.drivers[Kind.DATABASE])["list_owned"] = let_go_after_listing
    assert (orphans(subject.parts), subject.state, site.store.things()) == ((), State.TOMBSTONED, {})


def _retiring(site: Site) -> None:
    site.subject.create()
    site.subject.parts.journal.writer(OWN).retire(None)


def test_a_job_that_fails_leaves_the_tick_and_the_next_one_tries_again(site: Site) -> None:
    _retiring(site)
    site.store.faults["observe", Kind.BUCKET] = ["unknown"]
    tick = site.sweep().tick()
    assert ([job.exit_code for job in tick.jobs], tick.exit_code) == ([4], 4)
    assert site.receipts() == [("failed", "0 of 1 jobs, 0 errors")]
    assert site.sweep().tick().exit_code == 0
    assert site.subject.state is State.TOMBSTONED


def test_a_job_that_somebody_else_does_is_neither_work_nor_wrong(site: Site) -> None:
    _retiring(site)
    tick = site.sweep(start=lambda due: 75).tick()
    assert (tick.exit_code, site.receipts()) == (0, [])


@pytest.mark.parametrize(
    "error", [RuntimeError("secret"), MemoryError(), OSError(28, "No space left"), RecordFailed("x")]
)
def test_nothing_that_is_raised_gets_out_of_a_tick(site: Site, error: Exception) -> None:
    _retiring(site)

    def fail(*_: object) -> None:
        raise error

    for broken in (
        site.sweep(open_fleet=fail),
        site.sweep(start=fail),
        site.sweep(sources=(fail, by_journal), start=lambda due: 75),
    ):
        tick = broken.tick()
        assert len(tick.errors) == 1 and "secret" not in tick.errors[0].message
        assert tick.exit_code == 1
    listing = site.subject.parts.drivers[Kind.BUCKET]
    listing.list_owned = fail  # type: ignore[method-assign]
    tick = site.sweep(start=lambda due: 75).tick()
    assert (tick.orphans, len(tick.errors)) == (None, 1)
    assert [result for result, _ in site.receipts()] == ["failed"] * 3
    del listing.list_owned  # type: ignore[misc]
    assert (site.sweep().tick().exit_code, site.subject.state) == (0, State.TOMBSTONED)


def test_a_listing_that_is_not_answered_is_no_failure_of_ours(site: Site) -> None:
    site.subject.create()

    def unanswered() -> tuple[Owned, ...]:
        raise UnknownState("the listing could not be read")

    vars(site.subject.parts.drivers[Kind.BUCKET])["list_owned"] = unanswered
    tick = site.sweep().tick()
    assert (tick.orphans, tick.exit_code) == (None, ExitCode.UNREACHABLE)


def test_a_source_that_fails_does_not_stop_the_others(site: Site) -> None:
    _retiring(site)

    def broken_source(hosting: Hosting) -> tuple[Due, ...]:
        raise OSError("gone")

    tick = site.sweep(sources=(broken_source, by_journal)).tick()
    assert (site.subject.state, len(tick.errors)) == (State.TOMBSTONED, 1)


def test_a_broken_journal_and_a_broken_inventory_are_told_and_the_next_tick_comes(site: Site) -> None:
    _retiring(site)
    journal = site.root / "var/environments/journal.db"
    kept = journal.read_bytes()
    journal.write_bytes(b"no database" * 999)
    for path in journal.parent.glob("journal.db-*"):
        path.unlink()
    tick = site.sweep().tick()
    assert tick.errors and all("journal" in error.message for error in tick.errors)
    journal.write_bytes(kept)
    settings = site.root / "inventory/fleet.yaml"
    text = settings.read_text()
    settings.write_text(f"{text}\nnonsense: 1\n")
    assert "nonsense" in site.sweep().tick().errors[0].message
    settings.write_text(text)
    assert site.sweep().tick().exit_code == 0


def test_a_tick_never_overlaps_another(site: Site) -> None:
    _retiring(site)
    seen = []

    def start(due: Due) -> int:
        seen.append(site.sweep(start=site.start).tick())
        return 75

    outer = site.sweep(start=start).tick()
    (inner,) = seen
    assert (inner.exit_code, inner.jobs, site.started) == (75, [], [])
    assert inner.busy is not None and "sweep/environments is busy" in inner.busy
    assert outer.exit_code == 0
    with site.open().locks.hold(SWEEP, job="sweep", run="r"):
        assert site.sweep().tick().exit_code == 75


def test_the_end_comes_between_two_jobs(site: Site) -> None:
    _retiring(site)
    other = site.subject.of(specification("5f0c9d6e-2a43-4f0e-9a53-0a9c8f6f7d11"))
    other.create()
    other.parts.journal.writer(other.spec.uuid).retire(None)
    shown = []

    def start(due: Due) -> int:
        site.stop.set()
        return site.start(due)

    site.sweep(start=start).serve(3600, shown.append)
    assert (len(site.started), len(shown)) == (1, 1)
    assert sorted(row.state for row in site.subject.parts.journal.subjects()) == ["retiring", "tombstoned"]


def test_an_output_that_is_gone_does_not_end_the_service(site: Site) -> None:
    times = []

    def show(tick: object) -> None:
        times.append(tick)
        if len(times) == 2:
            site.stop.set()
        raise BrokenPipeError

    sweep = site.sweep(open_fleet=lambda: (_ for _ in ()).throw(RuntimeError()))
    sweep.serve(0, show)
    assert len(times) == 2


def _starter(directory: Path, script: str, **changes: object) -> tuple[Starter, Callable[[], str]]:
    """What starts jobs with a command of ours; and how to read what that wrote, which it does at once."""
    command, pipe = directory / "tenantry", directory / "pipe"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    os.mkfifo(pipe)
    starter = Starter(Caller(command, directory, directory / "var"), threading.Event(), **changes)  # type: ignore[arg-type]
    return starter, lambda: pipe.read_text()


def test_a_job_is_a_command_on_the_same_fleet(tmp_path: Path) -> None:
    starter, _ = _starter(tmp_path, f'echo "$@" > {tmp_path}/arguments; exit 4')
    assert starter(Due(ENV, "retire")) == 4
    assert (tmp_path / "arguments").read_text() == f"-C {tmp_path} --state-dir {tmp_path}/var env retire {OWN}\n"


@pytest.mark.parametrize("stopped", [False, True])
def test_a_job_without_end_is_left_to_itself(tmp_path: Path, stopped: bool) -> None:
    bound = {"stop_seconds": 0} if stopped else {"job_seconds": 0}
    starter, read = _starter(tmp_path, f"exec cat {tmp_path}/hold > {tmp_path}/pipe", **bound)
    os.mkfifo(tmp_path / "hold")
    if stopped:
        starter.stop.set()
    assert starter(Due(ENV, "retire")) is None
    # It still reads and writes: it was neither ended nor stopped.
    writer = threading.Thread(target=lambda: (tmp_path / "hold").write_text("went on"))
    writer.start()
    assert read() == "went on"
    writer.join()


def test_the_death_of_the_sweep_leaves_its_job_to_its_end(tmp_path: Path) -> None:
    began, hold, pipe = (tmp_path / name for name in ("began", "hold", "pipe"))
    starter, read = _starter(tmp_path, f"echo yes > {began}; exec cat {hold} > {pipe}")
    os.mkfifo(began)
    os.mkfifo(hold)
    sweep = os.fork()
    if sweep == 0:
        starter(Due(ENV, "retire"))
        os._exit(0)
    assert began.read_text() == "yes\n"
    os.kill(sweep, signal.SIGKILL)
    os.waitpid(sweep, 0)
    writer = threading.Thread(target=lambda: hold.write_text("went on"))
    writer.start()
    assert read() == "went on"
    writer.join()
